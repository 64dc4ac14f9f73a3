// A call of cuBLAS: its handle, its scalars and vectors.
#pragma once

#include "libraries/cublas_api.h"
#include "libraries/elements.h"
#include "libraries/operands.h"
#include "runtime/work/device.h"

#include <functional>
#include <string>

struct cublasContext {
  cudaStream_t stream = nullptr;
  cublasPointerMode_t pointer_mode = CUBLAS_POINTER_MODE_HOST;
  cublasAtomicsMode_t atomics = CUBLAS_ATOMICS_NOT_ALLOWED;
  cublasMath_t math = CUBLAS_DEFAULT_MATH;
};

namespace ladder::libraries {

/// Throws Refusal(CUBLAS_STATUS_INVALID_VALUE) unless `holds`.
inline void require_value(bool holds, const std::string &message) {
  if (!holds)
    throw Refusal(CUBLAS_STATUS_INVALID_VALUE, message);
}

/// A vector operand. A negative increment begins at the vector's end.
struct Vector {
  cudaDataType type;
  void *data;
  std::int64_t n, increment;

  std::int64_t index(std::int64_t i) const { return increment < 0 ? (i + 1 - n) * increment : i * increment; }
  Complex get(std::int64_t i) const { return load(type, data, index(i)); }
  void set(std::int64_t i, Complex value) const { store(type, data, index(i), value); }
};

class Call : public Operands {
public:
  Call(const char *name, const cublasContext &handle) : Operands(name), handle_(handle) {}

  Vector vector(const char *operand, cudaDataType type, const void *data, std::int64_t n,
                std::int64_t increment, Access access);
  /// Reads alpha or beta where the pointer mode says it is.
  Complex scalar(const char *operand, cudaDataType type, const void *data);
  /// Writes a result, likewise.
  void result(cudaDataType type, void *data, Complex value);
  unsigned threads() const { return runtime::Device::instance().threads(); }

private:
  void check_scalar(const char *operand, cudaDataType type, const void *data) const;

  const cublasContext &handle_;
};

/// Runs the body of a cuBLAS function as work on the handle's stream.
cublasStatus_t run(const char *name, cublasHandle_t handle, const std::function<void(Call &)> &body);

/// The same for a function that only concerns the handle.
cublasStatus_t configure(const char *name, cublasHandle_t handle,
                         const std::function<void(cublasContext &)> &body);

} // namespace ladder::libraries
