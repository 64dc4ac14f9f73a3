// cudaGetLastError, names of errors, and the conversion of exceptions to errors.

#include "program/program.h"
#include "ptx/ast.h"
#include "runtime/observe/checking.h"
#include "runtime/observe/host_guard.h"
#include "runtime/observe/launch_log.h"
#include "runtime/work/entry.h"
#include "runtime/work/error_names.h"
#include "runtime/work/fat_binary.h"

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <string_view>

namespace ladder::runtime {

namespace {

thread_local cudaError_t last_error = cudaSuccess;

/// A call that failed.
struct FailedCall {
  cudaError_t code = cudaSuccess;
  std::string name;
  std::uint64_t bytes = 0; ///< that it requested; 0: unknown
};
/// The first failed call since the program last checked for errors: later faults may be its consequence.
thread_local FailedCall failed_call;

void note_failure(const char *call, cudaError_t code, std::uint64_t bytes) {
  constexpr std::string_view kPrefix = "ladder_"; // see cuda_api.h
  if (failed_call.code != cudaSuccess || code == cudaSuccess || code == cudaErrorNotReady)
    return;
  std::string_view name = call;
  if (name.starts_with(kPrefix))
    name.remove_prefix(kPrefix.size());
  failed_call = {code, std::string(name), bytes};
}

std::optional<cudaError_t> device_error() {
  const auto fault = Device::instance().broken();
  return fault ? std::optional(error_of(*fault)) : std::nullopt;
}

void complain(const std::string &message) {
  try {
    Device::instance().complain(message);
  } catch (const std::exception &error) {
    // Without valid settings there is no device. A program that does not check for errors would continue with
    // garbage.
    std::fprintf(stderr, "ladder: %s\n", error.what());
    std::exit(2);
  }
}

/// Records, for last_fault(), a refusal by a layer that has no kernel.
void refuse(machine::FaultKind kind, const std::string &message, int ptx_line = 0) {
  machine::Fault fault;
  fault.kind = kind;
  fault.message = message;
  fault.ptx_line = ptx_line;
  Device::instance().report(fault);
}

} // namespace

cudaError_t error_of(const machine::Fault &fault) {
  constexpr cudaError_t kErrors[] = {
#define FAULT(kind, name, error) error,
#include "machine/fault_kinds.def"
  };
  return kErrors[std::size_t(fault.kind)];
}

cudaError_t error_of(const LaunchRefusal &refusal) {
  switch (refusal.reason) {
  case LaunchRefusal::Reason::threads:
  case LaunchRefusal::Reason::shared_memory:
    return cudaErrorInvalidValue;
  case LaunchRefusal::Reason::cooperative_grid:
    return cudaErrorCooperativeLaunchTooLarge;
  case LaunchRefusal::Reason::cluster:
    return Device::instance().gpu().major < 9 ? cudaErrorNotSupported : cudaErrorInvalidClusterSize;
  }
  return cudaErrorUnknown;
}

void forget_last_error() {
  last_error = cudaSuccess;
  failed_call = {};
}

std::string after_failed_call() {
  if (failed_call.code == cudaSuccess)
    return {};
  return ", after " + failed_call.name +
         (failed_call.bytes ? " of " + std::to_string(failed_call.bytes) + " bytes" : "") + " returned " +
         error_name(failed_call.code) + " and the program went on";
}

cudaError_t record(cudaError_t code) {
  if (code != cudaSuccess && code != cudaErrorNotReady)
    last_error = code;
  return code;
}

namespace {

/// Runs the body; returns its exception as an error. Sets `bytes` to the size that a failed call requested.
cudaError_t code_of(bool needs_device, const std::function<void()> &body, std::uint64_t &bytes) {
  try {
    if (needs_device)
      if (const auto error = device_error())
        return *error;
    const OpenDeviceMemory open;
    body();
    return cudaSuccess;
  } catch (const CudaError &error) {
    bytes = error.bytes;
    if (*error.what()) {
      const std::string message = error.what() + after_failed_call();
      if (Checking *const checking = Checking::active())
        checking->note_call(error.kind, message);
      refuse(machine::FaultKind::launch, message);
    }
    return error.code;
  } catch (const LaunchRefusal &refusal) {
    return runtime::error_of(refusal);
  } catch (const machine::FaultError &error) {
    // Device::launch reported its own faults; those of binding come from elsewhere.
    if (error.fault.kind == machine::FaultKind::unsupported) {
      machine::Fault fault = error.fault;
      fault.kernel = demangle(fault.kernel);
      Device::instance().report(fault);
    }
    return runtime::error_of(error.fault);
  } catch (const FatBinaryError &error) {
    refuse(machine::FaultKind::launch, error.what());
    return cudaErrorNoKernelImageForDevice;
  } catch (const ptx::SyntaxError &error) {
    refuse(machine::FaultKind::launch, std::string("malformed PTX: ") + error.what(), error.line());
    return cudaErrorInvalidPtx;
  } catch (const program::LinkError &error) {
    refuse(machine::FaultKind::launch, std::string("malformed PTX: ") + error.what(), error.ptx_line());
    return cudaErrorInvalidPtx;
  } catch (const std::bad_alloc &) {
    return cudaErrorMemoryAllocation;
  } catch (const std::exception &error) {
    complain(error.what());
    return cudaErrorInitializationError;
  }
}

} // namespace

cudaError_t detail::run(bool needs_device, const char *call, const std::function<void()> &body) {
  std::uint64_t bytes = 0;
  const cudaError_t code = code_of(needs_device, body, bytes);
  note_failure(call, code, bytes);
  return record(code);
}

} // namespace ladder::runtime

using namespace ladder::runtime;

cudaError_t cudaGetLastError() {
  const cudaError_t code = cudaPeekAtLastError();
  forget_last_error();
  return code;
}

cudaError_t cudaPeekAtLastError() {
  if (Checking *const checking = Checking::active())
    checking->error_seen();
  failed_call = {};
  try {
    // Every thread sees a fault until the device is reset.
    if (const auto error = device_error())
      return *error;
  } catch (const std::exception &error) {
    complain(error.what());
    return cudaErrorInitializationError;
  }
  return last_error;
}

const char *cudaGetErrorName(cudaError_t code) { return error_name(code); }

const char *cudaGetErrorString(cudaError_t code) { return error_text(code); }
