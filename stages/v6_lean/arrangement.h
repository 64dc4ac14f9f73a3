// A block's arrangement: rows a warp, warps, keys a tile, tiles a buffer, and where Q is.
#pragma once

#include <algorithm>

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
#ifndef PARTS
#define PARTS 0
#endif
#ifndef BUFFERS
#define BUFFERS 2
#endif

/// For elements T and head dimension d.
template <typename T, int d> struct Arrangement {
  // Query rows a worker. With 16 there are registers for sixteen workers; with 32 the fragments of K and V,
  // once loaded, serve twice. Sixteen are enough for the speed of FlashAttention-2 but at d = 128, where O
  // alone takes half of their registers.
  static constexpr int rows = ROWS ? ROWS : d == 128 ? 32 : 16;
  static constexpr int workers = WORKERS ? WORKERS : rows == 16 ? 16 : 4; // warps a block
  static constexpr int blocks = workers <= 4 ? 2 : 1; // an SM, for the compiler's share of registers
  static constexpr int block_rows = workers * rows;

  // A tile of K and V. Smaller ones do the rest of the loop more often; with larger ones registers spill.
  static constexpr int most_keys() {
    if (d == 32)
      return 64;
    if (d == 64)
      return rows == 16 ? 48 : 64;
    return rows == 16 ? 32 : 48;
  }
  static constexpr int keys = KEYS ? KEYS : most_keys();
  using KV = tiles::SharedTile<T, keys, d>;

  static constexpr bool q_in_registers = d < 128; // else in shared memory
  using Q = tiles::SharedTile<T, rows, d>;
  static constexpr int q_bytes = q_in_registers ? 0 : tiles::SharedAllocator::bytes<Q, workers>;

  // A buffer is what is brought between two barriers: as many tiles, its parts, as fit into 96 KB.
  static constexpr int buffers = BUFFERS;
  static constexpr int most_parts = (96 * 1024 - q_bytes) / (buffers * 2 * int(sizeof(KV)));
  static constexpr int parts = PARTS ? PARTS : std::max(most_parts, 1);
  static constexpr int buffer_keys = parts * keys;
  struct Buffer {
    KV k[parts], v[parts];
  };
  static constexpr int smem_bytes = tiles::SharedAllocator::bytes<Buffer, buffers> + q_bytes;
};
