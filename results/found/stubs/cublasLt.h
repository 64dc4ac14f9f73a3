// What llm.c's common.h names of cuBLASLt. Its softmax kernels use none of it.
#pragma once

#include <cublas_v2.h>

using cublasLtHandle_t = void *;
inline cublasStatus_t cublasLtCreate(cublasLtHandle_t *) { return CUBLAS_STATUS_SUCCESS; }
inline cublasStatus_t cublasLtDestroy(cublasLtHandle_t) { return CUBLAS_STATUS_SUCCESS; }
