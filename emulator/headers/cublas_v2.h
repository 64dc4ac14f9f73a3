// The part of cuBLAS that the emulator has; matrices are column-major. Names, values and prototypes are those
// of CUDA 13, so code that was compiled with NVIDIA's header links, too.
#pragma once

#include <cuComplex.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>
#include <library_types.h>
#include <stdint.h>

// The guards of NVIDIA's headers, by which others see that they are there.
#define CUBLAS_V2_H_
#define CUBLAS_API_H_

#define CUBLAS_VER_MAJOR 13
#define CUBLAS_VER_MINOR 0
#define CUBLAS_VER_PATCH 0
#define CUBLAS_VERSION (CUBLAS_VER_MAJOR * 10000 + CUBLAS_VER_MINOR * 100 + CUBLAS_VER_PATCH)

typedef enum {
  CUBLAS_STATUS_SUCCESS = 0,
  CUBLAS_STATUS_NOT_INITIALIZED = 1,
  CUBLAS_STATUS_ALLOC_FAILED = 3,
  CUBLAS_STATUS_INVALID_VALUE = 7,
  CUBLAS_STATUS_ARCH_MISMATCH = 8,
  CUBLAS_STATUS_MAPPING_ERROR = 11,
  CUBLAS_STATUS_EXECUTION_FAILED = 13,
  CUBLAS_STATUS_INTERNAL_ERROR = 14,
  CUBLAS_STATUS_NOT_SUPPORTED = 15,
  CUBLAS_STATUS_LICENSE_ERROR = 16
} cublasStatus_t;
typedef enum {
  CUBLAS_FILL_MODE_LOWER = 0,
  CUBLAS_FILL_MODE_UPPER = 1,
  CUBLAS_FILL_MODE_FULL = 2
} cublasFillMode_t;
typedef enum { CUBLAS_DIAG_NON_UNIT = 0, CUBLAS_DIAG_UNIT = 1 } cublasDiagType_t;
typedef enum { CUBLAS_SIDE_LEFT = 0, CUBLAS_SIDE_RIGHT = 1 } cublasSideMode_t;
typedef enum {
  CUBLAS_OP_N = 0,
  CUBLAS_OP_T = 1,
  CUBLAS_OP_C = 2,
  CUBLAS_OP_HERMITAN = 2,
  CUBLAS_OP_CONJG = 3
} cublasOperation_t;
typedef enum { CUBLAS_POINTER_MODE_HOST = 0, CUBLAS_POINTER_MODE_DEVICE = 1 } cublasPointerMode_t;
typedef enum { CUBLAS_ATOMICS_NOT_ALLOWED = 0, CUBLAS_ATOMICS_ALLOWED = 1 } cublasAtomicsMode_t;
// One algorithm serves for all.
typedef enum {
  CUBLAS_GEMM_DFALT = -1,
  CUBLAS_GEMM_DEFAULT = -1,
  CUBLAS_GEMM_ALGO0 = 0,
  CUBLAS_GEMM_ALGO1 = 1,
  CUBLAS_GEMM_ALGO2 = 2,
  CUBLAS_GEMM_ALGO3 = 3,
  CUBLAS_GEMM_ALGO4 = 4,
  CUBLAS_GEMM_ALGO5 = 5,
  CUBLAS_GEMM_ALGO6 = 6,
  CUBLAS_GEMM_ALGO7 = 7,
  CUBLAS_GEMM_ALGO8 = 8,
  CUBLAS_GEMM_ALGO9 = 9,
  CUBLAS_GEMM_ALGO10 = 10,
  CUBLAS_GEMM_ALGO11 = 11,
  CUBLAS_GEMM_ALGO12 = 12,
  CUBLAS_GEMM_ALGO13 = 13,
  CUBLAS_GEMM_ALGO14 = 14,
  CUBLAS_GEMM_ALGO15 = 15,
  CUBLAS_GEMM_ALGO16 = 16,
  CUBLAS_GEMM_ALGO17 = 17,
  CUBLAS_GEMM_ALGO18 = 18,
  CUBLAS_GEMM_ALGO19 = 19,
  CUBLAS_GEMM_ALGO20 = 20,
  CUBLAS_GEMM_ALGO21 = 21,
  CUBLAS_GEMM_ALGO22 = 22,
  CUBLAS_GEMM_ALGO23 = 23,
  CUBLAS_GEMM_DEFAULT_TENSOR_OP = 99,
  CUBLAS_GEMM_DFALT_TENSOR_OP = 99,
  CUBLAS_GEMM_ALGO0_TENSOR_OP = 100,
  CUBLAS_GEMM_ALGO1_TENSOR_OP = 101,
  CUBLAS_GEMM_ALGO2_TENSOR_OP = 102,
  CUBLAS_GEMM_ALGO3_TENSOR_OP = 103,
  CUBLAS_GEMM_ALGO4_TENSOR_OP = 104,
  CUBLAS_GEMM_ALGO5_TENSOR_OP = 105,
  CUBLAS_GEMM_ALGO6_TENSOR_OP = 106,
  CUBLAS_GEMM_ALGO7_TENSOR_OP = 107,
  CUBLAS_GEMM_ALGO8_TENSOR_OP = 108,
  CUBLAS_GEMM_ALGO9_TENSOR_OP = 109,
  CUBLAS_GEMM_ALGO10_TENSOR_OP = 110,
  CUBLAS_GEMM_ALGO11_TENSOR_OP = 111,
  CUBLAS_GEMM_ALGO12_TENSOR_OP = 112,
  CUBLAS_GEMM_ALGO13_TENSOR_OP = 113,
  CUBLAS_GEMM_ALGO14_TENSOR_OP = 114,
  CUBLAS_GEMM_ALGO15_TENSOR_OP = 115
} cublasGemmAlgo_t;
typedef enum {
  CUBLAS_DEFAULT_MATH = 0,
  CUBLAS_TENSOR_OP_MATH = 1,
  CUBLAS_PEDANTIC_MATH = 2,
  CUBLAS_TF32_TENSOR_OP_MATH = 3,
  CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION = 16
} cublasMath_t;
typedef cudaDataType cublasDataType_t;
typedef enum {
  CUBLAS_COMPUTE_16F = 64,
  CUBLAS_COMPUTE_16F_PEDANTIC = 65,
  CUBLAS_COMPUTE_32F = 68,
  CUBLAS_COMPUTE_32F_PEDANTIC = 69,
  CUBLAS_COMPUTE_32F_FAST_16F = 74,
  CUBLAS_COMPUTE_32F_FAST_16BF = 75,
  CUBLAS_COMPUTE_32F_FAST_TF32 = 77,
  CUBLAS_COMPUTE_64F = 70,
  CUBLAS_COMPUTE_64F_PEDANTIC = 71,
  CUBLAS_COMPUTE_32I = 72,
  CUBLAS_COMPUTE_32I_PEDANTIC = 73
} cublasComputeType_t;

