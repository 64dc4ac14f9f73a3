// Wraps every CUDA entry point: exceptions become error codes, and a broken device fails.
#pragma once

#include "runtime/work/cuda_api.h"
#include "runtime/work/device.h"
#include "sanitizer/findings.h"

#include <functional>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace ladder::runtime {

/// An error that a call returns, with a message for the user if the code alone does not explain it.
class CudaError : public std::runtime_error {
public:
  explicit CudaError(cudaError_t code, const std::string &message = {},
                     sanitizer::Kind kind = sanitizer::Kind::other, std::uint64_t bytes = 0)
      : std::runtime_error(message), code(code), kind(kind), bytes(bytes) {}
  cudaError_t code;
  sanitizer::Kind kind; ///< the sanitizer's kind of finding
  std::uint64_t bytes;  ///< that the call requested; 0: unknown
};

/// Throws CudaError(code) unless `holds`.
inline void require(bool holds, cudaError_t code = cudaErrorInvalidValue, const char *message = "",
                    sanitizer::Kind kind = sanitizer::Kind::other) {
  if (!holds)
    throw CudaError(code, message, kind);
}

/// Returns a value through a pointer. Throws CudaError(cudaErrorInvalidValue) if it is null.
template <typename T> void set(T *result, const std::type_identity_t<T> &value) {
  require(result);
  *result = value;
}

/// CUDA's error code for a fault.
cudaError_t error_of(const machine::Fault &fault);
cudaError_t error_of(const LaunchRefusal &refusal);

/// Records an error of this host thread for cudaGetLastError, and returns it.
cudaError_t record(cudaError_t code);

namespace detail {
cudaError_t run(bool needs_device, const char *call, const std::function<void()> &body);
}

/// Runs the body of an entry point that uses the device: fails at once if a fault has broken it. `call` is
/// the function that calls this.
template <typename Body> cudaError_t on_device(Body &&body, const char *call = __builtin_FUNCTION()) {
  return detail::run(true, call, body);
}

/// Runs the body of an entry point that only queries.
template <typename Body> cudaError_t query(Body &&body, const char *call = __builtin_FUNCTION()) {
  return detail::run(false, call, body);
}

} // namespace ladder::runtime
