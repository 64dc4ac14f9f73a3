// NVIDIA's prototypes of the CUDA runtime, under this library's names.
//
// Declares every listed function as ladder_<name>, so that definitions after this include have the real ABI
// but cannot collide with the real function in a process that loads both.
#pragma once

#include "entry_points.h" // generated from entry_points.def

#pragma GCC visibility push(default)
#define CUDA_ENABLE_DEPRECATED
#include <cuda_runtime_api.h>

#include <cuda_profiler_api.h>

#include "runtime/work/registration.h"
#pragma GCC visibility pop