struct cublasContext;
typedef struct cublasContext *cublasHandle_t;

#ifdef __cplusplus
extern "C" {
#endif

cublasStatus_t cublasCreate_v2(cublasHandle_t *handle);
cublasStatus_t cublasDestroy_v2(cublasHandle_t handle);
cublasStatus_t cublasGetVersion_v2(cublasHandle_t handle, int *version);
cublasStatus_t cublasGetProperty(libraryPropertyType type, int *value);
cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream);
cublasStatus_t cublasGetStream_v2(cublasHandle_t handle, cudaStream_t *stream);
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void *workspace, size_t bytes);
cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t mode);
cublasStatus_t cublasGetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t *mode);
cublasStatus_t cublasSetAtomicsMode(cublasHandle_t handle, cublasAtomicsMode_t mode);
cublasStatus_t cublasGetAtomicsMode(cublasHandle_t handle, cublasAtomicsMode_t *mode);
cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode);
cublasStatus_t cublasGetMathMode(cublasHandle_t handle, cublasMath_t *mode);
const char *cublasGetStatusName(cublasStatus_t status);
const char *cublasGetStatusString(cublasStatus_t status);

cublasStatus_t cublasSetVector(int n, int size, const void *x, int incx, void *y, int incy);
cublasStatus_t cublasGetVector(int n, int size, const void *x, int incx, void *y, int incy);
cublasStatus_t cublasSetMatrix(int rows, int cols, int size, const void *A, int lda, void *B, int ldb);
cublasStatus_t cublasGetMatrix(int rows, int cols, int size, const void *A, int lda, void *B, int ldb);
cublasStatus_t cublasSetVectorAsync(int n, int size, const void *x, int incx, void *y, int incy,
                                    cudaStream_t s);
