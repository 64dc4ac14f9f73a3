// CUDA arrays: images of one to three dimensions, or layers of them. Here they are plain rows.
#pragma once

#include "machine/textures.h"
#include "runtime/work/cuda_api.h"

#include <cstddef>

namespace ladder::runtime {

struct Array {
  cudaChannelFormatDesc format;
  cudaExtent extent; ///< as given; 0 for dimensions that it lacks
  unsigned flags;
  machine::Image image;

  /// Rows per slice, and slices or layers.
  std::size_t rows() const { return image.size[1]; }
  std::size_t slices() const { return image.layers ? image.layers : image.size[2]; }
};

/// Throws CudaError for a format, a size or flags that are invalid or not emulated.
cudaArray_t make_array(const cudaChannelFormatDesc &format, cudaExtent extent, unsigned flags);
/// Throws CudaError(cudaErrorInvalidResourceHandle) for what is no array.
const Array &find_array(cudaArray_const_t handle);
void free_array(cudaArray_t handle);

/// The image's channels. Throws CudaError(cudaErrorInvalidChannelDescriptor).
machine::Image image_of(const cudaChannelFormatDesc &format);

} // namespace ladder::runtime
