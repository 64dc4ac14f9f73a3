// Planted faults of rings of buffers between TMA and products: what is handed back too early, phases of
// mbarriers that nobody sees, fences. The line that must be named has a comment, as in faults.cu.
// clang-format off: a fault's mark stands on the line of the fault, however long
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
  fence_barrier_init();                                                                                        \
  Accumulator d = {};                                                                                        \
  const bool is_producer = int(threadIdx.x) == int(blockDim.x) - 32;                                         \
  if (int(threadIdx.x) >= int(blockDim.x) - 32 && !is_producer)                                              \
  return

#define PRODUCT(stage)                                                                                       \
  begin_products();                                                                                          \
  product(d, descriptor(buffers[stage]), descriptor(buffers[stage]));                                        \
  commit_products()

__global__ void released_before_the_wait(float *out, const Element *in, int tiles) {
  RING(1);
  if (is_producer) {
    for (int i = 0; i < tiles; ++i) {
      if (i >= kStages)
        wait(empty[i % kStages], unsigned(i / kStages - 1) & 1);
      expect(full[i % kStages], kTileBytes);
      load(buffers[i % kStages], in + i * kTile, kTileBytes, full[i % kStages]); // fault(released_before_the_wait): read not waited for
    }
    return;
  }
  for (int i = 0; i < tiles; ++i) {
    wait(full[i % kStages], unsigned(i / kStages) & 1);
    PRODUCT(i % kStages);
    if (threadIdx.x == 0)
      arrive(empty[i % kStages]);
    wait_products<0>();
  }
  write_out(out, d);
}
CASE(released_before_the_wait) {
  Device<float> out(512);
  Device<Element> in(6 * kTile);
  released_before_the_wait<<<1, kThreads + 32>>>(out, in, 6);
}

__global__ void released_one_group_early(float *out, const Element *in, int tiles) {
  RING(1);
  if (is_producer) {
    for (int i = 0; i < tiles; ++i) {
      if (i >= kStages)
        wait(empty[i % kStages], unsigned(i / kStages - 1) & 1);
      expect(full[i % kStages], kTileBytes);
      load(buffers[i % kStages], in + i * kTile, kTileBytes, full[i % kStages]); // fault(released_one_group_early): read not waited for
    }
    return;
  }
  for (int i = 0; i < tiles; ++i) {
    wait(full[i % kStages], unsigned(i / kStages) & 1);
    PRODUCT(i % kStages);
    wait_products<1>();
    if (threadIdx.x == 0)
      arrive(empty[i % kStages]);
  }
  wait_products<0>();
  write_out(out, d);
}
CASE(released_one_group_early) {
  Device<float> out(512);
  Device<Element> in(6 * kTile);
  released_one_group_early<<<1, kThreads + 32>>>(out, in, 6);
}

__global__ void released_by_one_of_two_warpgroups(float *out, const Element *in, int tiles) {
  RING(1);
  if (is_producer) {
    for (int i = 0; i < tiles; ++i) {
      if (i >= kStages)
        wait(empty[i % kStages], unsigned(i / kStages - 1) & 1);
      expect(full[i % kStages], kTileBytes);
      load(buffers[i % kStages], in + i * kTile, kTileBytes, full[i % kStages]); // fault(released_by_one_of_two_warpgroups): read not waited for
    }
    return;
  }
  for (int i = 0; i < tiles; ++i) {
    wait(full[i % kStages], unsigned(i / kStages) & 1);
    PRODUCT(i % kStages);
    wait_products<0>();
    if (threadIdx.x == 0)
      arrive(empty[i % kStages]);
  }
  write_out(out, d);
}
CASE(released_by_one_of_two_warpgroups) {
  Device<float> out(1024);
  Device<Element> in(6 * kTile);
  released_by_one_of_two_warpgroups<<<1, 2 * kThreads + 32>>>(out, in, 6);
}

