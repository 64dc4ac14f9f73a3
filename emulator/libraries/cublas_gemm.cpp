// Matrix products: gemm in all its forms.
#include "libraries/cublas_call.h"
#include "libraries/matrix_product.h"

#include <algorithm>

using namespace ladder::libraries;

namespace {

struct Types {
  cudaDataType a, b, c, scale;
};

constexpr Types same(cudaDataType type) { return {type, type, type, type}; }

struct Operands {
  const void *a, *b;
  void *c;
};

struct Gemm {
  cublasOperation_t transa, transb;
  std::int64_t m, n, k, lda, ldb, ldc;
  Types types;
  const void *alpha, *beta;
};

bool is_transposed(cublasOperation_t operation) {
  return operation == CUBLAS_OP_T || operation == CUBLAS_OP_C;
}

Factor factor(cudaDataType type, const void *data, std::int64_t ld, cublasOperation_t operation) {
  return {type, data, ld, is_transposed(operation), operation == CUBLAS_OP_C || operation == CUBLAS_OP_CONJG};
}

/// The operand's name, with its number in a batch.
std::string numbered(const char *name, std::size_t number, std::size_t count) {
  return count > 1 ? std::string(name) + " of product " + std::to_string(number) : name;
}

void check_ld(const char *name, std::int64_t ld, std::int64_t rows, const char *of) {
  require_value(ld >= std::max<std::int64_t>(1, rows), std::string(name) + " is " + std::to_string(ld) +
                                                           ", and " + of + " has " + std::to_string(rows) +
                                                           " rows");
}

void multiply_all(Call &call, const Gemm &gemm, const std::vector<Operands> &batch) {
  const auto &[transa, transb, m, n, k, lda, ldb, ldc, types, alpha_place, beta_place] = gemm;
  require_value(m >= 0 && n >= 0 && k >= 0, "m, n or k is negative");
  for (const cublasOperation_t operation : {transa, transb})
    require_value(operation >= CUBLAS_OP_N && operation <= CUBLAS_OP_CONJG,
                  "transa or transb is none of cublasOperation_t");
  const std::int64_t a_rows = is_transposed(transa) ? k : m, b_rows = is_transposed(transb) ? n : k;
  check_ld("lda", lda, a_rows, "A");
  check_ld("ldb", ldb, b_rows, "B");
  check_ld("ldc", ldc, m, "C");
  const Complex alpha = call.scalar("alpha", types.scale, alpha_place);
  const Complex beta = call.scalar("beta", types.scale, beta_place);
  const auto access = beta == 0.0 ? Call::Access::write : Call::Access::read_write;
  std::vector<Product> products;
  for (const Operands &one : batch) {
    const auto name = [&](const char *operand) { return numbered(operand, products.size(), batch.size()); };
    if (alpha != 0.0) {
      call.matrix(name("A").c_str(), types.a, one.a, a_rows, is_transposed(transa) ? m : k, lda,
                  Call::Access::read);
      call.matrix(name("B").c_str(), types.b, one.b, b_rows, is_transposed(transb) ? k : n, ldb,
                  Call::Access::read);
    }
    call.matrix(name("C").c_str(), types.c, one.c, m, n, ldc, access);
    products.push_back({m,
                        n,
                        k,
                        factor(types.a, one.a, lda, transa),
                        factor(types.b, one.b, ldb, transb),
                        types.c,
                        one.c,
                        ldc,
                        {}});
  }
  call.begin();
  multiply(products, alpha, beta, call.threads());
}

/// The pointers of a batch, which are in device memory.
std::vector<Operands> gather(Call &call, const void *const *a, const void *const *b, void *const *c,
                             int count) {
  require_value(count >= 0, "the number of products is negative");
  // A pointer is as large as a double.
  for (const auto &[name, pointers] :
       {std::pair{"the array of A", a}, {"the array of B", b}, {"the array of C", c}})
    call.matrix(name, CUDA_R_64F, pointers, count, 1, count, Call::Access::read);
  std::vector<Operands> batch;
  for (int i = 0; i < count; ++i)
    batch.push_back({a[i], b[i], c[i]});
  return batch;
}

/// Matrices that are a stride of elements apart.
struct Strided {
  const void *a, *b;
  void *c;
  long long a_stride, b_stride, c_stride;
};

std::vector<Operands> gather(const Strided &strided, const Types &types, int count) {
  require_value(count >= 0, "the number of products is negative");
  const auto at = [](const void *data, cudaDataType type, long long stride, int i) {
    return static_cast<const char *>(data) + i * stride * std::int64_t(bytes_of(type));
  };
  std::vector<Operands> batch;
  for (int i = 0; i < count; ++i)
    batch.push_back({at(strided.a, types.a, strided.a_stride, i), at(strided.b, types.b, strided.b_stride, i),
                     const_cast<char *>(at(strided.c, types.c, strided.c_stride, i))});
  return batch;
}

/// The types of a product by those of its operands and of the computation. Throws Refusal for those that
/// cuBLAS does not combine.
Types types_of(cudaDataType a, cudaDataType b, cudaDataType c, cublasComputeType_t compute) {
  const bool is_float = compute == CUBLAS_COMPUTE_32F || compute == CUBLAS_COMPUTE_32F_PEDANTIC ||
                        compute == CUBLAS_COMPUTE_32F_FAST_16F || compute == CUBLAS_COMPUTE_32F_FAST_16BF ||
                        compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  const bool is_half = compute == CUBLAS_COMPUTE_16F || compute == CUBLAS_COMPUTE_16F_PEDANTIC;
  const bool is_double = compute == CUBLAS_COMPUTE_64F || compute == CUBLAS_COMPUTE_64F_PEDANTIC;
  const bool is_integer = compute == CUBLAS_COMPUTE_32I || compute == CUBLAS_COMPUTE_32I_PEDANTIC;
  const auto all = [&](cudaDataType type) { return a == type && b == type && c == type; };
  const auto factors = [&](cudaDataType type) { return a == type && b == type; };
  if (is_half && all(CUDA_R_16F))
    return same(CUDA_R_16F);
  if (is_integer && factors(CUDA_R_8I) && c == CUDA_R_32I)
    return {a, b, c, CUDA_R_32I};
  if (is_double && (all(CUDA_R_64F) || all(CUDA_C_64F)))
    return same(c);
  if (is_float) {
    const bool is_narrow = factors(CUDA_R_16F) || factors(CUDA_R_16BF);
    if (all(CUDA_R_32F) || (is_narrow && (c == a || c == CUDA_R_32F)) ||
        (factors(CUDA_R_8I) && c == CUDA_R_32F))
      return {a, b, c, CUDA_R_32F};
    if (all(CUDA_C_32F))
      return same(CUDA_C_32F);
  }
  throw Refusal(CUBLAS_STATUS_NOT_SUPPORTED, "this combination of types does not exist: A " +
                                                 std::to_string(a) + ", B " + std::to_string(b) + ", C " +
                                                 std::to_string(c) + " (cudaDataType), computed in " +
                                                 std::to_string(compute) + " (cublasComputeType_t)");
}

} // namespace

