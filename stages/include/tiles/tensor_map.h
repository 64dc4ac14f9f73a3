// The host's side of TMA: makes the TensorMap of a tensor.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdexcept>
#include <string>

#include "tma.h"

namespace tiles::tma {

namespace detail {

/// The driver's encoder, looked up at run time so that nothing links to the driver. Throws std::runtime_error
/// if the driver has none.
inline auto tensor_map_encoder() {
  static const auto encoder = [] {
    void *function = nullptr;
    cudaDriverEntryPointQueryResult found{};
    const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                                               cudaEnableDefault, &found);
    if (error != cudaSuccess || found != cudaDriverEntryPointSuccess)
      throw std::runtime_error("TMA needs a driver of CUDA 12.0 or later, which has cuTensorMapEncodeTiled");
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);
  }();
  return encoder;
}

} // namespace detail

/// The map of the contiguous tensor (matrices, rows, Tile::cols) at `data`, in tiles `Tile`. Column blocks
/// are a dimension of their own, so that one request brings all of a tile's. Throws std::invalid_argument if
/// the tensor is not what TMA takes.
template <SharedMemoryTile Tile> TensorMap<Tile> tensor_map(const void *data, int rows, int matrices) {
  using T = typename Tile::Elem;
  static_assert(Tile::placement == Placement::swizzled, "TMA brings swizzled tiles");
  static_assert(Tile::rows <= 256, "TMA brings at most 256 rows at a time");
  constexpr bool fp16 = std::is_same_v<T, __half>;
  constexpr auto element = fp16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  constexpr auto swizzle = Tile::row_bytes == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
                           : Tile::row_bytes == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                                                   : CU_TENSOR_MAP_SWIZZLE_32B;
  constexpr cuuint32_t blocks = Tile::cols / Tile::block_cols;
  const cuuint64_t size[4] = {Tile::block_cols, cuuint64_t(rows), blocks, cuuint64_t(matrices)};
  const cuuint64_t stride_bytes[3] = {Tile::cols * sizeof(T), Tile::row_bytes,
                                      cuuint64_t(rows) * Tile::cols * sizeof(T)};
  const cuuint32_t box[4] = {Tile::block_cols, Tile::rows, blocks, 1}, step[4] = {1, 1, 1, 1};
  TensorMap<Tile> map;
  const CUresult result =
      detail::tensor_map_encoder()(&map.descriptor, element, 4, const_cast<void *>(data), size, stride_bytes,
                                   box, step, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
                                   CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS)
    throw std::invalid_argument("TMA does not take a tensor of " + std::to_string(matrices) +
                                " matrices of " + std::to_string(rows) +
                                " rows: it wants 16-byte alignment and sizes below 2^32");
  return map;
}

} // namespace tiles::tma