/// The second group waits for one tile and releases the next, which may count for that buffer's previous tile.
__global__ void released_before_it_is_full(float *out, const Element *in, int tiles) {
  RING(2);
  if (is_producer) {
    for (int i = 0; i < tiles; ++i) {
      if (i >= kStages)
        wait(empty[i % kStages], unsigned(i / kStages - 1) & 1);
      expect(full[i % kStages], kTileBytes);
      load(buffers[i % kStages], in + i * kTile, kTileBytes, full[i % kStages]);
    }
    return;
  }
  const bool uses = threadIdx.x < kThreads;
  for (int i = 0; i < tiles; ++i) {
    const int awaited = uses ? i : i - 1;
    if (awaited >= 0)
      wait(full[awaited % kStages], unsigned(awaited / kStages) & 1);
    if (uses) {
      PRODUCT(i % kStages);
      wait_products<0>();
    }
    if (threadIdx.x % kThreads == 0)
      arrive(empty[i % kStages]); // fault(released_before_it_is_full): barrier
  }
  if (uses)
    write_out(out, d);
}
CASE(released_before_it_is_full) {
  Device<float> out(512);
  Device<Element> in(6 * kTile);
  released_before_it_is_full<<<1, 2 * kThreads + 32>>>(out, in, 6);
}

__global__ void nothing_is_handed_back(float *out, const Element *in, int tiles) {
  RING(1);
  if (is_producer) {
    for (int i = 0; i < tiles; ++i) {
      expect(full[i % kStages], kTileBytes); // fault(nothing_is_handed_back): barrier
      load(buffers[i % kStages], in + i * kTile, kTileBytes, full[i % kStages]);
    }
    return;
  }
  for (int i = 0; i < tiles; ++i) {
    wait(full[i % kStages], unsigned(i / kStages) & 1);
    PRODUCT(i % kStages);
    wait_products<0>();
  }
  write_out(out, d);
}
CASE(nothing_is_handed_back) {
  Device<float> out(512);
  Device<Element> in(6 * kTile);
  nothing_is_handed_back<<<1, kThreads + 32>>>(out, in, 6);
}

/// Each stage is released before the threads have read it.
__global__ void released_before_it_is_read(Element *out, const Element *in, int tiles) {
  RING(kThreads);
  if (is_producer) {
    for (int i = 0; i < tiles; ++i) {
      if (i >= kStages)
        wait(empty[i % kStages], unsigned(i / kStages - 1) & 1);
      expect(full[i % kStages], kTileBytes);
      load(buffers[i % kStages], in + i * kTile, kTileBytes, full[i % kStages]);
    }
    return;
  }
  for (int i = 0; i < tiles; ++i) {
    wait(full[i % kStages], unsigned(i / kStages) & 1);
    arrive(empty[i % kStages]);
    out[threadIdx.x] = buffers[i % kStages][threadIdx.x]; // fault(released_before_it_is_read): race between warps
  }
  d[0] = 0;
}
CASE(released_before_it_is_read) {
  Device<Element> out(kTile);
  Device<Element> in(6 * kTile);
  released_before_it_is_read<<<1, kThreads + 32>>>(out, in, 6);
}

__global__ void product_of_the_next_stage(float *out, const Element *in, int tiles) {
  RING(1);
  if (is_producer) {
    for (int i = 0; i < tiles; ++i) {
      if (i >= kStages)
        wait(empty[i % kStages], unsigned(i / kStages - 1) & 1);
      expect(full[i % kStages], kTileBytes);
      load(buffers[i % kStages], in + i * kTile, kTileBytes, full[i % kStages]);
    }
    return;
  }
  for (int i = 0; i < tiles; ++i) {
    wait(full[i % kStages], unsigned(i / kStages) & 1);
    PRODUCT((i + 1) % kStages); // fault(product_of_the_next_stage): copy not waited for
    wait_products<0>();
    if (threadIdx.x == 0)
      arrive(empty[i % kStages]);
  }
  write_out(out, d);
}
CASE(product_of_the_next_stage) {
  Device<float> out(512);
  Device<Element> in(6 * kTile);
  product_of_the_next_stage<<<1, kThreads + 32>>>(out, in, 6);
}

