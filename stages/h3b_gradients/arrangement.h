// A block's arrangement: rows, warps, tile sizes, and how its warps share dQ.
#pragma once

#include "tiles/tiles.h"

/// The arrangement for elements T and head dimension d, with a bias or without. The large form takes the
/// shared memory of an sm_90, the small one no more than the 99 KB of an sm_86 or sm_89.
template <typename T, int d, bool kBias, bool kLarge> struct Arrangement {
  static constexpr bool bias = kBias;
  // A warp has room for dK and dV of 32 keys, or at d = 128 for one of the two.
  static constexpr bool in_pairs = d == 128;
  static constexpr int rows = 32, warps = in_pairs && kLarge ? 8 : 4;
  static constexpr int keys = warps / (in_pairs ? 2 : 1) * rows; // of a block
  // A tile of queries, and what a warp takes of it at a time: S^T and dP^T of that much are in registers,
  // too.
  static constexpr int queries = (in_pairs && !kLarge) || (kBias && d == 64) ? 32 : 64;
  static constexpr int part_queries = d == 32 ? 64 : 32;

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
  union Exchanged {
    tiles::SharedTile<__half, keys, queries> slopes; // from one of a pair to the other
    tiles::SharedTile<T, keys, queries> gradients;   // dS^T, each part in the place of its slopes
  };
  static constexpr int smem_bytes = tiles::SharedAllocator::bytes<Resident> +
                                    tiles::SharedAllocator::bytes<Buffer, 2> +
                                    tiles::SharedAllocator::bytes<Exchanged, 2>;

  /// The warps share a tile of dQ: the nearer to a square each part is, the fewer fragments a warp loads.
  static constexpr int dq_cols = queries * d / warps < 16 * 32 ? 16 : 32;
  static constexpr int dq_rows = queries * d / warps / dq_cols;
  using DqSums = tiles::GlobalFragments<dq_rows, dq_cols>;
};
