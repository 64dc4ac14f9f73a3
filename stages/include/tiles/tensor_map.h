// The host's side of TMA: makes the TensorMap of a tensor, the JaggedMap of a jagged one.
#pragma once

#include <cstdint>
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

/// The map of a tensor at `address` in tiles `Tile`, whose column blocks are a dimension of their own: sizes
/// and strides are those of rows, column blocks and the outermost dimension. Throws std::invalid_argument,
/// saying what of, if TMA does not take it.
template <SharedMemoryTile Tile>
CUtensorMap encode(const void *address, const cuuint64_t (&sizes)[3], const cuuint64_t (&stride_bytes)[3],
                   const std::string &what) {
  using T = typename Tile::Elem;
  static_assert(Tile::placement == Placement::swizzled, "TMA brings swizzled tiles");
  static_assert(Tile::rows <= 256, "TMA brings at most 256 rows at a time");
  constexpr bool fp16 = std::is_same_v<T, __half>;
  constexpr auto element = fp16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  constexpr auto swizzle = Tile::row_bytes == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
                           : Tile::row_bytes == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                                                   : CU_TENSOR_MAP_SWIZZLE_32B;
  const cuuint64_t size[4] = {Tile::block_cols, sizes[0], sizes[1], sizes[2]};
  const cuuint32_t box[4] = {Tile::block_cols, Tile::rows, Tile::cols / Tile::block_cols, 1},
                   step[4] = {1, 1, 1, 1};
  CUtensorMap map;
  const CUresult result =
      tensor_map_encoder()(&map, element, 4, const_cast<void *>(address), size, stride_bytes, box, step,
                           CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                           CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS)
    throw std::invalid_argument("TMA does not take a tensor of " + what +
                                ": it wants 16-byte alignment, strides that are multiples of 16 bytes and "
                                "sizes below 2^32");
  return map;
}

} // namespace detail

/// The map of the contiguous tensor (matrices, rows, Tile::cols) at `data`, in tiles `Tile`. One request
/// brings all column blocks of a tile. Throws std::invalid_argument if the tensor is not what TMA takes.
template <SharedMemoryTile Tile> TensorMap<Tile> tensor_map(const void *data, int rows, int matrices) {
  constexpr cuuint64_t row_bytes = Tile::cols * sizeof(typename Tile::Elem);
  return {detail::encode<Tile>(data, {cuuint64_t(rows), Tile::cols / Tile::block_cols, cuuint64_t(matrices)},
                               {row_bytes, Tile::row_bytes, rows * row_bytes},
                               std::to_string(matrices) + " matrices of " + std::to_string(rows) + " rows")};
}

/// The map of the jagged tensor (tokens, heads, Tile::cols) at `data`, with `stride` elements from token to
/// token, whose sequences have at most `longest` tokens. Throws as tensor_map does.
template <SharedMemoryTile Tile>
JaggedMap<Tile> jagged_map(const void *data, int tokens, int heads, int stride, int longest) {
  const cuuint64_t stride_bytes = stride * sizeof(typename Tile::Elem);
  const cuuint64_t blocks = cuuint64_t(heads) * (Tile::cols / Tile::block_cols);
  const auto address = reinterpret_cast<std::uintptr_t>(data) - longest * stride_bytes;
  return {detail::encode<Tile>(
              reinterpret_cast<const void *>(address), {cuuint64_t(longest), blocks, cuuint64_t(tokens) + 1},
              {stride_bytes, Tile::row_bytes, stride_bytes},
              std::to_string(tokens) + " tokens " + std::to_string(stride_bytes) + " bytes apart"),
          longest};
}

} // namespace tiles::tma
