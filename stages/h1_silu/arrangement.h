// A block's arrangement: rows, warps, tile sizes, and where Q is kept.
#pragma once

#include "tiles/tiles.h"

// Options of stage.toml, set when building; 0 leaves them to Arrangement.
#ifndef ROWS
#define ROWS 0
#endif
#ifndef WORKERS
#define WORKERS 0
#endif
#ifndef KEYS
#define KEYS 0
#endif

/// The arrangement for elements T and head dimension d.
template <typename T, int d> struct Arrangement {
  static constexpr int rows = ROWS ? ROWS : d == 256 ? 16 : 32; // queries a warp
  static constexpr int workers = WORKERS ? WORKERS : 4;         // warps a block
  static constexpr int keys = KEYS ? KEYS : d == 128 ? 48 : 32; // a tile of K and V
  /// An SM, for the compiler's share of registers. Where small tiles leave them, a third block hides more of
  /// silu's latency.
  static constexpr int blocks = workers > 4 || d == 256 ? 1 : d <= 64 && keys <= 32 ? 3 : 2;
  static constexpr int block_rows = workers * rows;

  /// Q is kept in registers or, from d = 128 on, where these are taken, in shared memory.
  static constexpr bool q_in_registers = d < 128;
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

  /// A tile of K and V: one is in use while the other is on its way.
  struct Buffer {
    tiles::SharedTile<T, keys, d> k, v;
  };
  static constexpr int smem_bytes = tiles::SharedAllocator::bytes<Buffer, 2> + q_bytes;
};
