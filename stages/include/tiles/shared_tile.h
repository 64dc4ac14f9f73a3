// Shared tiles, their swizzle, shared vectors, and the allocator that places them.
//
// A tile is stored as consecutive column blocks. A block is row-major, with rows of row_bytes = 128, 64 or 32
// bytes. Within each 128-byte line, chunks are permuted by XOR with the line's number, so that accesses
// spread evenly over the 32 banks:
//
//   16-bit tiles: chunks of 16 bytes. A pass of ldmatrix or stmatrix accesses the same columns of 8 rows,
//                 which lie in 8 different chunks. In elements this is swizzle<3,3,3>, <2,3,3>, <1,3,3> for
//                 rows of 128, 64, 32 bytes: the formats of TMA and wgmma.
//   fp32 tiles:   chunks of 32 bytes in rows of 64. The rows 0-3, 4-7, 0 2 4 6 and 1 3 5 7 each cover all 32
//                 banks. Row-layout tiles access the first two sets (8 bytes per lane, 16 lanes per pass),
//                 col-layout tiles the last two.
//
// No access of this library to a swizzled tile has a bank conflict. With Placement::plain nothing is
// permuted, and many accesses conflict.
#pragma once

#include "tiles/types.h"

namespace tiles {

/// Whether the chunks of a shared tile are permuted within its 128-byte lines.
enum class Placement { swizzled, plain };

/// The element types of shared tiles.
template <typename T>
concept SharedElement = Element<T> || std::is_same_v<T, E4M3>;

template <SharedElement T, int kRows, int kCols, Placement kPlacement = Placement::swizzled>
struct SharedTile {
  static_assert(kRows > 0 && kRows % 16 == 0 && kCols > 0 && kCols % 16 == 0,
                "a shared tile's sides are multiples of 16");
  using Elem = T;
  static constexpr int rows = kRows, cols = kCols;
  static constexpr Placement placement = kPlacement;
  /// Columns of a block: as many as 128, 64 or 32 bytes hold, the largest that divides cols; 16 of fp32.
  static constexpr int wide = 128 / sizeof(T);
  static constexpr int block_cols = sizeof(T) == 4           ? 16
                                    : cols % wide == 0       ? wide
                                    : cols % (wide / 2) == 0 ? wide / 2
                                                             : wide / 4;
  static constexpr int row_bytes = block_cols * sizeof(T);
  static constexpr int block_bytes = rows * row_bytes;

  alignas(128) T data[rows * cols];

  /// XORs the number of the 128-byte line into the offset within it. Linear: swizzle(a ^ b) == swizzle(a) ^
  /// swizzle(b).
  __host__ __device__ static constexpr int swizzle(int byte) {
    if constexpr (kPlacement == Placement::plain)
      return byte;
    else if constexpr (sizeof(T) < 4)
      return byte ^ ((byte >> 7 & (row_bytes / 16 - 1)) << 4);
    else
      return byte ^ ((byte >> 7 & 3) << 5);
  }

  /// Bytes from the start of the tile to element (row, col).
  __host__ __device__ static constexpr int offset(int row, int col) {
    return col / block_cols * block_bytes + swizzle(row * row_bytes + col % block_cols * int(sizeof(T)));
  }

  /// Returns offset(row + row0, col + col0), given o = offset(row, col) with row, col < 16. row0 and col0 are
  /// multiples of 16 (row0 of 8 in fp32 tiles, and in 16-bit tiles with rows of 128 bytes). Because the
  /// swizzle is linear, that is one XOR and one addition, both with constants in unrolled loops.
  __host__ __device__ static constexpr int moved(int o, int row0, int col0) {
    return (o ^ col0 % block_cols * int(sizeof(T))) + row0 * row_bytes + col0 / block_cols * block_bytes;
  }

  /// The address at offset moved(o, row0, col0).
  __device__ char *place(int o, int row0, int col0) {
    return reinterpret_cast<char *>(data) + moved(o, row0, col0);
  }
  __device__ const char *place(int o, int row0, int col0) const {
    return const_cast<SharedTile *>(this)->place(o, row0, col0);
  }

  __device__ T *at(int row, int col) { return reinterpret_cast<T *>(place(offset(row, col), 0, 0)); }
  __device__ const T *at(int row, int col) const { return const_cast<SharedTile *>(this)->at(row, col); }
};

/// kRows x kCols of a shared tile S, which may be const, from (row, col) on: an operand of a product, or a
/// warp's part of a tile. Made by part<kRows, kCols>(tile, row, col).
template <typename S, int kRows, int kCols> struct SharedPart {
  using Elem = typename S::Elem;
  static constexpr int rows = kRows, cols = kCols;
  static_assert(kRows % 16 == 0 && kCols % 16 == 0 && kRows <= S::rows && kCols <= S::cols,
                "a part's sides are multiples of 16, at most those of its tile");
  static_assert(Element16<Elem>, "expected a part of a 16-bit tile: fp32 tiles have none");
  static_assert(kCols % S::block_cols == 0 || S::block_cols % kCols == 0,
                "a part's columns are whole column blocks of its tile, or divide one (shared_tile.h)");

  S &tile;
  int row, col; ///< multiples of 16; col a multiple of cols, or of S::block_cols if less

  __host__ __device__ static constexpr int offset(int row, int col) { return S::offset(row, col); }
  __device__ auto *place(int o, int row0, int col0) const {
    return tile.place(S::moved(o, row, col), row0, col0);
  }
};

template <int kRows, int kCols, typename S> __device__ inline auto part(S &tile, int row, int col = 0) {
  return SharedPart<S, kRows, kCols>{tile, row, col};
}

template <Element T, int kLength> struct SharedVec {
  static_assert(kLength > 0 && kLength % 16 == 0, "a shared vector's length is a multiple of 16");
  using Elem = T;
  static constexpr int length = kLength;
  alignas(16) T data[length];
};

/// Allocates objects in a block's dynamic shared memory, one after the other, each aligned to 128 bytes from
/// the start.
class SharedAllocator {
public:
  __device__ explicit SharedAllocator(unsigned char *smem) : next_(smem) {}

  /// The bytes that allocate<X, kCount>() takes.
  template <typename X, int kCount = 1> static constexpr int bytes = (sizeof(X) * kCount + 127) / 128 * 128;

  /// One object, or an array of kCount.
  template <typename X> __device__ X &allocate() { return allocate<X, 1>()[0]; }
  template <typename X, int kCount> __device__ auto &allocate() {
    auto &objects = *reinterpret_cast<X(*)[kCount]>(next_);
    next_ += bytes<X, kCount>;
    return objects;
  }

private:
  unsigned char *next_;
};

} // namespace tiles