__global__ void parity_never_flips(float *out, const Element *in, int tiles) {
  RING(1);
  if (is_producer) {
    for (int i = 0; i < tiles; ++i) {
      if (i >= kStages)
        wait(empty[i % kStages], unsigned(i / kStages - 1) & 1);
      expect(full[i % kStages], kTileBytes);
      load(buffers[i % kStages], in + i * kTile, kTileBytes, full[i % kStages]);
    }
    return;
  }
  for (int i = 0; i < tiles; ++i) {
    wait(full[i % kStages], 0);
    PRODUCT(i % kStages); // fault(parity_never_flips): copy not waited for
    wait_products<0>();
    if (threadIdx.x == 0)
      arrive(empty[i % kStages]);
  }
  write_out(out, d);
}
CASE(parity_never_flips) {
  Device<float> out(512);
  Device<Element> in(4 * kTile);
  parity_never_flips<<<1, kThreads + 32>>>(out, in, 4);
}

// --- phases ---------------------------------------------------------------------------------------------------------

__global__ void two_phases_and_nobody_looked(int *out) {
  __shared__ Barrier barrier;
  if (threadIdx.x == 0)
    init(barrier, 1);
  fence_barrier_init();
  if (threadIdx.x == 0)
    for (int i = 0; i < 2; ++i)
      arrive(barrier); // fault(two_phases_and_nobody_looked): barrier
  __syncthreads();
  wait(barrier, 1);
  out[threadIdx.x] = 1;
}
CASE(two_phases_and_nobody_looked) {
  Device<int> out(kThreads);
  two_phases_and_nobody_looked<<<1, kThreads>>>(out);
}

/// One warp of four arrives for all, though the others may still poll: they can miss the whole phase.
__global__ void leader_arrives_for_warps_that_wait(int *out, int rounds) {
  __shared__ Barrier full, empty;
  if (threadIdx.x == 0) {
    init(full, 1);
    init(empty, 1);
  }
  fence_barrier_init();
  if (threadIdx.x < kThreads)
    for (int i = 0; i < rounds; ++i) {
      wait(full, unsigned(i) & 1);
      if (threadIdx.x == 0)
        arrive(empty);
    }
  else if (threadIdx.x == kThreads)
    for (int i = 0; i < rounds; ++i) {
      if (i > 0)
        wait(empty, unsigned(i - 1) & 1);
      arrive(full); // fault(leader_arrives_for_warps_that_wait): barrier
    }
  __syncthreads();
  out[threadIdx.x] = rounds;
}
CASE(leader_arrives_for_warps_that_wait) {
  Device<int> out(kThreads + 32);
  leader_arrives_for_warps_that_wait<<<1, kThreads + 32>>>(out, 8);
}

/// The same with loads: the phase that the warps may miss completes by the bytes of the next tile.
__global__ void leader_releases_a_tile_for_all(Element *out, const Element *in, int tiles) {
  RING(1);
  if (is_producer) {
    for (int i = 0; i < tiles; ++i) {
      if (i >= kStages)
        wait(empty[i % kStages], unsigned(i / kStages - 1) & 1);
      expect(full[i % kStages], kTileBytes);
      load(buffers[i % kStages], in + i * kTile, kTileBytes, full[i % kStages]); // fault(leader_releases_a_tile_for_all): barrier
    }
    return;
  }
  for (int i = 0; i < tiles; ++i) {
    wait(full[i % kStages], unsigned(i / kStages) & 1);
    if (threadIdx.x == 0) {
      out[i] = buffers[i % kStages][0];
      arrive(empty[i % kStages]);
    }
  }
  d[0] = 0;
}
CASE(leader_releases_a_tile_for_all) {
  Device<Element> out(kTile);
  Device<Element> in(6 * kTile);
  leader_releases_a_tile_for_all<<<1, kThreads + 32>>>(out, in, 6);
}

