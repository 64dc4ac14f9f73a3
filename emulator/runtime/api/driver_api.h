// NVIDIA's prototypes of the CUDA driver, under this library's names; see runtime/work/cuda_api.h.
#pragma once

#include "runtime/work/entry.h"

// cuda.h names functions of streams by macros, which would replace those of entry_points.h. With this it
// names the versions for per-thread default streams, which the list has.
#define CUDA_API_PER_THREAD_DEFAULT_STREAM
#pragma GCC visibility push(default)
#include <cuda.h>

#include <cudaProfiler.h>
#pragma GCC visibility pop
#undef cuGetProcAddress_v2
#define cuGetProcAddress_v2 ladder_cuGetProcAddress_v2

namespace ladder::runtime {

/// The driver's code for an error of the runtime; most are equal.
CUresult driver_error(cudaError_t error);

/// Runs the body of a driver function; see `on_device`.
template <typename Body> CUresult on_driver(Body &&body, const char *call = __builtin_FUNCTION()) {
  return driver_error(on_device(body, call));
}

/// The address of a driver function; nullptr if the emulator lacks it.
void *find_driver_function(std::string_view name);

} // namespace ladder::runtime
