// Matrix-vector products, sums of matrices, symmetric products and triangular systems.
#include "libraries/cublas_call.h"
#include "libraries/matrix_product.h"

#include <algorithm>

using namespace ladder::libraries;
using Access = Call::Access;

namespace {

bool is_transposed(cublasOperation_t operation) {
  return operation == CUBLAS_OP_T || operation == CUBLAS_OP_C;
}

Factor factor(cudaDataType type, const void *data, std::int64_t ld, cublasOperation_t operation) {
  require_value(operation >= CUBLAS_OP_N && operation <= CUBLAS_OP_CONJG,
                "an operation is none of cublasOperation_t");
  return {type, data, ld, is_transposed(operation), operation == CUBLAS_OP_C || operation == CUBLAS_OP_CONJG};
}

void check_matrix(Call &call, const char *name, cudaDataType type, const void *data, std::int64_t rows,
                  std::int64_t columns, std::int64_t ld, Access access) {
  require_value(rows >= 0 && columns >= 0, "a size is negative");
  require_value(ld >= std::max<std::int64_t>(1, rows), "the leading dimension of " + std::string(name) +
                                                           " is " + std::to_string(ld) + ", and it has " +
                                                           std::to_string(rows) + " rows");
  call.matrix(name, type, data, rows, columns, ld, access);
}

void gemv(Call &call, cudaDataType type, cublasOperation_t trans, int m, int n, const void *alpha_place,
          const void *a_data, int lda, const void *x_data, int incx, const void *beta_place, void *y_data,
          int incy) {
  const Complex alpha = call.scalar("alpha", type, alpha_place), beta = call.scalar("beta", type, beta_place);
  const Factor a = factor(type, a_data, lda, trans);
  check_matrix(call, "A", type, a_data, m, n, lda, Access::read);
  const std::int64_t rows = a.is_transposed ? n : m, columns = a.is_transposed ? m : n;
  const Vector x = call.vector("x", type, x_data, columns, incx, Access::read);
  const Vector y =
      call.vector("y", type, y_data, rows, incy, beta == 0.0 ? Access::write : Access::read_write);
  call.begin();
  // Column by column, as the matrix is in memory.
  std::vector<Complex> sums(static_cast<std::size_t>(rows));
  for (std::int64_t outer = 0; outer < n && alpha != 0.0; ++outer)
    for (std::int64_t inner = 0; inner < m; ++inner) {
      const std::int64_t row = a.is_transposed ? outer : inner, column = a.is_transposed ? inner : outer;
      if (is_complex(type))
        sums[std::size_t(row)] += a.at(row, column) * x.get(column);
      else
        sums[std::size_t(row)] += a.at(row, column).real() * x.get(column).real();
    }
  for (std::int64_t i = 0; i < rows; ++i) {
    const Complex old = beta == 0.0 ? 0.0 : y.get(i);
    y.set(i, is_complex(type) ? alpha * sums[std::size_t(i)] + beta * old
                              : alpha.real() * sums[std::size_t(i)].real() + beta.real() * old.real());
  }
}

void ger(Call &call, cudaDataType type, int m, int n, const void *alpha_place, const void *x_data, int incx,
         const void *y_data, int incy, void *a, int lda) {
  const double alpha = call.scalar("alpha", type, alpha_place).real();
  const Vector x = call.vector("x", type, x_data, m, incx, Access::read);
  const Vector y = call.vector("y", type, y_data, n, incy, Access::read);
  check_matrix(call, "A", type, a, m, n, lda, Access::read_write);
  call.begin();
  for (std::int64_t column = 0; column < n; ++column)
    for (std::int64_t row = 0; row < m; ++row) {
      const std::int64_t at = row + column * lda;
      store(type, a, at, alpha * x.get(row).real() * y.get(column).real() + load(type, a, at).real());
    }
}

/// C = alpha op(A) + beta op(B); C may be A or B where that is not transposed.
void geam(Call &call, cudaDataType type, cublasOperation_t transa, cublasOperation_t transb, int m, int n,
          const void *alpha_place, const void *a_data, int lda, const void *beta_place, const void *b_data,
          int ldb, void *c, int ldc) {
  const Complex alpha = call.scalar("alpha", type, alpha_place), beta = call.scalar("beta", type, beta_place);
  const Factor a = factor(type, a_data, lda, transa), b = factor(type, b_data, ldb, transb);
  const auto check = [&](const char *name, const Factor &one) {
    check_matrix(call, name, type, one.data, one.is_transposed ? n : m, one.is_transposed ? m : n, one.ld,
                 Access::read);
  };
  if (alpha != 0.0)
    check("A", a);
  if (beta != 0.0)
    check("B", b);
  check_matrix(call, "C", type, c, m, n, ldc, Access::write);
  require_value((c != a_data || (!a.is_transposed && lda == ldc)) &&
                    (c != b_data || (!b.is_transposed && ldb == ldc)),
                "C may be A or B only with the same leading dimension and not transposed");
  call.begin();
  for (std::int64_t column = 0; column < n; ++column)
    for (std::int64_t row = 0; row < m; ++row) {
      const Complex left = alpha == 0.0 ? 0.0 : a.at(row, column);
      const Complex right = beta == 0.0 ? 0.0 : b.at(row, column);
      store(type, c, row + column * ldc,
            is_complex(type) ? alpha * left + beta * right
                             : alpha.real() * left.real() + beta.real() * right.real());
    }
}

void dgmm(Call &call, cudaDataType type, cublasSideMode_t side, int m, int n, const void *a, int lda,
          const void *x_data, int incx, void *c, int ldc) {
  check_matrix(call, "A", type, a, m, n, lda, Access::read);
  const Vector x = call.vector("x", type, x_data, side == CUBLAS_SIDE_LEFT ? m : n, incx, Access::read);
  check_matrix(call, "C", type, c, m, n, ldc, Access::write);
  call.begin();
  for (std::int64_t column = 0; column < n; ++column)
    for (std::int64_t row = 0; row < m; ++row) {
      const Complex left = load(type, a, row + column * lda);
      const Complex right = x.get(side == CUBLAS_SIDE_LEFT ? row : column);
      store(type, c, row + column * ldc, is_complex(type) ? left * right : left.real() * right.real());
    }
}

bool is_stored(cublasFillMode_t uplo, std::int64_t row, std::int64_t column) {
  return uplo == CUBLAS_FILL_MODE_LOWER ? row >= column : row <= column;
}

void symm(Call &call, cudaDataType type, cublasSideMode_t side, cublasFillMode_t uplo, int m, int n,
          const void *alpha_place, const void *a, int lda, const void *b, int ldb, const void *beta_place,
          void *c, int ldc) {
  const Complex alpha = call.scalar("alpha", type, alpha_place), beta = call.scalar("beta", type, beta_place);
  const std::int64_t size = side == CUBLAS_SIDE_LEFT ? m : n;
  check_matrix(call, "A", type, a, size, size, lda, Access::read);
  check_matrix(call, "B", type, b, m, n, ldb, Access::read);
  check_matrix(call, "C", type, c, m, n, ldc, beta == 0.0 ? Access::write : Access::read_write);
  call.begin();
  // Both triangles.
  const auto bytes = bytes_of(type);
  std::vector<char> whole(std::size_t(size * size) * bytes);
  for (std::int64_t column = 0; column < size; ++column)
    for (std::int64_t row = 0; row < size; ++row) {
      const bool here = is_stored(uplo, row, column);
      store(type, whole.data(), row + column * size,
            load(type, a, here ? row + column * lda : column + row * lda));
    }
  const Factor symmetric{type, whole.data(), size}, other{type, b, ldb};
  const bool is_left = side == CUBLAS_SIDE_LEFT;
  multiply({{m, n, size, is_left ? symmetric : other, is_left ? other : symmetric, type, c, ldc, {}}}, alpha,
           beta, call.threads());
}

void syrk(Call &call, cudaDataType type, cublasFillMode_t uplo, cublasOperation_t trans, int n, int k,
          const void *alpha_place, const void *a, int lda, const void *beta_place, void *c, int ldc) {
  const Complex alpha = call.scalar("alpha", type, alpha_place), beta = call.scalar("beta", type, beta_place);
  Factor left = factor(type, a, lda, trans);
  require_value(!is_complex(type) || trans != CUBLAS_OP_C, "syrk has no conjugate transpose; herk has");
  left.is_conjugated = false;
  Factor right = left;
  right.is_transposed = !left.is_transposed;
  check_matrix(call, "A", type, a, left.is_transposed ? k : n, left.is_transposed ? n : k, lda, Access::read);
  check_matrix(call, "C", type, c, n, n, ldc, beta == 0.0 ? Access::write : Access::read_write);
  call.begin();
  const auto includes = [uplo](std::int64_t row, std::int64_t column) {
    return is_stored(uplo, row, column);
  };
  multiply({{n, n, k, left, right, type, c, ldc, includes}}, alpha, beta, call.threads());
}

/// op(A) X = alpha B, or X op(A) = alpha B; X replaces B.
void trsm(Call &call, cudaDataType type, cublasSideMode_t side, cublasFillMode_t uplo,
          cublasOperation_t trans, cublasDiagType_t diag, int m, int n, const void *alpha_place,
          const void *a_data, int lda, void *b, int ldb) {
  const Complex alpha = call.scalar("alpha", type, alpha_place);
  const bool is_left = side == CUBLAS_SIDE_LEFT;
  const std::int64_t size = is_left ? m : n, systems = is_left ? n : m;
  const Factor a = factor(type, a_data, lda, trans);
  check_matrix(call, "A", type, a_data, size, size, lda, Access::read);
  check_matrix(call, "B", type, b, m, n, ldb, Access::read_write);
  call.begin();
  // The matrix of the systems: op(A), or its transpose where X is on the left.
  const auto at = [&](std::int64_t row, std::int64_t column) {
    return is_left ? a.at(row, column) : a.at(column, row);
  };
  const bool is_lower = (uplo == CUBLAS_FILL_MODE_LOWER) != (a.is_transposed != !is_left);
  std::vector<Complex> x(static_cast<std::size_t>(size));
  for (std::int64_t system = 0; system < systems; ++system) {
    const auto place = [&](std::int64_t i) { return is_left ? i + system * ldb : system + i * ldb; };
    for (std::int64_t step = 0; step < size; ++step) {
      const std::int64_t i = is_lower ? step : size - 1 - step;
      Complex value = alpha * load(type, b, place(i));
      for (std::int64_t j = is_lower ? 0 : i + 1; j < (is_lower ? i : size); ++j)
        value -= at(i, j) * x[std::size_t(j)];
      x[std::size_t(i)] = diag == CUBLAS_DIAG_UNIT ? value : value / at(i, i);
    }
    for (std::int64_t i = 0; i < size; ++i)
      store(type, b, place(i), x[std::size_t(i)]);
  }
}

} // namespace

