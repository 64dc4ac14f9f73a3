// In place of torch's headers for CUDA, which declare functions of libraries that torch's CPU build lacks:
// what extensions use of them, by way of the emulated runtime and of torch's generic interfaces for devices.
#pragma once

#include <c10/macros/Macros.h>

#define C10_CUDA_EXPORT C10_EXPORT
#define C10_CUDA_IMPORT C10_IMPORT
#define C10_CUDA_API C10_IMPORT
#define C10_CUDA_BUILD_SHARED_LIBS
