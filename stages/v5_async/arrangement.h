// The arrangement of v5's blocks: workers, rows a worker, keys a tile, buffers, and where Q is.
#pragma once

#include "tiles/tiles.h"

// How many tiles of K and V have a place, chosen when building.
#ifndef BUFFERS
#define BUFFERS 2
#endif

/// For elements T and head dimension d. Sixteen warps leave each thread 128 registers. O takes d / 2 of them,
/// Q d / 4, and S with its rounded copy P three for every four keys of a tile.
template <typename T, int d> struct Arrangement {
  static constexpr int workers = 16, rows = 16; // warps a block, query rows a worker
  static constexpr int block_rows = workers * rows;
  static constexpr int keys = d == 32 ? 64 : d == 64 ? 48 : 32; // of a tile: the most without spilling
  using KV = tiles::SharedTile<T, keys, d>;

  static constexpr bool q_in_registers = d < 128; // else in shared memory
  using Q = tiles::SharedTile<T, rows, d>;
  static constexpr int q_bytes = q_in_registers ? 0 : tiles::SharedAllocator::bytes<Q, workers>;

  static constexpr int buffers = BUFFERS;
  struct Buffer {
    KV k, v;
  };
  static constexpr int smem_bytes = tiles::SharedAllocator::bytes<Buffer, buffers> + q_bytes;
};
