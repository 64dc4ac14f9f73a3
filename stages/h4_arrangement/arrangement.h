// A block's arrangement: rows, warps, tile sizes, where Q is kept, and what its warps share.
#pragma once

#include "tiles/tiles.h"

// Options of stage.toml, set when building; -1 and 0 leave them to the kernel.
#ifndef OVER_KEYS
#define OVER_KEYS -1
#endif
#ifndef Q_IN_REGISTERS
#define Q_IN_REGISTERS -1
#endif
#ifndef ROWS
#define ROWS 0
#endif
#ifndef WORKERS
#define WORKERS 0
#endif
#ifndef KEYS
#define KEYS 0
#endif

/// The arrangement for elements T and head dimension d. The warps of a block share out its queries (4x1x1 of
/// them for q k^T and for the product with v), or they have the same queries and share out the keys (1x4x1
/// and 1x1x4): then each has a part of every sum over the keys.
template <typename T, int d, bool kOverKeys> struct Arrangement {
  static constexpr bool over_keys = kOverKeys;
  static constexpr int rows = ROWS ? ROWS : kOverKeys || d == 256 ? 16 : 32;        // queries a warp
  static constexpr int workers = WORKERS ? WORKERS : kOverKeys && d == 256 ? 2 : 4; // warps a block
  static constexpr int blocks =
      workers <= 4 && d < 256 ? 2 : 1; // an SM, for the compiler's share of registers
  static constexpr int most_keys() {
    if (kOverKeys)
      return d <= 64 ? 32 : 16;
    return d <= 64 ? 64 : 32;
  }
  static constexpr int keys = KEYS ? KEYS : most_keys(); // a warp's tile of K and V
  static constexpr int parts = kOverKeys ? workers : 1;  // such tiles in a buffer
  static constexpr int step = parts * keys;              // keys a buffer
  static constexpr int block_rows = kOverKeys ? rows : workers * rows;

  /// Q is kept in registers or, from d = 128 on, where these are taken, in shared memory.
  static constexpr bool q_in_registers = Q_IN_REGISTERS < 0 ? d < 128 : Q_IN_REGISTERS;
  using Query =
      std::conditional_t<q_in_registers, tiles::RegTile<T, rows, d>, tiles::SharedTile<T, rows, d> &>;
  __device__ static Query place_q(tiles::SharedAllocator &allocator, int worker) {
    if constexpr (q_in_registers)
      return {};
    else
      return allocator.allocate<tiles::SharedTile<T, rows, d>, workers>()[worker];
  }
  static constexpr int q_bytes =
      q_in_registers ? 0 : tiles::SharedAllocator::bytes<tiles::SharedTile<T, rows, d>, workers>;

  /// Tiles of K and V: those of one buffer are in use while those of the other are on their way.
  struct Buffer {
    tiles::SharedTile<T, keys, d> k[parts], v[parts];
  };
  /// Where the warps' parts of O meet, once no buffer is in use any more.
  using Partial = tiles::SharedTile<float, rows, d>;
  static constexpr int smem_bytes = tiles::SharedAllocator::bytes<Buffer, 2> + q_bytes;
  static_assert(!kOverKeys || sizeof(Partial) * workers <= 2 * sizeof(Buffer), "the parts of O do not fit");
};
