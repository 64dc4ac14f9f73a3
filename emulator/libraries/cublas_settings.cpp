// The settings of a handle, the names of statuses, and copies between host and device.
#include "libraries/cublas_call.h"
#include "runtime/work/entry.h"

using namespace ladder::libraries;
using ladder::runtime::set;

cublasStatus_t cublasGetVersion_v2(cublasHandle_t, int *version) {
  if (!version)
    return CUBLAS_STATUS_INVALID_VALUE;
  *version = CUBLAS_VERSION;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetProperty(libraryPropertyType type, int *value) {
  if (!value || unsigned(type) > PATCH_LEVEL)
    return CUBLAS_STATUS_INVALID_VALUE;
  constexpr int kVersion[] = {CUBLAS_VER_MAJOR, CUBLAS_VER_MINOR, CUBLAS_VER_PATCH};
  *value = kVersion[type];
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  return configure("cublasSetStream", handle, [&](cublasContext &context) { context.stream = stream; });
}

cublasStatus_t cublasGetStream_v2(cublasHandle_t handle, cudaStream_t *stream) {
  return configure("cublasGetStream", handle, [&](cublasContext &context) { set(stream, context.stream); });
}

cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void *, size_t) {
  return configure("cublasSetWorkspace", handle, [](cublasContext &) {});
}

cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t mode) {
  return configure("cublasSetPointerMode", handle, [&](cublasContext &context) {
    require_value(unsigned(mode) <= CUBLAS_POINTER_MODE_DEVICE, "there is no such mode");
    context.pointer_mode = mode;
  });
}

cublasStatus_t cublasGetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t *mode) {
  return configure("cublasGetPointerMode", handle,
                   [&](cublasContext &context) { set(mode, context.pointer_mode); });
}

cublasStatus_t cublasSetAtomicsMode(cublasHandle_t handle, cublasAtomicsMode_t mode) {
  return configure("cublasSetAtomicsMode", handle, [&](cublasContext &context) { context.atomics = mode; });
}

cublasStatus_t cublasGetAtomicsMode(cublasHandle_t handle, cublasAtomicsMode_t *mode) {
  return configure("cublasGetAtomicsMode", handle,
                   [&](cublasContext &context) { set(mode, context.atomics); });
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
  return configure("cublasSetMathMode", handle, [&](cublasContext &context) { context.math = mode; });
}

cublasStatus_t cublasGetMathMode(cublasHandle_t handle, cublasMath_t *mode) {
  return configure("cublasGetMathMode", handle, [&](cublasContext &context) { set(mode, context.math); });
}

const char *cublasGetStatusName(cublasStatus_t status) {
  switch (status) {
#define LADDER_STATUS(name, text)                                                                            \
  case name:                                                                                                 \
    return #name;
#include "libraries/cublas_statuses.def"
  }
  return "CUBLAS_STATUS_UNKNOWN";
}

const char *cublasGetStatusString(cublasStatus_t status) {
  switch (status) {
#define LADDER_STATUS(name, text)                                                                            \
  case name:                                                                                                 \
    return text;
#include "libraries/cublas_statuses.def"
  }
  return "unknown status";
}

namespace {

/// Copies vectors whose elements are apart, as a matrix of one row per element.
cublasStatus_t copy_vector(int n, int size, const void *x, int incx, void *y, int incy, cudaMemcpyKind kind,
                           cudaStream_t stream, bool waits) {
  if (n < 0 || size <= 0 || incx <= 0 || incy <= 0)
    return CUBLAS_STATUS_INVALID_VALUE;
  const auto bytes = std::size_t(size), from = std::size_t(incx) * bytes, to = std::size_t(incy) * bytes;
  const cudaError_t error = waits ? cudaMemcpy2D(y, to, x, from, bytes, std::size_t(n), kind)
                                  : cudaMemcpy2DAsync(y, to, x, from, bytes, std::size_t(n), kind, stream);
  return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_MAPPING_ERROR;
}

cublasStatus_t copy_matrix(int rows, int cols, int size, const void *A, int lda, void *B, int ldb,
                           cudaMemcpyKind kind, cudaStream_t stream, bool waits) {
  if (rows < 0 || cols < 0 || size <= 0 || lda < rows || ldb < rows || lda <= 0 || ldb <= 0)
    return CUBLAS_STATUS_INVALID_VALUE;
  const auto bytes = std::size_t(size), from = std::size_t(lda) * bytes, to = std::size_t(ldb) * bytes;
  const std::size_t width = std::size_t(rows) * bytes, height = std::size_t(cols);
  const cudaError_t error = waits ? cudaMemcpy2D(B, to, A, from, width, height, kind)
                                  : cudaMemcpy2DAsync(B, to, A, from, width, height, kind, stream);
  return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_MAPPING_ERROR;
}

} // namespace

#define LADDER_COPIES(Direction, kind)                                                                       \
  cublasStatus_t cublas##Direction##Vector(int n, int size, const void *x, int incx, void *y, int incy) {    \
    return copy_vector(n, size, x, incx, y, incy, kind, nullptr, true);                                      \
  }                                                                                                          \
  cublasStatus_t cublas##Direction##VectorAsync(int n, int size, const void *x, int incx, void *y, int incy, \
                                                cudaStream_t stream) {                                       \
    return copy_vector(n, size, x, incx, y, incy, kind, stream, false);                                      \
  }                                                                                                          \
  cublasStatus_t cublas##Direction##Matrix(int rows, int cols, int size, const void *A, int lda, void *B,    \
                                           int ldb) {                                                        \
    return copy_matrix(rows, cols, size, A, lda, B, ldb, kind, nullptr, true);                               \
  }                                                                                                          \
  cublasStatus_t cublas##Direction##MatrixAsync(int rows, int cols, int size, const void *A, int lda,        \
                                                void *B, int ldb, cudaStream_t stream) {                     \
    return copy_matrix(rows, cols, size, A, lda, B, ldb, kind, stream, false);                               \
  }
LADDER_COPIES(Set, cudaMemcpyHostToDevice)
LADDER_COPIES(Get, cudaMemcpyDeviceToHost)
