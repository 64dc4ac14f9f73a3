// Copies between host and device memory.
#pragma once

#include "runtime/work/cuda_api.h"

#include <cstddef>

namespace ladder::runtime {

/// Like cudaMemcpy. Throws CudaError for an invalid kind, and for device memory that does not exist or is too
/// small.
void copy(void *destination, const void *source, std::size_t bytes, cudaMemcpyKind kind);
/// Like cudaMemcpy3D.
void copy(const cudaMemcpy3DParms &what);
/// Fills rows of elements.
void fill(const cudaMemsetParams &what);

} // namespace ladder::runtime
