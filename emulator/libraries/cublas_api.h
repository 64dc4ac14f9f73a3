// NVIDIA's prototypes of cuBLAS, under this library's names; see runtime/work/cuda_api.h.
#pragma once

#include "runtime/work/cuda_api.h"

#pragma GCC visibility push(default)
#include <cublas_v2.h>
#pragma GCC visibility pop
