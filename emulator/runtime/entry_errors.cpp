// cudaGetLastError, names of errors, and the conversion of exceptions to errors.

#include "program/program.h"
#include "ptx/ast.h"
#include "runtime/checking.h"
#include "runtime/entry.h"
#include "runtime/error_names.h"
#include "runtime/fat_binary.h"
#include "runtime/host_guard.h"
#include "runtime/launch_log.h"

#include <cstdio>
#include <cstdlib>
#include <new>

namespace ladder::runtime {

namespace {

thread_local cudaError_t last_error = cudaSuccess;

std::optional<cudaError_t> device_error() {
  const auto fault = Device::instance().broken();
  return fault ? std::optional(error_of(*fault)) : std::nullopt;
}

void complain(const std::string &message) {
  try {
    Device::instance().complain(message);
  } catch (const std::exception &error) {
    // Without valid settings there is no device. A program that does not check for errors would go on with
    // garbage.
    std::fprintf(stderr, "ladder: %s\n", error.what());
    std::exit(2);
  }
}

cudaError_t error_of(LaunchRefusal::Reason reason) {
  switch (reason) {
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

/// Records a refusal by a layer that knows no kernel, where last_fault() finds it.
void refuse(machine::FaultKind kind, const std::string &message, int ptx_line = 0) {
  machine::Fault fault;
  fault.kind = kind;
  fault.message = message;
  fault.ptx_line = ptx_line;
  Device::instance().report(fault);
}

} // namespace

cudaError_t error_of(const machine::Fault &fault) {
  using machine::FaultKind;
  switch (fault.kind) {
  case FaultKind::out_of_bounds:
    return cudaErrorIllegalAddress;
  case FaultKind::misaligned:
    return cudaErrorMisalignedAddress;
  case FaultKind::read_only:
    return cudaErrorIllegalAddress;
  case FaultKind::unsupported:
    return cudaErrorNotSupported;
  case FaultKind::bad_operand:
    return cudaErrorIllegalInstruction;
  case FaultKind::barrier:
  case FaultKind::trap:
  case FaultKind::interrupted:
    return cudaErrorLaunchFailure;
  case FaultKind::deadlock:
  case FaultKind::instruction_limit:
    return cudaErrorLaunchTimeout;
  case FaultKind::assertion:
    return cudaErrorAssert;
  case FaultKind::stack_overflow:
    return cudaErrorHardwareStackError;
  case FaultKind::launch:
    return cudaErrorInvalidConfiguration;
  }
  return cudaErrorUnknown;
}

void forget_last_error() { last_error = cudaSuccess; }

cudaError_t record(cudaError_t code) {
  if (code != cudaSuccess && code != cudaErrorNotReady)
    last_error = code;
  return code;
}

cudaError_t detail::run(bool needs_device, const std::function<void()> &body) {
  try {
    if (needs_device)
      if (const auto error = device_error())
        return record(*error);
    const OpenDeviceMemory open;
    body();
    return cudaSuccess;
  } catch (const CudaError &error) {
    if (*error.what()) {
      if (Checking *const checking = Checking::active())
        checking->note_call(error.kind, error.what());
      refuse(machine::FaultKind::launch, error.what());
    }
    return record(error.code);
  } catch (const LaunchRefusal &refusal) {
    return record(error_of(refusal.reason));
  } catch (const machine::FaultError &error) {
    // Device::launch reported its own faults; those of binding come from elsewhere.
    if (error.fault.kind == machine::FaultKind::unsupported) {
      machine::Fault fault = error.fault;
      fault.kernel = demangle(fault.kernel);
      Device::instance().report(fault);
    }
    return record(error_of(error.fault));
  } catch (const FatBinaryError &error) {
    refuse(machine::FaultKind::launch, error.what());
    return record(cudaErrorNoKernelImageForDevice);
  } catch (const ptx::SyntaxError &error) {
    refuse(machine::FaultKind::launch, std::string("malformed PTX: ") + error.what(), error.line());
    return record(cudaErrorInvalidPtx);
  } catch (const program::LinkError &error) {
    refuse(machine::FaultKind::launch, std::string("malformed PTX: ") + error.what(), error.ptx_line());
    return record(cudaErrorInvalidPtx);
  } catch (const std::bad_alloc &) {
    return record(cudaErrorMemoryAllocation);
  } catch (const std::exception &error) {
    complain(error.what());
    return record(cudaErrorInitializationError);
  }
}

} // namespace ladder::runtime

using namespace ladder::runtime;

cudaError_t cudaGetLastError() {
  const cudaError_t code = cudaPeekAtLastError();
  last_error = cudaSuccess;
  return code;
}

cudaError_t cudaPeekAtLastError() {
  if (Checking *const checking = Checking::active())
    checking->error_seen();
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