/// An odd number of phases in one instruction: the parity alone cannot tell them from one.
__global__ void lanes_complete_three_phases(int *out) {
  __shared__ Barrier ready;
  __shared__ int value;
  if (threadIdx.x == 0)
    init(ready, 1);
  fence_barrier_init();
  if (threadIdx.x < 32) {
    if (threadIdx.x == 0)
      value = 5;
    if (threadIdx.x < 3)
      arrive(ready); // fault(lanes_complete_three_phases): barrier
  } else {
    wait(ready, 0);
    out[threadIdx.x] = value;
  }
}
CASE(lanes_complete_three_phases) {
  Device<int> out(kThreads);
  lanes_complete_three_phases<<<1, kThreads>>>(out);
}

#define BARRIER                                                                                              \
  __shared__ alignas(1024) Element tile[kTile];                                                              \
  __shared__ Barrier full;                                                                                   \
  if (threadIdx.x == 0)                                                                                      \
    init(full, 1);                                                                                           \
  fence_barrier_init()

__global__ void a_load_that_nobody_waits_for(Element *out, const Element *in) {
  BARRIER;
  if (threadIdx.x == 0) {
    expect(full, kTileBytes);
    load(tile, in, kTileBytes, full); // fault(a_load_that_nobody_waits_for): copy not waited for
  }
  out[threadIdx.x] = __float2bfloat16(1);
}
CASE(a_load_that_nobody_waits_for) {
  Device<Element> in(kTile), out(kTile);
  a_load_that_nobody_waits_for<<<1, kThreads>>>(out, in);
}

__global__ void only_one_warp_waits(Element *out, const Element *in) {
  BARRIER;
  if (threadIdx.x == 0) {
    expect(full, kTileBytes);
    load(tile, in, kTileBytes, full);
  }
  if (threadIdx.x < 32)
    wait(full, 0);
  __nanosleep(1000);
  out[threadIdx.x] = tile[threadIdx.x]; // fault(only_one_warp_waits): race between warps
}
CASE(only_one_warp_waits) {
  Device<Element> in(kTile), out(kTile);
  only_one_warp_waits<<<1, kThreads>>>(out, in);
}

__global__ void two_loads_to_one_place(Element *out, const Element *in) {
  BARRIER;
  if (threadIdx.x == 0) {
    expect(full, 2 * kTileBytes);
    load(tile, in, kTileBytes, full);
    load(tile, in + kTile, kTileBytes, full); // fault(two_loads_to_one_place): copy not waited for
  }
  wait(full, 0);
  out[threadIdx.x] = tile[threadIdx.x];
}
CASE(two_loads_to_one_place) {
  Device<Element> in(2 * kTile), out(kTile);
  two_loads_to_one_place<<<1, kThreads>>>(out, in);
}

__global__ void a_tile_written_while_it_is_loaded(Element *out, const Element *in) {
  BARRIER;
  if (threadIdx.x == 0) {
    expect(full, kTileBytes);
    load(tile, in, kTileBytes, full);
    tile[9] = __float2bfloat16(3); // fault(a_tile_written_while_it_is_loaded): copy not waited for
  }
  wait(full, 0);
  out[threadIdx.x] = tile[threadIdx.x];
}
CASE(a_tile_written_while_it_is_loaded) {
  Device<Element> in(kTile), out(kTile);
  a_tile_written_while_it_is_loaded<<<1, kThreads>>>(out, in);
}

__global__ void init_and_load_without_fence(Element *out, const Element *in) {
  __shared__ alignas(1024) Element tile[kTile];
  __shared__ Barrier full;
  if (threadIdx.x == 0) {
    init(full, 1);
    expect(full, kTileBytes);
    load(tile, in, kTileBytes, full); // fault(init_and_load_without_fence): proxy fence
  }
  __syncthreads();
  wait(full, 0);
  out[threadIdx.x] = tile[threadIdx.x];
}
CASE(init_and_load_without_fence) {
  Device<Element> in(kTile), out(kTile);
  init_and_load_without_fence<<<1, kThreads>>>(out, in);
}

