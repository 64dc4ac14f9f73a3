// A ring of buffers between one thread that issues TMA loads, the producer, and the warps that use the tiles,
// the consumers.
#pragma once

#include "tma.h"

namespace tiles {

/// A position in a ring of kBuffers buffers, and the parity of its mbarriers' phase. The producer and each
/// consumer have their own.
template <int kBuffers> struct Turn {
  int buffer = 0;
  uint32_t parity = 0;

  __device__ void advance() {
    if (++buffer == kBuffers) {
      buffer = 0;
      parity ^= 1;
    }
  }
};

/// kBuffers buffers of kParts tiles each. A phase of a buffer's `full` completes when its tiles are loaded, a
/// phase of its `empty` when all consumers have released it.
template <SharedMemoryTile Tile, int kBuffers, int kParts = 1> struct Ring {
  using Turn = tiles::Turn<kBuffers>;

  alignas(1024) Tile tiles[kBuffers][kParts]; // the period of the swizzle
  Barrier full[kBuffers], empty[kBuffers];

  /// As Barrier::init. `releases` calls of release() make a buffer empty.
  __device__ void init(int releases) {
    for (int buffer = 0; buffer < kBuffers; buffer++) {
      full[buffer].init(1);
      empty[buffer].init(releases);
    }
  }

  // For the producer: waits until the buffer is empty, as all are at first; then issues the loads of its
  // parts, consecutive rows from `row` on of a matrix, given by its number, or of a tma::Segment.
  __device__ void wait_empty(Turn turn) const { empty[turn.buffer].wait(turn.parity ^ 1); }
  template <typename Map, typename Where>
  __device__ void load_async(Turn turn, const Map &src, int row, const Where &where) {
    full[turn.buffer].arrive_and_expect(sizeof(tiles[0]));
    for (int part = 0; part < kParts; part++)
      tma::load_async(tiles[turn.buffer][part], src, row + part * Tile::rows, where, full[turn.buffer]);
  }
  /// Issues the load of a vector that belongs to the buffer's tiles, before the load of the tiles.
  template <SharedMemoryVector D>
  __device__ void load_async(Turn turn, D &dst, const GlobalVec<const typename D::Elem> &src, int first) {
    full[turn.buffer].expect(sizeof(dst.data));
    tma::load_async(dst, src, first, full[turn.buffer]);
  }

  // For the consumers: waits until the buffer's tiles are loaded.
  __device__ Tile &wait_full(Turn turn, int part = 0) {
    full[turn.buffer].wait(turn.parity);
    return tiles[turn.buffer][part];
  }
  /// Releases the buffer. Called by a whole warp after all its lanes have finished reading: after
  /// warpgroup::mma_wait, or after their own loads (ld.shared, ldmatrix), fence_async_proxy and a __syncwarp.
  /// wgmma reads through the async proxy, as TMA writes. Ordinary loads do not: without the fence TMA may
  /// overwrite what they have yet to read.
  __device__ void release(Turn turn) {
    if (lane_id() == 0)
      empty[turn.buffer].arrive();
  }
};

} // namespace tiles
