// Clusters of two blocks (sm_90): blocks that run at the same time and reach each other's shared memory. PTX
// manual, "Data Movement and Conversion Instructions: mapa, st.async".
#pragma once

#include "tiles/barrier.h"
#include "tiles/reductions.h"

namespace tiles::cluster {

/// The calling block's number in its cluster.
__device__ inline int rank() {
  int rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

/// A barrier of all threads of the cluster.
__device__ inline void sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::
                   : "memory");
}

/// Where the other block's copy of a shared variable is, given the address of one's own.
__device__ inline uint32_t of_the_other(uint32_t own) {
  uint32_t address;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(own), "r"(rank() ^ 1));
  return address;
}

/// What a warp receives from the same warp of the other block, once: a value per row of its tile.
template <int kRows> struct Mailbox {
  float values[kRows];
  Barrier full;

  /// Called by one thread, before fence_barrier_init() and sync().
  __device__ void init() { full.init(1); }
};

/// vec += the other block's vec. Both blocks call it, and both get the same bits. An mbarrier counts the
/// bytes that arrive, so no warp waits for more than its counterpart. A mailbox serves once.
template <RegisterVector V> __device__ inline void add_other(V &vec, Mailbox<V::length> &mailbox) {
  static_assert(V::along == Along::lines, "expected the ColVec of a row-layout tile");
  const int lane = lane_id();
  if (lane == 0)
    mailbox.full.arrive_and_expect(sizeof(mailbox.values));
  if (lane % 4 == 0) { // the first lane of each quad, which hold the same values
    const uint32_t values = of_the_other(ptx::shared_address(mailbox.values));
    const uint32_t full = of_the_other(mailbox.full.address());
#pragma unroll
    for (int i = 0; i < V::length / 16; i++)
#pragma unroll
      for (int slot = 0; slot < V::per_lane; slot++)
        asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(
                         values + uint32_t(sizeof(float)) * (16 * i + V::entry(slot))),
                     "r"(__float_as_uint(vec.values[i][slot])), "r"(full)
                     : "memory");
  }
  mailbox.full.wait(0);
#pragma unroll
  for (int i = 0; i < V::length / 16; i++)
#pragma unroll
    for (int slot = 0; slot < V::per_lane; slot++)
      vec.values[i][slot] += ptx::load_shared<float>(&mailbox.values[16 * i + V::entry(slot)]);
}

} // namespace tiles::cluster