__global__ void init_for_another_thread_without_fence(Element *out, const Element *in) {
  __shared__ alignas(1024) Element tile[kTile];
  __shared__ Barrier full;
  if (threadIdx.x == 0)
    init(full, 1);
  __syncthreads();
  if (threadIdx.x == 96) {
    expect(full, kTileBytes);
    load(tile, in, kTileBytes, full); // fault(init_for_another_thread_without_fence): proxy fence
  }
  wait(full, 0);
  out[threadIdx.x] = tile[threadIdx.x];
}
CASE(init_for_another_thread_without_fence) {
  Device<Element> in(kTile), out(kTile);
  init_for_another_thread_without_fence<<<1, kThreads>>>(out, in);
}

__global__ void load_over_what_threads_wrote(Element *out, const Element *in) {
  __shared__ alignas(1024) Element tile[kTile];
  __shared__ Barrier full;
  tile[threadIdx.x] = __float2bfloat16(3);
  out[threadIdx.x] = tile[threadIdx.x];
  if (threadIdx.x == 0)
    init(full, 1);
  fence_barrier_init();
  if (threadIdx.x == 0) {
    expect(full, kTileBytes);
    load(tile, in, kTileBytes, full); // fault(load_over_what_threads_wrote): proxy fence
  }
  wait(full, 0);
  out[threadIdx.x] = tile[threadIdx.x];
}
CASE(load_over_what_threads_wrote) {
  Device<Element> in(kTile), out(kTile);
  load_over_what_threads_wrote<<<1, kThreads>>>(out, in);
}

// --- cp.async and the asynchronous proxy ------------------------------------------------------------------------------

__global__ void product_of_copied_tiles_without_fence(float *out, const Element *in) {
  __shared__ alignas(1024) Element tile[kTile];
  copy_tile(tile, in);
  wait_copies();
  __syncthreads();
  Accumulator d = {};
  begin_products();
  product(d, descriptor(tile), descriptor(tile)); // fault(product_of_copied_tiles_without_fence): proxy fence
  commit_products();
  wait_products<0>();
  write_out(out, d);
}
CASE(product_of_copied_tiles_without_fence) {
  Device<float> out(512);
  Device<Element> in(kTile);
  product_of_copied_tiles_without_fence<<<1, kThreads>>>(out, in);
}

__global__ void fence_before_the_copies_are_there(float *out, const Element *in) {
  __shared__ alignas(1024) Element tile[kTile];
  copy_tile(tile, in);
  fence_proxy();
  wait_copies();
  __syncthreads();
  Accumulator d = {};
  begin_products();
  product(d, descriptor(tile), descriptor(tile)); // fault(fence_before_the_copies_are_there): proxy fence
  commit_products();
  wait_products<0>();
  write_out(out, d);
}
CASE(fence_before_the_copies_are_there) {
  Device<float> out(512);
  Device<Element> in(kTile);
  fence_before_the_copies_are_there<<<1, kThreads>>>(out, in);
}

__global__ void copied_tile_stored_without_fence(Element *out, const Element *in) {
  __shared__ alignas(1024) Element tile[kTile];
  copy_tile(tile, in);
  wait_copies();
  __syncthreads();
  if (threadIdx.x == 0) {
    store(out, tile, kTileBytes); // fault(copied_tile_stored_without_fence): proxy fence
    commit_stores();
    wait_stores_read<0>();
  }
}
CASE(copied_tile_stored_without_fence) {
  Device<Element> in(kTile), out(kTile);
  copied_tile_stored_without_fence<<<1, kThreads>>>(out, in);
}

// --- stores -----------------------------------------------------------------------------------------------------------

__global__ void others_do_not_wait_for_the_store(Element *out) {
  __shared__ alignas(1024) Element tile[kTile];
  fill(tile, 1);
  fence_proxy();
  __syncthreads();
  if (threadIdx.x == 0) {
    store(out, tile, kTileBytes);
    commit_stores();
    wait_stores_read<0>();
  }
  tile[threadIdx.x + 64] = __float2bfloat16(2); // fault(others_do_not_wait_for_the_store): read not waited for
}
CASE(others_do_not_wait_for_the_store) {
  Device<Element> out(kTile);
  others_do_not_wait_for_the_store<<<1, kThreads>>>(out);
}