#define LADDER_GEMM(name, shown, T, type)                                                                    \
  cublasStatus_t name(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m,      \
                      int n, int k, const T *alpha, const T *A, int lda, const T *B, int ldb, const T *beta, \
                      T *C, int ldc) {                                                                       \
    return run(shown, handle, [&](Call &call) {                                                              \
      multiply_all(call, {transa, transb, m, n, k, lda, ldb, ldc, same(type), alpha, beta}, {{A, B, C}});    \
    });                                                                                                      \
  }
#define LADDER_GEMM_BATCHES(X, T, type)                                                                      \
  cublasStatus_t cublas##X##gemmBatched(cublasHandle_t handle, cublasOperation_t transa,                     \
                                        cublasOperation_t transb, int m, int n, int k, const T *alpha,       \
                                        const T *const A[], int lda, const T *const B[], int ldb,            \
                                        const T *beta, T *const C[], int ldc, int count) {                   \
    return run("cublas" #X "gemmBatched", handle, [&](Call &call) {                                          \
      multiply_all(call, {transa, transb, m, n, k, lda, ldb, ldc, same(type), alpha, beta},                  \
                   gather(call, reinterpret_cast<const void *const *>(A),                                    \
                          reinterpret_cast<const void *const *>(B), reinterpret_cast<void *const *>(C),      \
                          count));                                                                           \
    });                                                                                                      \
  }                                                                                                          \
  cublasStatus_t cublas##X##gemmStridedBatched(                                                              \
      cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k,        \
      const T *alpha, const T *A, int lda, long long strideA, const T *B, int ldb, long long strideB,        \
      const T *beta, T *C, int ldc, long long strideC, int count) {                                          \
    return run("cublas" #X "gemmStridedBatched", handle, [&](Call &call) {                                   \
      multiply_all(call, {transa, transb, m, n, k, lda, ldb, ldc, same(type), alpha, beta},                  \
                   gather({A, B, C, strideA, strideB, strideC}, same(type), count));                         \
    });                                                                                                      \
  }
