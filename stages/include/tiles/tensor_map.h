// The host side of TMA: encodes the TensorMap or WideMap of a tensor, or the JaggedMap of a jagged tensor.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "error.h"
#include "tma.h"

namespace tiles::tma {

namespace detail {

/// The driver's encoder, looked up at run time so that nothing links to the driver. Throws Error if the
/// driver does not have it.
inline auto tensor_map_encoder() {
  static const auto encoder = [] {
    void *function = nullptr;
    cudaDriverEntryPointQueryResult found{};
    const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                                               cudaEnableDefault, &found);
    if (error != cudaSuccess || found != cudaDriverEntryPointSuccess)
      throw Error(
          tiles::detail::text("TMA needs a driver of CUDA 12.0 or later, which has cuTensorMapEncodeTiled"));
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);
  }();
  return encoder;
}

/// The map of a tensor at `address` in boxes of a tile `Tile`. `stride_bytes` are those of all dimensions but
/// the first. Throws Unsupported, naming the tensor by what(), if TMA does not support it.
template <SharedMemoryTile Tile, int rank>
CUtensorMap encode_boxes(const void *address, const cuuint64_t (&sizes)[rank],
                         const cuuint64_t (&stride_bytes)[rank - 1], const cuuint32_t (&box)[rank],
                         const auto &what) {
  using T = typename Tile::Elem;
  static_assert(Tile::placement == Placement::swizzled, "TMA: expected Placement::swizzled");
  static_assert(Tile::rows <= 256, "TMA loads at most 256 rows at a time");
  constexpr auto element = sizeof(T) == 1              ? CU_TENSOR_MAP_DATA_TYPE_UINT8
                           : std::is_same_v<T, __half> ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                                       : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  constexpr auto swizzle = Tile::row_bytes == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
                           : Tile::row_bytes == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                                                   : CU_TENSOR_MAP_SWIZZLE_32B;
  cuuint32_t step[rank];
  for (cuuint32_t &one : step)
    one = 1;
  CUtensorMap map;
  const CUresult result =
      tensor_map_encoder()(&map, element, rank, const_cast<void *>(address), sizes, stride_bytes, box, step,
                           CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                           CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS)
    throw Unsupported(tiles::detail::text(
        "TMA does not support a tensor of %s: it needs 16-byte alignment, strides that are "
        "multiples of 16 bytes and sizes below 2^32",
        what().chars));
  return map;
}

/// The map of a tensor at `address` in tiles `Tile`, whose column blocks are a dimension of their own. Sizes
/// and strides are those of rows, of column blocks and of `kOuter` dimensions in which a tile has size 1.
/// Throws as encode_boxes does.
template <SharedMemoryTile Tile, int kOuter>
CUtensorMap encode(const void *address, const cuuint64_t (&sizes)[2 + kOuter],
                   const cuuint64_t (&stride_bytes)[2 + kOuter], const auto &what) {
  constexpr int rank = 3 + kOuter;
  cuuint64_t size[rank] = {Tile::block_cols};
  cuuint32_t box[rank] = {Tile::block_cols, Tile::rows, Tile::cols / Tile::block_cols};
  for (int i = 1; i < rank; ++i) {
    size[i] = sizes[i - 1];
    box[i] = i < 3 ? box[i] : 1;
  }
  return encode_boxes<Tile>(address, size, stride_bytes, box, what);
}

} // namespace detail

/// The map of the tensor (batch, heads, rows, Tile::cols) at `data`, in tiles `Tile`. `strides` has the
/// elements from one batch, head and row to the next. One instruction loads all column blocks of a tile.
/// Throws Unsupported if TMA does not support the tensor.
template <SharedMemoryTile Tile, typename Strides>
TensorMap<Tile> tensor_map(const void *data, const Strides &strides, int rows, int heads, int batch) {
  constexpr cuuint64_t bytes = sizeof(typename Tile::Elem);
  constexpr int blocks = Tile::cols / Tile::block_cols;
  const auto what = [&] {
    return tiles::detail::text("%d x %d matrices of %d rows %lld bytes apart", batch, heads, rows,
                               static_cast<long long>(strides.row * bytes));
  };
  const auto encode = [&](cuuint64_t column_blocks, cuuint64_t matrices, int64_t stride) {
    return detail::encode<Tile, 1>(data, {cuuint64_t(rows), column_blocks, matrices},
                                   {strides.row * bytes, Tile::row_bytes, stride * bytes}, what);
  };
  if (batch == 1 || heads == 1 || strides.batch == heads * strides.head)
    return {encode(blocks, cuuint64_t(batch) * heads, heads == 1 ? strides.batch : strides.head),
            detail::Divisor(1), 0};
  if (strides.head % Tile::block_cols != 0)
    throw Unsupported(tiles::detail::text("TMA takes heads a multiple of %d elements apart, not %lld",
                                          int(Tile::block_cols), static_cast<long long>(strides.head)));
  const int head_blocks = strides.head / Tile::block_cols;
  return {encode(cuuint64_t(heads - 1) * head_blocks + blocks, batch, strides.batch), detail::Divisor(heads),
          head_blocks};
}

/// The same for a contiguous tensor (matrices, rows, Tile::cols).
template <SharedMemoryTile Tile> TensorMap<Tile> tensor_map(const void *data, int rows, int matrices) {
  struct {
    int64_t batch, head, row;
  } strides{0, int64_t(rows) * Tile::cols, Tile::cols};
  return tensor_map<Tile>(data, strides, rows, matrices, 1);
}

/// The map of the tensor (matrices, rows, cols) at `data`, with `stride` elements from row to row, and rows *
/// stride from matrix to matrix. Throws as tensor_map does.
template <SharedMemoryTile Tile>
WideMap<Tile> wide_map(const void *data, int matrices, int rows, int cols, int stride) {
  const cuuint64_t stride_bytes = stride * sizeof(typename Tile::Elem);
  return {detail::encode_boxes<Tile, 3>(
      data, {cuuint64_t(cols), cuuint64_t(rows), cuuint64_t(matrices)}, {stride_bytes, rows * stride_bytes},
      {Tile::cols, Tile::rows, 1}, [&] {
        return tiles::detail::text("%d matrices of %d rows %llu bytes apart", matrices, rows,
                                   static_cast<unsigned long long>(stride_bytes));
      })};
}

/// The map of the jagged tensor (tokens, heads, Tile::cols) at `data`, with `stride` elements from token to
/// token. Throws as tensor_map does.
template <SharedMemoryTile Tile>
JaggedMap<Tile> jagged_map(const void *data, int tokens, int heads, int stride) {
  constexpr cuuint64_t most = JaggedMap<Tile>::most_rows;
  const cuuint64_t stride_bytes = stride * sizeof(typename Tile::Elem);
  const cuuint64_t blocks = cuuint64_t(heads) * (Tile::cols / Tile::block_cols);
  // most * (the last stride) = 2^64 - most * stride_bytes: it subtracts `most` tokens modulo 2^64.
  return {detail::encode<Tile, 2>(
      data, {most, blocks, cuuint64_t(tokens) + 1, most + 1},
      {stride_bytes, Tile::row_bytes, stride_bytes, (cuuint64_t(1) << 34) - stride_bytes}, [&] {
        return tiles::detail::text("%d tokens %llu bytes apart", tokens,
                                   static_cast<unsigned long long>(stride_bytes));
      })};
}

} // namespace tiles::tma