#define LADDER_ALL_TYPES(X, T, type)                                                                         \
  cublasStatus_t cublas##X##gemv_v2(cublasHandle_t handle, cublasOperation_t trans, int m, int n,            \
                                    const T *alpha, const T *A, int lda, const T *x, int incx,               \
                                    const T *beta, T *y, int incy) {                                         \
    return run("cublas" #X "gemv", handle,                                                                   \
               [&](Call &call) { gemv(call, type, trans, m, n, alpha, A, lda, x, incx, beta, y, incy); });   \
  }                                                                                                          \
  cublasStatus_t cublas##X##geam(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb,  \
                                 int m, int n, const T *alpha, const T *A, int lda, const T *beta,           \
                                 const T *B, int ldb, T *C, int ldc) {                                       \
    return run("cublas" #X "geam", handle, [&](Call &call) {                                                 \
      geam(call, type, transa, transb, m, n, alpha, A, lda, beta, B, ldb, C, ldc);                           \
    });                                                                                                      \
  }                                                                                                          \
  cublasStatus_t cublas##X##dgmm(cublasHandle_t handle, cublasSideMode_t side, int m, int n, const T *A,     \
                                 int lda, const T *x, int incx, T *C, int ldc) {                             \
    return run("cublas" #X "dgmm", handle,                                                                   \
               [&](Call &call) { dgmm(call, type, side, m, n, A, lda, x, incx, C, ldc); });                  \
  }                                                                                                          \
  cublasStatus_t cublas##X##symm_v2(cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo,     \
                                    int m, int n, const T *alpha, const T *A, int lda, const T *B, int ldb,  \
                                    const T *beta, T *C, int ldc) {                                          \
    return run("cublas" #X "symm", handle, [&](Call &call) {                                                 \
      symm(call, type, side, uplo, m, n, alpha, A, lda, B, ldb, beta, C, ldc);                               \
    });                                                                                                      \
  }                                                                                                          \
  cublasStatus_t cublas##X##syrk_v2(cublasHandle_t handle, cublasFillMode_t uplo, cublasOperation_t trans,   \
                                    int n, int k, const T *alpha, const T *A, int lda, const T *beta, T *C,  \
                                    int ldc) {                                                               \
    return run("cublas" #X "syrk", handle,                                                                   \
               [&](Call &call) { syrk(call, type, uplo, trans, n, k, alpha, A, lda, beta, C, ldc); });       \
  }                                                                                                          \
  cublasStatus_t cublas##X##trsm_v2(cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo,     \
                                    cublasOperation_t trans, cublasDiagType_t diag, int m, int n,            \
                                    const T *alpha, const T *A, int lda, T *B, int ldb) {                    \
    return run("cublas" #X "trsm", handle,                                                                   \
               [&](Call &call) { trsm(call, type, side, uplo, trans, diag, m, n, alpha, A, lda, B, ldb); }); \
  }
LADDER_ALL_TYPES(S, float, CUDA_R_32F)
LADDER_ALL_TYPES(D, double, CUDA_R_64F)
LADDER_ALL_TYPES(C, cuComplex, CUDA_C_32F)
LADDER_ALL_TYPES(Z, cuDoubleComplex, CUDA_C_64F)

cublasStatus_t cublasSger_v2(cublasHandle_t handle, int m, int n, const float *alpha, const float *x,
                             int incx, const float *y, int incy, float *A, int lda) {
  return run("cublasSger", handle,
             [&](Call &call) { ger(call, CUDA_R_32F, m, n, alpha, x, incx, y, incy, A, lda); });
}

cublasStatus_t cublasDger_v2(cublasHandle_t handle, int m, int n, const double *alpha, const double *x,
                             int incx, const double *y, int incy, double *A, int lda) {
  return run("cublasDger", handle,
             [&](Call &call) { ger(call, CUDA_R_64F, m, n, alpha, x, incx, y, incy, A, lda); });
}