cublasStatus_t cublasGetVectorAsync(int n, int size, const void *x, int incx, void *y, int incy,
                                    cudaStream_t s);
cublasStatus_t cublasSetMatrixAsync(int rows, int cols, int size, const void *A, int lda, void *B, int ldb,
                                    cudaStream_t s);
cublasStatus_t cublasGetMatrixAsync(int rows, int cols, int size, const void *A, int lda, void *B, int ldb,
                                    cudaStream_t s);

// X is the letter of the type T, R that of the real type Real.
#define LADDER_CUBLAS_ALL_TYPES(X, Index, T)                                                                 \
  cublasStatus_t cublas##X##copy_v2(cublasHandle_t handle, int n, const T *x, int incx, T *y, int incy);     \
  cublasStatus_t cublas##X##swap_v2(cublasHandle_t handle, int n, T *x, int incx, T *y, int incy);           \
  cublasStatus_t cublas##X##scal_v2(cublasHandle_t handle, int n, const T *alpha, T *x, int incx);           \
  cublasStatus_t cublas##X##axpy_v2(cublasHandle_t handle, int n, const T *alpha, const T *x, int incx,      \
                                    T *y, int incy);                                                         \
  cublasStatus_t cublas##Index##amax_v2(cublasHandle_t handle, int n, const T *x, int incx, int *result);    \
  cublasStatus_t cublas##Index##amin_v2(cublasHandle_t handle, int n, const T *x, int incx, int *result);    \
  cublasStatus_t cublas##X##gemv_v2(cublasHandle_t handle, cublasOperation_t trans, int m, int n,            \
                                    const T *alpha, const T *A, int lda, const T *x, int incx,               \
                                    const T *beta, T *y, int incy);                                          \
  cublasStatus_t cublas##X##gemm_v2(cublasHandle_t handle, cublasOperation_t transa,                         \
                                    cublasOperation_t transb, int m, int n, int k, const T *alpha,           \
                                    const T *A, int lda, const T *B, int ldb, const T *beta, T *C, int ldc); \
  cublasStatus_t cublas##X##gemmBatched(cublasHandle_t handle, cublasOperation_t transa,                     \
                                        cublasOperation_t transb, int m, int n, int k, const T *alpha,       \
                                        const T *const A[], int lda, const T *const B[], int ldb,            \
                                        const T *beta, T *const C[], int ldc, int count);                    \
  cublasStatus_t cublas##X##gemmStridedBatched(                                                              \
      cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k,        \
      const T *alpha, const T *A, int lda, long long strideA, const T *B, int ldb, long long strideB,        \
      const T *beta, T *C, int ldc, long long strideC, int count);                                           \
  cublasStatus_t cublas##X##symm_v2(cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo,     \
                                    int m, int n, const T *alpha, const T *A, int lda, const T *B, int ldb,  \
                                    const T *beta, T *C, int ldc);                                           \
  cublasStatus_t cublas##X##syrk_v2(cublasHandle_t handle, cublasFillMode_t uplo, cublasOperation_t trans,   \
                                    int n, int k, const T *alpha, const T *A, int lda, const T *beta, T *C,  \
                                    int ldc);                                                                \
  cublasStatus_t cublas##X##trsm_v2(cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo,     \
                                    cublasOperation_t trans, cublasDiagType_t diag, int m, int n,            \
                                    const T *alpha, const T *A, int lda, T *B, int ldb);                     \
  cublasStatus_t cublas##X##geam(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb,  \
                                 int m, int n, const T *alpha, const T *A, int lda, const T *beta,           \
                                 const T *B, int ldb, T *C, int ldc);                                        \
  cublasStatus_t cublas##X##dgmm(cublasHandle_t handle, cublasSideMode_t side, int m, int n, const T *A,     \
                                 int lda, const T *x, int incx, T *C, int ldc);

