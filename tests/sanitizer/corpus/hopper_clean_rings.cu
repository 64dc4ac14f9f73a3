// Rings of buffers between TMA and products that look as if something were wrong, and are right.
#include "hopper.h"

namespace {

constexpr int kStages = 2;

#define RING(consumers)                                                                                      \
  __shared__ alignas(1024) Element buffers[kStages][kTile];                                                  \
  __shared__ Barrier full[kStages], empty[kStages];                                                          \
  if (threadIdx.x == 0)                                                                                      \
    for (int i = 0; i < kStages; ++i) {                                                                      \
      init(full[i], 1);                                                                                      \
      init(empty[i], consumers);                                                                             \
    }                                                                                                        \
  fence_barrier_init();                                                                                      \
  Accumulator d = {};                                                                                        \
  const bool is_producer = int(threadIdx.x) == int(blockDim.x) - 32;                                         \
  if (int(threadIdx.x) >= int(blockDim.x) - 32 && !is_producer)                                              \
  return

__device__ void produce(Element (*buffers)[kTile], Barrier *full, Barrier *empty, const Element *in,
                        int tiles) {
  for (int i = 0; i < tiles; ++i) {
    if (i >= kStages)
      wait(empty[i % kStages], unsigned(i / kStages - 1) & 1);
    expect(full[i % kStages], kTileBytes);
    load(buffers[i % kStages], in + i * kTile, kTileBytes, full[i % kStages]);
  }
}

/// Both warpgroups read each buffer, so both hand it back.
__global__ void two_warpgroups(float *out, const Element *in, int tiles) {
  RING(2);
  if (is_producer)
    return produce(buffers, full, empty, in, tiles);
  for (int i = 0; i < tiles; ++i) {
    wait(full[i % kStages], unsigned(i / kStages) & 1);
    begin_products();
    product(d, descriptor(buffers[i % kStages]), descriptor(buffers[i % kStages]));
    commit_products();
    wait_products<0>();
    if (threadIdx.x % kThreads == 5)
      arrive(empty[i % kStages]);
  }
  write_out(out, d);
}
CASE(two_warpgroups) {
  Device<float> out(1024);
  Device<Element> in(7 * kTile);
  two_warpgroups<<<1, 2 * kThreads + 32>>>(out, in, 7);
}

/// Four warps read each tile by ldmatrix, and all hand it back.
__global__ void four_warps_read_by_ldmatrix(unsigned *out, const float4 *in, int tiles) {
  __shared__ alignas(128) float4 tile[32];
  __shared__ Barrier full, empty;
  const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
  if (threadIdx.x == 0) {
    init(full, 1);
    init(empty, 4);
  }
  fence_barrier_init();
  unsigned sum = 0;
  for (int i = 0; i < tiles; ++i) {
    if (warp == 0) {
      if (i > 0)
        wait(empty, unsigned(i - 1) & 1);
      if (lane == 0) {
        expect(full, sizeof tile);
        load(tile, in + 32 * i, sizeof tile, full);
      }
      continue;
    }
    wait(full, unsigned(i) & 1);
    sum += ldmatrix_x4(&tile[lane]);
    fence_proxy();
    __syncwarp();
    if (lane == 0)
      arrive(empty);
  }
  out[threadIdx.x] = sum;
}
CASE(four_warps_read_by_ldmatrix) {
  Device<float4> in(32 * 4);
  Device<unsigned> out(160);
  four_warps_read_by_ldmatrix<<<1, 160>>>(out, in, 4);
}

/// The warp that issues the load has met after its ldmatrix.
__global__ void loaded_after_ldmatrix_and_syncwarp(unsigned *out, const float4 *in, int tiles) {
  __shared__ alignas(128) float4 tile[32];
  __shared__ Barrier full;
  if (threadIdx.x == 0)
    init(full, 1);
  fence_barrier_init();
  unsigned sum = 0;
  for (int i = 0; i < tiles; ++i) {
    if (threadIdx.x == 0) {
      expect(full, sizeof tile);
      load(tile, in + 32 * i, sizeof tile, full);
    }
    wait(full, unsigned(i) & 1);
    sum += ldmatrix_x4(&tile[threadIdx.x]);
    fence_proxy();
    __syncwarp();
  }
  out[threadIdx.x] = sum;
}
CASE(loaded_after_ldmatrix_and_syncwarp) {
  Device<float4> in(32 * 4);
  Device<unsigned> out(32);
  loaded_after_ldmatrix_and_syncwarp<<<1, 32>>>(out, in, 4);
}

/// The buffer of the group before is handed back while the newest group still reads its own.
__global__ void handed_back_one_group_later(float *out, const Element *in, int tiles) {
  RING(1);
  if (is_producer)
    return produce(buffers, full, empty, in, tiles);
  for (int i = 0; i < tiles; ++i) {
    wait(full[i % kStages], unsigned(i / kStages) & 1);
    begin_products();
    product(d, descriptor(buffers[i % kStages]), descriptor(buffers[i % kStages]));
    commit_products();
    wait_products<1>();
    if (i > 0 && threadIdx.x == 0)
      arrive(empty[(i - 1) % kStages]);
  }
  wait_products<0>();
  write_out(out, d);
}
CASE(handed_back_one_group_later) {
  Device<float> out(512);
  Device<Element> in(7 * kTile);
  handed_back_one_group_later<<<1, kThreads + 32>>>(out, in, 7);
}

/// The producer waits for the last buffers, too, though nothing else will be loaded.
__global__ void producer_waits_for_the_tail(float *out, const Element *in, int tiles) {
  RING(kThreads);
  if (is_producer) {
    produce(buffers, full, empty, in, tiles);
    for (int i = tiles; i < tiles + kStages; ++i)
      wait(empty[i % kStages], unsigned(i / kStages - 1) & 1);
    return;
  }
  for (int i = 0; i < tiles; ++i) {
    wait(full[i % kStages], unsigned(i / kStages) & 1);
    d[0] += __bfloat162float(buffers[i % kStages][threadIdx.x]);
    arrive(empty[i % kStages]);
  }
  write_out(out, d);
}
CASE(producer_waits_for_the_tail) {
  Device<float> out(512);
  Device<Element> in(6 * kTile);
  producer_waits_for_the_tail<<<1, kThreads + 32>>>(out, in, 6);
}

/// The consumers hand the free buffers over first, so that the producer always waits.
__global__ void buffers_begin_handed_back(float *out, const Element *in, int tiles) {
  RING(1);
  if (is_producer) {
    for (int i = 0; i < tiles; ++i) {
      wait(empty[i % kStages], unsigned(i / kStages) & 1);
      expect(full[i % kStages], kTileBytes);
      load(buffers[i % kStages], in + i * kTile, kTileBytes, full[i % kStages]);
    }
    return;
  }
  if (threadIdx.x == 0)
    for (Barrier &barrier : empty)
      arrive(barrier);
  for (int i = 0; i < tiles; ++i) {
    wait(full[i % kStages], unsigned(i / kStages) & 1);
    begin_products();
    product(d, descriptor(buffers[i % kStages]), descriptor(buffers[i % kStages]));
    commit_products();
    wait_products<0>();
    if (threadIdx.x == 0)
      arrive(empty[i % kStages]);
  }
  write_out(out, d);
}
CASE(buffers_begin_handed_back) {
  Device<float> out(512);
  Device<Element> in(5 * kTile);
  buffers_begin_handed_back<<<1, kThreads + 32>>>(out, in, 5);
}

/// The producer's first waits pass at once: a fresh mbarrier counts as having completed the phase of
/// parity 1.
__global__ void the_first_wait_passes(float *out, const Element *in, int tiles) {
  RING(1);
  if (is_producer) {
    for (int i = 0; i < tiles; ++i) {
      wait(empty[i % kStages], unsigned(i / kStages + 1) & 1);
      expect(full[i % kStages], kTileBytes);
      load(buffers[i % kStages], in + i * kTile, kTileBytes, full[i % kStages]);
    }
    return;
  }
  for (int i = 0; i < tiles; ++i) {
    wait(full[i % kStages], unsigned(i / kStages) & 1);
    begin_products();
    product(d, descriptor(buffers[i % kStages]), descriptor(buffers[i % kStages]));
    commit_products();
    wait_products<0>();
    if (threadIdx.x == 0)
      arrive(empty[i % kStages]);
  }
  write_out(out, d);
}
CASE(the_first_wait_passes) {
  Device<float> out(512);
  Device<Element> in(5 * kTile);
  the_first_wait_passes<<<1, kThreads + 32>>>(out, in, 5);
}

/// One warp waits for the phase, and a barrier passes on what it knows.
__global__ void one_warp_waits_for_all(Element *out, const Element *in) {
  __shared__ alignas(1024) Element tile[kTile];
  __shared__ Barrier full;
  if (threadIdx.x == 0) {
    init(full, 1);
    fence_inits();
    expect(full, kTileBytes);
    load(tile, in, kTileBytes, full);
    wait(full, 0);
  }
  __syncthreads();
  out[threadIdx.x] = tile[threadIdx.x];
}
CASE(one_warp_waits_for_all) {
  Device<Element> in(kTile), out(kTile);
  one_warp_waits_for_all<<<1, kThreads>>>(out, in);
}

__global__ void copied_tiles(float *out, const Element *in, int tiles) {
  __shared__ alignas(1024) Element buffers[2][kTile];
  Accumulator d = {};
  for (int i = 0; i < tiles; ++i) {
    copy_tile(buffers[i % 2], in + i * kTile);
    wait_copies();
    fence_proxy();
    __syncthreads();
    begin_products();
    product(d, descriptor(buffers[i % 2]), descriptor(buffers[i % 2]));
    commit_products();
    wait_products<0>(); // the buffer is written in the round after the next, behind a barrier
  }
  write_out(out, d);
}
CASE(copied_tiles) {
  Device<float> out(512);
  Device<Element> in(5 * kTile);
  copied_tiles<<<1, kThreads>>>(out, in, 5);
}

/// A store is waited for only before its buffer is written again.
__global__ void store_awaited_a_round_later(Element *out, int tiles) {
  __shared__ alignas(1024) Element buffers[2][kTile];
  for (int i = 0; i < tiles; ++i) {
    if (threadIdx.x == 0)
      wait_stores_read<1>();
    __syncthreads();
    fill(buffers[i % 2], float(i));
    fence_proxy();
    __syncthreads();
    if (threadIdx.x == 0) {
      store(out + i * kTile, buffers[i % 2], kTileBytes);
      commit_stores();
    }
  }
  if (threadIdx.x == 0)
    wait_stores_read<0>();
}
CASE(store_awaited_a_round_later) {
  Device<Element> out(5 * kTile);
  store_awaited_a_round_later<<<1, kThreads>>>(out, 5);
}

/// Each warp stores its own rows and needs no barrier of the block.
__global__ void each_warp_stores_its_rows(Element *out) {
  __shared__ alignas(1024) Element tile[kTile];
  constexpr int kRows = 16 * 64;
  Element *const own = tile + kRows * (threadIdx.x / 32);
  for (int round = 0; round < 2; ++round) {
    for (int i = int(threadIdx.x % 32); i < kRows; i += 32)
      own[i] = __float2bfloat16(float(i % 7 + round));
    fence_proxy();
    __syncwarp();
    if (threadIdx.x % 32 == 0) {
      store(out + round * kTile + kRows * (threadIdx.x / 32), own, kRows * sizeof(Element));
      commit_stores();
      wait_stores_read<0>();
    }
    __syncwarp();
  }
}
CASE(each_warp_stores_its_rows) {
  Device<Element> out(2 * kTile);
  each_warp_stores_its_rows<<<1, kThreads>>>(out);
}

/// The operand's memory becomes the output's after the last product.
__global__ void output_over_the_operand(Element *out, const Element *in) {
  __shared__ alignas(1024) Element tile[kTile];
  __shared__ Barrier full;
  if (threadIdx.x == 0)
    init(full, 1);
  fence_barrier_init();
  if (threadIdx.x == 0) {
    expect(full, kTileBytes);
    load(tile, in, kTileBytes, full);
  }
  wait(full, 0);
  Accumulator d = {};
  begin_products();
  product(d, descriptor(tile), descriptor(tile));
  commit_products();
  wait_products<0>();
  __syncthreads();
  for (int i = 0; i < 4; ++i)
    tile[4 * threadIdx.x + i] = __float2bfloat16(d[i]);
  fence_proxy();
  __syncthreads();
  if (threadIdx.x == 0) {
    store(out, tile, 4 * kThreads * sizeof(Element));
    commit_stores();
    wait_stores_read<0>();
  }
}
CASE(output_over_the_operand) {
  Device<Element> in(kTile), out(kTile);
  output_over_the_operand<<<1, kThreads>>>(out, in);
}

/// One warp arrives for all four, which have met at a barrier since their wait.
__global__ void leader_arrives_after_a_barrier(int *out, int rounds) {
  __shared__ Barrier full, empty;
  if (threadIdx.x == 0) {
    init(full, 1);
    init(empty, 1);
  }
  fence_barrier_init();
  if (threadIdx.x < kThreads)
    for (int i = 0; i < rounds; ++i) {
      wait(full, unsigned(i) & 1);
      asm volatile("bar.sync 1, 128;" ::: "memory");
      if (threadIdx.x == 0)
        arrive(empty);
    }
  else if (threadIdx.x == kThreads)
    for (int i = 0; i < rounds; ++i) {
      if (i > 0)
        wait(empty, unsigned(i - 1) & 1);
      arrive(full);
    }
  __syncthreads();
  out[threadIdx.x] = rounds;
}
CASE(leader_arrives_after_a_barrier) {
  Device<int> out(kThreads + 32);
  leader_arrives_after_a_barrier<<<1, kThreads + 32>>>(out, 8);
}

/// All lanes of a warp arrive in one instruction, which completes the one phase that expects them.
__global__ void lanes_complete_one_phase(int *out) {
  __shared__ Barrier ready;
  __shared__ int value;
  if (threadIdx.x == 0)
    init(ready, 32);
  fence_barrier_init();
  if (threadIdx.x < 32) {
    if (threadIdx.x == 0)
      value = 5;
    arrive(ready);
  } else {
    wait(ready, 0);
    out[threadIdx.x] = value;
  }
}
CASE(lanes_complete_one_phase) {
  Device<int> out(kThreads);
  lanes_complete_one_phase<<<1, kThreads>>>(out);
}

/// The phase counts on and PTX's parity is its bit 0: Triton relies on it.
__global__ void parity_counts_on(int *out, unsigned rounds) {
  __shared__ Barrier ready;
  if (threadIdx.x == 0)
    init(ready, kThreads);
  fence_barrier_init();
  for (unsigned i = 0; i < rounds; ++i) {
    arrive(ready);
    wait(ready, i); // remark(parity_counts_on): parity
  }
  out[threadIdx.x] = int(rounds);
}
CASE(parity_counts_on) {
  Device<int> out(kThreads);
  parity_counts_on<<<1, kThreads>>>(out, 5);
}

/// Two loads complete one phase.
__global__ void two_loads_in_a_phase(float *out, const Element *in) {
  __shared__ alignas(1024) Element a[kTile], b[kTile];
  __shared__ Barrier full;
  if (threadIdx.x == 0)
    init(full, 1);
  fence_barrier_init();
  Accumulator d = {};
  for (unsigned i = 0; i < 3; ++i) {
    if (threadIdx.x == 0) {
      expect(full, 2 * kTileBytes);
      load(a, in, kTileBytes, full);
      load(b, in + kTile, kTileBytes, full);
    }
    wait(full, i & 1);
    begin_products();
    product(d, descriptor(a), descriptor(b));
    commit_products();
    wait_products<0>();
    __syncthreads();
  }
  write_out(out, d);
}
CASE(two_loads_in_a_phase) {
  Device<float> out(512);
  Device<Element> in(2 * kTile);
  two_loads_in_a_phase<<<1, kThreads>>>(out, in);
}

// --- global memory, for the async proxy
// ---------------------------------------------------------------------

/// Block 0 writes data and raises a flag; block 1 sees the flag and loads the data in bulk.
__global__ void flag_fence_and_bulk_load(Element *data, int *flag, Element *out) {
  __shared__ alignas(128) Element tile[kThreads];
  __shared__ Barrier full;
  if (threadIdx.x == 0)
    init(full, 1);
  fence_barrier_init();
  if (blockIdx.x == 0) {
    data[threadIdx.x] = __float2bfloat16(float(threadIdx.x) + 1);
    __syncthreads();
    if (threadIdx.x == 0) {
      __threadfence();
      atomicExch(flag, 1);
    }
    return;
  }
  if (threadIdx.x == 0) {
    while (atomicAdd(flag, 0) == 0)
      ;
    __threadfence();
    fence_proxy_of_global();
    expect(full, sizeof tile);
    load(tile, data, sizeof tile, full);
  }
  __syncthreads();
  wait(full, 0);
  out[threadIdx.x] = tile[threadIdx.x];
}
CASE(flag_fence_and_bulk_load) {
  Device<Element> data(kThreads), out(kThreads);
  Device<int> flag(1);
  flag_fence_and_bulk_load<<<2, kThreads>>>(data, flag, out);
}

/// The sums begin at zero.
__global__ void added_to_fenced_zeros(float *sums) {
  __shared__ alignas(128) float part[kThreads];
  sums[threadIdx.x] = 0.f;
  part[threadIdx.x] = float(threadIdx.x);
  fence_proxy();
  fence_proxy_of_global();
  __syncthreads();
  if (threadIdx.x == 0) {
    add(sums, part, sizeof part);
    commit_stores();
    wait_stores<0>();
  }
}
CASE(added_to_fenced_zeros) {
  Device<float> sums(kThreads);
  cudaMemset(sums, 1, sums.bytes);
  added_to_fenced_zeros<<<1, kThreads>>>(sums);
}

/// Three warps read each tile by ldmatrix and hand it back.
__global__ void loaded_over_rows_that_ldmatrix_has_read(unsigned *out, const float4 *in, int tiles) {
  __shared__ alignas(128) float4 tile[32];
  __shared__ Barrier full, empty;
  const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
  if (threadIdx.x == 0) {
    init(full, 1);
    init(empty, 3);
  }
  fence_barrier_init();
  unsigned sum = 0;
  for (int i = 0; i < tiles; ++i) {
    if (warp == 3) {
      if (i > 0)
        wait(empty, unsigned(i - 1) & 1);
      if (lane == 0) {
        expect(full, sizeof tile);
        load(tile, in + 32 * i, sizeof tile, full);
      }
      continue;
    }
    wait(full, unsigned(i) & 1);
    sum += ldmatrix_x4(&tile[lane]);
    fence_proxy();
    __syncwarp();
    if (lane == 0)
      arrive(empty);
  }
  out[threadIdx.x] = sum;
}
CASE(loaded_over_rows_that_ldmatrix_has_read) {
  Device<float4> in(32 * 4);
  Device<unsigned> out(kThreads);
  loaded_over_rows_that_ldmatrix_has_read<<<1, kThreads>>>(out, in, 4);
}

/// One thread loads a box of each of two tensors, by one map in memory that it changes in between.
__global__ void map_changed_after_its_load(CUtensorMap *map, const CUtensorMap *second, Element *out) {
  __shared__ alignas(1024) Element tiles[2][kTile];
  __shared__ Barrier full[2];
  if (threadIdx.x == 0) {
    init(full[0], 1);
    init(full[1], 1);
  }
  fence_barrier_init();
  if (threadIdx.x == 0) {
    expect(full[0], kTileBytes);
    load_box(tiles[0], *map, 0, 0, full[0]);
    wait(full[0], 0);
    for (int i = 0; i < 16; ++i)
      reinterpret_cast<unsigned long long *>(map)[i] =
          reinterpret_cast<const unsigned long long *>(second)[i];
    asm volatile("fence.proxy.tensormap::generic.release.gpu;" ::: "memory");
    asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map) : "memory");
    expect(full[1], kTileBytes);
    load_box(tiles[1], *map, 0, 0, full[1]);
  }
  __syncthreads();
  for (int i = 0; i < 2; ++i) {
    wait(full[i], 0);
    out[i * kThreads + int(threadIdx.x)] = tiles[i][threadIdx.x];
  }
}
CASE(map_changed_after_its_load) {
  Device<Element> a(kTile), b(kTile), out(2 * kThreads);
  Device<CUtensorMap> maps(2);
  const CUtensorMap both[2] = {map_of(a, CU_TENSOR_MAP_SWIZZLE_NONE, 64),
                               map_of(b, CU_TENSOR_MAP_SWIZZLE_NONE, 64)};
  cudaMemcpy(maps, both, sizeof both, cudaMemcpyHostToDevice);
  map_changed_after_its_load<<<1, kThreads>>>(maps, maps + 1, out);
}

__global__ void produce(int *data) {
  asm volatile("griddepcontrol.launch_dependents;");
  data[blockIdx.x * kThreads + threadIdx.x] = 7;
}

/// One thread waits for all of its block.
__global__ void read_after_the_producer_has_ended(const int *in, int *out) {
  if (threadIdx.x == 0)
    asm volatile("griddepcontrol.wait;" ::: "memory");
  __syncthreads();
  out[blockIdx.x * kThreads + threadIdx.x] = in[blockIdx.x * kThreads + threadIdx.x] + 1;
}
CASE(read_after_the_producer_has_ended) {
  Device<int> data(4 * kThreads), out(4 * kThreads);
  produce<<<4, kThreads>>>(data);
  launch_early(read_after_the_producer_has_ended, data.data, out.data);
}

} // namespace