__global__ void another_thread_waits_for_the_store(Element *out) {
  __shared__ alignas(1024) Element tile[kTile];
  fill(tile, 1);
  fence_proxy();
  __syncthreads();
  if (threadIdx.x == 0) {
    store(out, tile, kTileBytes);
    commit_stores();
  }
  if (threadIdx.x == 32)
    wait_stores_read<0>();
  __syncthreads();
  tile[threadIdx.x] = __float2bfloat16(2); // fault(another_thread_waits_for_the_store): read not waited for
}
CASE(another_thread_waits_for_the_store) {
  Device<Element> out(kTile);
  another_thread_waits_for_the_store<<<1, kThreads>>>(out);
}

/// What the producer writes behind its request is not there when the request's bytes are.
__global__ void written_behind_the_copy(Element *out, const Element *in, int offset) {
  __shared__ alignas(128) Element tile[kTile];
  __shared__ Barrier full;
  __shared__ int first;
  if (threadIdx.x == 0)
    init(full, 1);
  fence_barrier_init();
  if (threadIdx.x == 32) {
    expect(full, kTileBytes);
    load(tile, in, kTileBytes, full);
    first = offset;
  }
  if (threadIdx.x < 32) {
    wait(full, 0);
    out[threadIdx.x] = tile[first]; // fault(written_behind_the_copy): race between warps
  }
}
CASE(written_behind_the_copy) {
  Device<Element> in(kTile), out(kTile);
  written_behind_the_copy<<<1, 64>>>(out, in, 7);
}

__global__ void loaded_before_the_second_of_four_has_read(unsigned *out, const float4 *in, int tiles) {
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
        load(tile, in + 32 * i, sizeof tile, full); // fault(loaded_before_the_second_of_four_has_read): race between warps
      }
      continue;
    }
    wait(full, unsigned(i) & 1);
    if (warp == 2 && lane == 0)
      arrive(empty);
    sum += ldmatrix_x4(&tile[lane]);
    __syncwarp();
    if (warp != 2 && lane == 0)
      arrive(empty);
  }
  out[threadIdx.x] = sum;
}
CASE(loaded_before_the_second_of_four_has_read) {
  Device<float4> in(32 * 4);
  Device<unsigned> out(160);
  loaded_before_the_second_of_four_has_read<<<1, 160>>>(out, in, 4);
}

__global__ void loaded_after_ldmatrix_of_the_warp(unsigned *out, const float4 *in, int tiles) {
  __shared__ alignas(128) float4 tile[32];
  __shared__ Barrier full;
  if (threadIdx.x == 0)
    init(full, 1);
  fence_barrier_init();
  unsigned sum = 0;
  for (int i = 0; i < tiles; ++i) {
    if (threadIdx.x == 0) {
      expect(full, sizeof tile);
      load(tile, in + 32 * i, sizeof tile, full); // fault(loaded_after_ldmatrix_of_the_warp): race in a warp
    }
    wait(full, unsigned(i) & 1);
    sum += ldmatrix_x4(&tile[threadIdx.x]);
  }
  out[threadIdx.x] = sum;
}
CASE(loaded_after_ldmatrix_of_the_warp) {
  Device<float4> in(32 * 4);
  Device<unsigned> out(32);
  loaded_after_ldmatrix_of_the_warp<<<1, 32>>>(out, in, 4);
}

__global__ void every_lane_adds(float *out) {
  __shared__ alignas(128) float part[kThreads];
  part[threadIdx.x] = 1;
  fence_proxy();
  __syncthreads();
  if (threadIdx.x < 32) {
    add(out, part, sizeof part); // fault(every_lane_adds): election
    commit_stores();
    wait_stores_read<0>();
  }
}
CASE(every_lane_adds) {
  Device<float> out(kThreads);
  every_lane_adds<<<1, kThreads>>>(out);
}

__global__ void __launch_bounds__(384, 1) more_registers_than_there_are(int *out) {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 240;"); // fault(more_registers_than_there_are): mask
  out[threadIdx.x] = 1;
}
CASE(more_registers_than_there_are) {
  Device<int> out(384);
  more_registers_than_there_are<<<1, 384>>>(out);
}

} // namespace