#define LADDER_CUBLAS_REAL(X, T)                                                                             \
  cublasStatus_t cublas##X##dot_v2(cublasHandle_t handle, int n, const T *x, int incx, const T *y, int incy, \
                                   T *result);                                                               \
  cublasStatus_t cublas##X##nrm2_v2(cublasHandle_t handle, int n, const T *x, int incx, T *result);          \
  cublasStatus_t cublas##X##asum_v2(cublasHandle_t handle, int n, const T *x, int incx, T *result);          \
  cublasStatus_t cublas##X##rot_v2(cublasHandle_t handle, int n, T *x, int incx, T *y, int incy, const T *c, \
                                   const T *s);                                                              \
  cublasStatus_t cublas##X##ger_v2(cublasHandle_t handle, int m, int n, const T *alpha, const T *x,          \
                                   int incx, const T *y, int incy, T *A, int lda);

#define LADDER_CUBLAS_COMPLEX(X, T, R, Real)                                                                 \
  cublasStatus_t cublas##X##dotu_v2(cublasHandle_t handle, int n, const T *x, int incx, const T *y,          \
                                    int incy, T *result);                                                    \
  cublasStatus_t cublas##X##dotc_v2(cublasHandle_t handle, int n, const T *x, int incx, const T *y,          \
                                    int incy, T *result);                                                    \
  cublasStatus_t cublas##R##nrm2_v2(cublasHandle_t handle, int n, const T *x, int incx, Real *result);       \
  cublasStatus_t cublas##R##asum_v2(cublasHandle_t handle, int n, const T *x, int incx, Real *result);

LADDER_CUBLAS_ALL_TYPES(S, Is, float)
LADDER_CUBLAS_ALL_TYPES(D, Id, double)
LADDER_CUBLAS_ALL_TYPES(C, Ic, cuComplex)
LADDER_CUBLAS_ALL_TYPES(Z, Iz, cuDoubleComplex)
LADDER_CUBLAS_REAL(S, float)
LADDER_CUBLAS_REAL(D, double)
LADDER_CUBLAS_COMPLEX(C, cuComplex, Sc, float)
LADDER_CUBLAS_COMPLEX(Z, cuDoubleComplex, Dz, double)
#undef LADDER_CUBLAS_ALL_TYPES
#undef LADDER_CUBLAS_REAL
#undef LADDER_CUBLAS_COMPLEX
cublasStatus_t cublasCsscal_v2(cublasHandle_t handle, int n, const float *alpha, cuComplex *x, int incx);
cublasStatus_t cublasZdscal_v2(cublasHandle_t handle, int n, const double *alpha, cuDoubleComplex *x,
                               int incx);

cublasStatus_t cublasHgemm(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m,
                           int n, int k, const __half *alpha, const __half *A, int lda, const __half *B,
                           int ldb, const __half *beta, __half *C, int ldc);
cublasStatus_t cublasHgemmBatched(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb,
                                  int m, int n, int k, const __half *alpha, const __half *const A[], int lda,
                                  const __half *const B[], int ldb, const __half *beta, __half *const C[],
                                  int ldc, int count);
cublasStatus_t cublasHgemmStridedBatched(cublasHandle_t handle, cublasOperation_t transa,
                                         cublasOperation_t transb, int m, int n, int k, const __half *alpha,
                                         const __half *A, int lda, long long strideA, const __half *B,
                                         int ldb, long long strideB, const __half *beta, __half *C, int ldc,
                                         long long strideC, int count);

cublasStatus_t cublasSgemmEx(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m,
                             int n, int k, const float *alpha, const void *A, cudaDataType Atype, int lda,
                             const void *B, cudaDataType Btype, int ldb, const float *beta, void *C,
                             cudaDataType Ctype, int ldc);
cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m,
                            int n, int k, const void *alpha, const void *A, cudaDataType Atype, int lda,
                            const void *B, cudaDataType Btype, int ldb, const void *beta, void *C,
                            cudaDataType Ctype, int ldc, cublasComputeType_t computeType,
                            cublasGemmAlgo_t algo);
cublasStatus_t cublasGemmBatchedEx(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb,
                                   int m, int n, int k, const void *alpha, const void *const A[],
                                   cudaDataType Atype, int lda, const void *const B[], cudaDataType Btype,
                                   int ldb, const void *beta, void *const C[], cudaDataType Ctype, int ldc,
                                   int count, cublasComputeType_t computeType, cublasGemmAlgo_t algo);
cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t transa,
                                          cublasOperation_t transb, int m, int n, int k, const void *alpha,
                                          const void *A, cudaDataType Atype, int lda, long long strideA,
                                          const void *B, cudaDataType Btype, int ldb, long long strideB,
                                          const void *beta, void *C, cudaDataType Ctype, int ldc,
                                          long long strideC, int count, cublasComputeType_t computeType,
                                          cublasGemmAlgo_t algo);

cublasStatus_t cublasDotEx(cublasHandle_t handle, int n, const void *x, cudaDataType xType, int incx,
                           const void *y, cudaDataType yType, int incy, void *result, cudaDataType resultType,
                           cudaDataType executionType);
cublasStatus_t cublasDotcEx(cublasHandle_t handle, int n, const void *x, cudaDataType xType, int incx,
                            const void *y, cudaDataType yType, int incy, void *result,
                            cudaDataType resultType, cudaDataType executionType);
cublasStatus_t cublasNrm2Ex(cublasHandle_t handle, int n, const void *x, cudaDataType xType, int incx,
                            void *result, cudaDataType resultType, cudaDataType executionType);
cublasStatus_t cublasAxpyEx(cublasHandle_t handle, int n, const void *alpha, cudaDataType alphaType,
                            const void *x, cudaDataType xType, int incx, void *y, cudaDataType yType,
                            int incy, cudaDataType executionType);
cublasStatus_t cublasScalEx(cublasHandle_t handle, int n, const void *alpha, cudaDataType alphaType, void *x,
                            cudaDataType xType, int incx, cudaDataType executionType);

#ifdef __cplusplus
}

/// As before CUDA 11: the type of the computation as that of its numbers.
static inline cublasComputeType_t ladder_cublas_compute_type(cudaDataType type) {
  return type == CUDA_R_16F                         ? CUBLAS_COMPUTE_16F
         : type == CUDA_R_32I                       ? CUBLAS_COMPUTE_32I
         : type == CUDA_R_64F || type == CUDA_C_64F ? CUBLAS_COMPUTE_64F
                                                    : CUBLAS_COMPUTE_32F;
}
static inline cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t transa,
                                          cublasOperation_t transb, int m, int n, int k, const void *alpha,
                                          const void *A, cudaDataType Atype, int lda, const void *B,
                                          cudaDataType Btype, int ldb, const void *beta, void *C,
                                          cudaDataType Ctype, int ldc, cudaDataType computeType,
                                          cublasGemmAlgo_t algo) {
  return cublasGemmEx(handle, transa, transb, m, n, k, alpha, A, Atype, lda, B, Btype, ldb, beta, C, Ctype,
                      ldc, ladder_cublas_compute_type(computeType), algo);
}
static inline cublasStatus_t
cublasGemmBatchedEx(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n,
                    int k, const void *alpha, const void *const A[], cudaDataType Atype, int lda,
                    const void *const B[], cudaDataType Btype, int ldb, const void *beta, void *const C[],
                    cudaDataType Ctype, int ldc, int count, cudaDataType computeType, cublasGemmAlgo_t algo) {
  return cublasGemmBatchedEx(handle, transa, transb, m, n, k, alpha, A, Atype, lda, B, Btype, ldb, beta, C,
                             Ctype, ldc, count, ladder_cublas_compute_type(computeType), algo);
}
static inline cublasStatus_t
cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m,
                           int n, int k, const void *alpha, const void *A, cudaDataType Atype, int lda,
                           long long strideA, const void *B, cudaDataType Btype, int ldb, long long strideB,
                           const void *beta, void *C, cudaDataType Ctype, int ldc, long long strideC,
                           int count, cudaDataType computeType, cublasGemmAlgo_t algo) {
  return cublasGemmStridedBatchedEx(handle, transa, transb, m, n, k, alpha, A, Atype, lda, strideA, B, Btype,
                                    ldb, strideB, beta, C, Ctype, ldc, strideC, count,
                                    ladder_cublas_compute_type(computeType), algo);
}
#endif

