// Copies between places in memory, wherever these are.
#pragma once

#include "runtime/cuda_api.h"

#include <cstddef>

namespace ladder::runtime {

/// As cudaMemcpy. Throws CudaError: for a kind that there is not, for device memory that is not there or too
/// small.
void copy(void *destination, const void *source, std::size_t bytes, cudaMemcpyKind kind);

} // namespace ladder::runtime
