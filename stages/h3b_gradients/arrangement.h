// A block's arrangement: rows, warps, tile sizes, and how its warps share dQ.
#pragma once

#include "tiles/tiles.h"

// Options of stage.toml, set when building; 0 leaves them to Arrangement.
#ifndef QUERIES
#define QUERIES 0
#endif
#ifndef PART_QUERIES
#define PART_QUERIES 0
#endif

/// The arrangement for elements T and head dimension d, with a bias or without.
template <typename T, int d, bool kBias> struct Arrangement {
  static constexpr bool bias = kBias;
  static constexpr int warps = 4;
  static constexpr int rows = d == 128 ? 16 : 32, keys = warps * rows; // of a warp, and of a block
  // A tile of queries, and what a warp takes of it at a time: S^T and dP^T of that much are in registers
  // beside dK and dV.
  static constexpr int queries = QUERIES ? QUERIES : d == 128 || (kBias && d == 64) ? 32 : 64;
  static constexpr int part_queries = PART_QUERIES ? PART_QUERIES : d == 64 ? 32 : queries;

  struct Resident {
    tiles::SharedTile<T, keys, d> k, v;
  };
  struct Plain {
    tiles::SharedTile<T, queries, d> q, d_o;
  };
  struct Biased : Plain {
    tiles::SharedTile<T, queries, keys> rab;
  };
  /// A tile of queries: one is in use while the other is on its way.
  using Buffer = std::conditional_t<kBias, Biased, Plain>;
  using Slopes = tiles::SharedTile<T, keys, queries>; // dS^T
  static constexpr int smem_bytes = tiles::SharedAllocator::bytes<Resident> +
                                    tiles::SharedAllocator::bytes<Buffer, 2> +
                                    tiles::SharedAllocator::bytes<Slopes, 2>;

  /// The warps share a tile of dQ: the nearer to a square each part is, the fewer fragments a warp loads.
  static constexpr int dq_cols = queries * d / warps < 16 * 32 ? 16 : 32;
  static constexpr int dq_rows = queries * d / warps / dq_cols;
  using DqSums = tiles::GlobalFragments<dq_rows, dq_cols>;
};
