// Buffers between one thread that requests tiles from TMA, the producer, and the warps that use them, the
// consumers.
#pragma once

#include "tma.h"

namespace tiles {

/// Which of kBuffers is next. Each user of a ring counts for itself. `parity` is that of the barriers' phase.
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

/// kBuffers buffers of kParts tiles each. A buffer's `full` ends a phase when its tiles have arrived, its
/// `empty` when all consumers have released it.
template <SharedMemoryTile Tile, int kBuffers, int kParts = 1> struct Ring {
  using Turn = tiles::Turn<kBuffers>;

  alignas(1024) Tile tiles[kBuffers][kParts]; // where a swizzle's pattern begins
  Barrier full[kBuffers], empty[kBuffers];

  /// As Barrier::init. `releases`: how many calls of release empty a buffer.
  __device__ void init(int releases) {
    for (int buffer = 0; buffer < kBuffers; buffer++) {
      full[buffer].init(1);
      empty[buffer].init(releases);
    }
  }

  // For the producer: waits until the buffer is free, as all are at first; requests its parts, one below the
  // other, from `row` on of a matrix, by number, or of a tma::Segment.
  __device__ void wait_empty(Turn turn) const { empty[turn.buffer].wait(turn.parity ^ 1); }
  template <typename Map, typename Where>
  __device__ void load_async(Turn turn, const Map &src, int row, const Where &where) {
    full[turn.buffer].arrive_and_expect(sizeof(tiles[0]));
    for (int part = 0; part < kParts; part++)
      tma::load_async(tiles[turn.buffer][part], src, row + part * Tile::rows, where, full[turn.buffer]);
  }
  /// Requests a vector that belongs to the buffer's tiles: before they are requested.
  template <SharedMemoryVector D>
  __device__ void load_async(Turn turn, D &dst, const GlobalVec<const typename D::Elem> &src, int first) {
    full[turn.buffer].expect(sizeof(dst.data));
    tma::load_async(dst, src, first, full[turn.buffer]);
  }

  // For the consumers: waits until the buffer's tiles are there.
  __device__ Tile &wait_full(Turn turn, int part = 0) {
    full[turn.buffer].wait(turn.parity);
    return tiles[turn.buffer][part];
  }
  /// Gives the buffer back. Called by a whole warp whose lanes are done with it, as they are after
  /// warpgroup::mma_wait; lanes that read it themselves need a __syncwarp first.
  __device__ void release(Turn turn) {
    if (lane_id() == 0)
      empty[turn.buffer].arrive();
  }
};

} // namespace tiles