LADDER_GEMM(cublasSgemm_v2, "cublasSgemm", float, CUDA_R_32F)
LADDER_GEMM(cublasDgemm_v2, "cublasDgemm", double, CUDA_R_64F)
LADDER_GEMM(cublasCgemm_v2, "cublasCgemm", cuComplex, CUDA_C_32F)
LADDER_GEMM(cublasZgemm_v2, "cublasZgemm", cuDoubleComplex, CUDA_C_64F)
LADDER_GEMM(cublasHgemm, "cublasHgemm", __half, CUDA_R_16F)
LADDER_GEMM_BATCHES(S, float, CUDA_R_32F)
LADDER_GEMM_BATCHES(D, double, CUDA_R_64F)
LADDER_GEMM_BATCHES(C, cuComplex, CUDA_C_32F)
LADDER_GEMM_BATCHES(Z, cuDoubleComplex, CUDA_C_64F)
LADDER_GEMM_BATCHES(H, __half, CUDA_R_16F)

cublasStatus_t cublasSgemmEx(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m,
                             int n, int k, const float *alpha, const void *A, cudaDataType Atype, int lda,
                             const void *B, cudaDataType Btype, int ldb, const float *beta, void *C,
                             cudaDataType Ctype, int ldc) {
  return run("cublasSgemmEx", handle, [&](Call &call) {
    const Types types = types_of(Atype, Btype, Ctype, CUBLAS_COMPUTE_32F);
    multiply_all(call, {transa, transb, m, n, k, lda, ldb, ldc, types, alpha, beta}, {{A, B, C}});
  });
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m,
                            int n, int k, const void *alpha, const void *A, cudaDataType Atype, int lda,
                            const void *B, cudaDataType Btype, int ldb, const void *beta, void *C,
                            cudaDataType Ctype, int ldc, cublasComputeType_t computeType, cublasGemmAlgo_t) {
  return run("cublasGemmEx", handle, [&](Call &call) {
    const Types types = types_of(Atype, Btype, Ctype, computeType);
    multiply_all(call, {transa, transb, m, n, k, lda, ldb, ldc, types, alpha, beta}, {{A, B, C}});
  });
}

cublasStatus_t cublasGemmBatchedEx(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb,
                                   int m, int n, int k, const void *alpha, const void *const A[],
                                   cudaDataType Atype, int lda, const void *const B[], cudaDataType Btype,
                                   int ldb, const void *beta, void *const C[], cudaDataType Ctype, int ldc,
                                   int count, cublasComputeType_t computeType, cublasGemmAlgo_t) {
  return run("cublasGemmBatchedEx", handle, [&](Call &call) {
    const Types types = types_of(Atype, Btype, Ctype, computeType);
    multiply_all(call, {transa, transb, m, n, k, lda, ldb, ldc, types, alpha, beta},
                 gather(call, A, B, C, count));
  });
}

cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t transa,
                                          cublasOperation_t transb, int m, int n, int k, const void *alpha,
                                          const void *A, cudaDataType Atype, int lda, long long strideA,
                                          const void *B, cudaDataType Btype, int ldb, long long strideB,
                                          const void *beta, void *C, cudaDataType Ctype, int ldc,
                                          long long strideC, int count, cublasComputeType_t computeType,
                                          cublasGemmAlgo_t) {
  return run("cublasGemmStridedBatchedEx", handle, [&](Call &call) {
    const Types types = types_of(Atype, Btype, Ctype, computeType);
    multiply_all(call, {transa, transb, m, n, k, lda, ldb, ldc, types, alpha, beta},
                 gather({A, B, C, strideA, strideB, strideC}, types, count));
  });
}
