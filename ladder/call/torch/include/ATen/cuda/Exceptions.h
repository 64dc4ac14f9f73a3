#pragma once

#include <ATen/Context.h>
#include <c10/cuda/CUDAException.h>
#include <cublas_v2.h>

#define AT_CUDA_CHECK(EXPR) C10_CUDA_CHECK(EXPR)
#define TORCH_CUDABLAS_CHECK(EXPR)                                                                           \
  do {                                                                                                       \
    const cublasStatus_t ladder_status = EXPR;                                                               \
    TORCH_CHECK(ladder_status == CUBLAS_STATUS_SUCCESS,                                                      \
                "CUDA error: ", cublasGetStatusString(ladder_status), " when calling `" #EXPR "`");          \
  } while (0)