#define cublasCreate cublasCreate_v2
#define cublasDestroy cublasDestroy_v2
#define cublasGetVersion cublasGetVersion_v2
#define cublasSetStream cublasSetStream_v2
#define cublasGetStream cublasGetStream_v2
#define cublasSetWorkspace cublasSetWorkspace_v2
#define cublasSetPointerMode cublasSetPointerMode_v2
#define cublasGetPointerMode cublasGetPointerMode_v2
#define cublasScopy cublasScopy_v2
#define cublasSswap cublasSswap_v2
#define cublasSscal cublasSscal_v2
#define cublasSaxpy cublasSaxpy_v2
#define cublasSgemv cublasSgemv_v2
#define cublasSgemm cublasSgemm_v2
#define cublasSsymm cublasSsymm_v2
#define cublasSsyrk cublasSsyrk_v2
#define cublasStrsm cublasStrsm_v2
#define cublasIsamax cublasIsamax_v2
#define cublasIsamin cublasIsamin_v2
#define cublasDcopy cublasDcopy_v2
#define cublasDswap cublasDswap_v2
#define cublasDscal cublasDscal_v2
#define cublasDaxpy cublasDaxpy_v2
#define cublasDgemv cublasDgemv_v2
#define cublasDgemm cublasDgemm_v2
#define cublasDsymm cublasDsymm_v2
#define cublasDsyrk cublasDsyrk_v2
#define cublasDtrsm cublasDtrsm_v2
#define cublasIdamax cublasIdamax_v2
#define cublasIdamin cublasIdamin_v2
#define cublasCcopy cublasCcopy_v2
#define cublasCswap cublasCswap_v2
#define cublasCscal cublasCscal_v2
#define cublasCaxpy cublasCaxpy_v2
#define cublasCgemv cublasCgemv_v2
#define cublasCgemm cublasCgemm_v2
#define cublasCsymm cublasCsymm_v2
#define cublasCsyrk cublasCsyrk_v2
#define cublasCtrsm cublasCtrsm_v2
#define cublasIcamax cublasIcamax_v2
#define cublasIcamin cublasIcamin_v2
#define cublasZcopy cublasZcopy_v2
#define cublasZswap cublasZswap_v2
#define cublasZscal cublasZscal_v2
#define cublasZaxpy cublasZaxpy_v2
#define cublasZgemv cublasZgemv_v2
#define cublasZgemm cublasZgemm_v2
#define cublasZsymm cublasZsymm_v2
#define cublasZsyrk cublasZsyrk_v2
#define cublasZtrsm cublasZtrsm_v2
#define cublasIzamax cublasIzamax_v2
#define cublasIzamin cublasIzamin_v2
#define cublasSdot cublasSdot_v2
#define cublasSnrm2 cublasSnrm2_v2
#define cublasSasum cublasSasum_v2
#define cublasSrot cublasSrot_v2
#define cublasSger cublasSger_v2
#define cublasDdot cublasDdot_v2
#define cublasDnrm2 cublasDnrm2_v2
#define cublasDasum cublasDasum_v2
#define cublasDrot cublasDrot_v2
#define cublasDger cublasDger_v2
#define cublasCdotu cublasCdotu_v2
#define cublasCdotc cublasCdotc_v2
#define cublasZdotu cublasZdotu_v2
#define cublasZdotc cublasZdotc_v2
#define cublasScnrm2 cublasScnrm2_v2
#define cublasScasum cublasScasum_v2
#define cublasDznrm2 cublasDznrm2_v2
#define cublasDzasum cublasDzasum_v2
#define cublasCsscal cublasCsscal_v2
#define cublasZdscal cublasZdscal_v2
