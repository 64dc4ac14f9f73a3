// NVIDIA's prototypes of the CUDA runtime, under this library's names.
//
// Every listed function is declared as ladder_<name>, so that what is defined after this include has the ABI
// of the real one and cannot be mistaken for it in a process that has loaded both.
#pragma once

#include "entry_points.h" // generated from entry_points.def

#pragma GCC visibility push(default)
#define CUDA_ENABLE_DEPRECATED
#include <cuda_runtime_api.h>

#include <cuda_profiler_api.h>

#include "runtime/registration.h"
#pragma GCC visibility pop
