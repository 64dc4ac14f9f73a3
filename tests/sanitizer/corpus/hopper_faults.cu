// Planted faults of asynchronous programs. The line that must be named has a comment, as in faults.cu.
// clang-format off: a fault's mark stands on the line of the fault, however long
#include "hopper.h"

namespace {

#define TILES                                                                                                \
  __shared__ alignas(1024) Element a[kTile], b[kTile];                                                       \
  Accumulator d = {}

// --- the fence between threads and the asynchronous proxy ----------------------------------------------------

__global__ void product_without_proxy_fence(float *out) {
  TILES;
  fill(a, 1);
  fill(b, 2);
  __syncthreads();
  begin_products();
  product(d, descriptor(a), descriptor(b)); // fault(product_without_proxy_fence): proxy fence
  commit_products();
  wait_products<0>();
  write_out(out, d);
}
CASE(product_without_proxy_fence) {
  Device<float> out(512);
  product_without_proxy_fence<<<1, kThreads>>>(out);
}

__global__ void proxy_fence_before_the_write(float *out) {
  TILES;
  fill(a, 1);
  fence_proxy();
  fill(b, 2);
  __syncthreads();
  begin_products();
  product(d, descriptor(a), descriptor(b)); // fault(proxy_fence_before_the_write): proxy fence
  commit_products();
  wait_products<0>();
  write_out(out, d);
}
CASE(proxy_fence_before_the_write) {
  Device<float> out(512);
  proxy_fence_before_the_write<<<1, kThreads>>>(out);
}

__global__ void proxy_fence_by_one_warp(float *out) {
  TILES;
  fill(a, 1);
  fill(b, 2);
  if (threadIdx.x < 32)
    fence_proxy();
  __syncthreads();
  begin_products();
  product(d, descriptor(a), descriptor(b)); // fault(proxy_fence_by_one_warp): proxy fence
  commit_products();
  wait_products<0>();
  write_out(out, d);
}
CASE(proxy_fence_by_one_warp) {
  Device<float> out(512);
  proxy_fence_by_one_warp<<<1, kThreads>>>(out);
}

/// The threads that read do not know of the fence, whenever it is executed.
__global__ void proxy_fence_that_nobody_waits_for(float *out) {
  __shared__ alignas(1024) Element a[kTile];
  Accumulator d = {};
  if (threadIdx.x >= kThreads)
    for (int i = int(threadIdx.x) - kThreads; i < kTile; i += kThreads)
      a[i] = __float2bfloat16(1);
  __syncthreads();
  if (threadIdx.x >= kThreads) {
    if (threadIdx.x == kThreads)
      fence_proxy();
    return;
  }
  begin_products();
  product(d, descriptor(a), descriptor(a)); // fault(proxy_fence_that_nobody_waits_for): proxy fence
  commit_products();
  wait_products<0>();
  write_out(out, d);
}
CASE(proxy_fence_that_nobody_waits_for) {
  Device<float> out(512);
  proxy_fence_that_nobody_waits_for<<<1, 2 * kThreads>>>(out);
}

__global__ void store_without_proxy_fence(Element *out) {
  __shared__ alignas(1024) Element tile[kTile];
  fill(tile, 1);
  __syncthreads();
  if (threadIdx.x == 0) {
    store(out, tile, kTileBytes); // fault(store_without_proxy_fence): proxy fence
    commit_stores();
    wait_stores_read<0>();
  }
}
CASE(store_without_proxy_fence) {
  Device<Element> out(kTile);
  store_without_proxy_fence<<<1, kThreads>>>(out);
}

__global__ void epilogue_reuses_a_fenced_tile(Element *out) {
  __shared__ alignas(1024) Element tile[kTile];
  fill(tile, 1);
  fence_proxy();
  __syncthreads();
  if (threadIdx.x == 0) {
    store(out, tile, kTileBytes);
    commit_stores();
    wait_stores_read<0>();
  }
  __syncthreads();
  fill(tile, 2);
  __syncthreads();
  if (threadIdx.x == 0) {
    store(out + kTile, tile, kTileBytes); // fault(epilogue_reuses_a_fenced_tile): proxy fence
    commit_stores();
    wait_stores_read<0>();
  }
}
CASE(epilogue_reuses_a_fenced_tile) {
  Device<Element> out(2 * kTile);
  epilogue_reuses_a_fenced_tile<<<1, kThreads>>>(out);
}

__global__ void product_without_barrier(float *out) {
  TILES;
  fill(a, 1);
  fill(b, 2);
  fence_proxy();
  begin_products();
  product(d, descriptor(a), descriptor(b)); // fault(product_without_barrier): race between warps
  commit_products();
  wait_products<0>();
  write_out(out, d);
}
CASE(product_without_barrier) {
  Device<float> out(512);
  product_without_barrier<<<1, kThreads>>>(out);
}

// --- memory that is still being read --------------------------------------------------------------------------

#define FILLED                                                                                               \
  TILES;                                                                                                     \
  fill(a, 1);                                                                                                \
  fill(b, 2);                                                                                                \
  fence_proxy();                                                                                             \
  __syncthreads();                                                                                           \
  begin_products()

__global__ void operand_written_before_the_wait(float *out) {
  FILLED;
  product(d, descriptor(a), descriptor(b));
  commit_products();
  b[threadIdx.x] = __float2bfloat16(9); // fault(operand_written_before_the_wait): read not waited for
  wait_products<0>();
  write_out(out, d);
}
CASE(operand_written_before_the_wait) {
  Device<float> out(512);
  operand_written_before_the_wait<<<1, kThreads>>>(out);
}

__global__ void wait_without_commit(float *out) {
  FILLED;
  product(d, descriptor(a), descriptor(b));
  wait_products<0>();
  b[threadIdx.x] = __float2bfloat16(9); // fault(wait_without_commit): read not waited for
  commit_products();
  wait_products<0>();
  write_out(out, d);
}
CASE(wait_without_commit) {
  Device<float> out(512);
  wait_without_commit<<<1, kThreads>>>(out);
}

__global__ void wait_for_the_group_before(float *out) {
  FILLED;
  product(d, descriptor(a), descriptor(a));
  commit_products();
  product(d, descriptor(a), descriptor(b));
  commit_products();
  wait_products<1>();
  b[threadIdx.x] = __float2bfloat16(9); // fault(wait_for_the_group_before): read not waited for
  wait_products<0>();
  write_out(out, d);
}
CASE(wait_for_the_group_before) {
  Device<float> out(512);
  wait_for_the_group_before<<<1, kThreads>>>(out);
}

__global__ void buffer_refilled_before_the_wait(float *out, const Element *in) {
  __shared__ Barrier full;
  if (threadIdx.x == 0)
    init(full, 1);
  fence_barrier_init();
  FILLED;
  product(d, descriptor(a), descriptor(b));
  commit_products();
  if (threadIdx.x == 0) {
    expect(full, kTileBytes);
    load(b, in, kTileBytes, full); // fault(buffer_refilled_before_the_wait): read not waited for
  }
  wait_products<0>();
  wait(full, 0);
  write_out(out, d);
}
CASE(buffer_refilled_before_the_wait) {
  Device<float> out(512);
  Device<Element> in(kTile);
  buffer_refilled_before_the_wait<<<1, kThreads>>>(out, in);
}

__global__ void buffer_handed_back_before_the_wait(float *out, const Element *in) {
  __shared__ Barrier full, empty;
  if (threadIdx.x == 0) {
    init(full, 1);
    init(empty, 1);
  }
  fence_barrier_init();
  FILLED;
  product(d, descriptor(a), descriptor(b));
  commit_products();
  if (threadIdx.x == 0)
    arrive(empty);
  if (threadIdx.x == 0) {
    wait(empty, 0);
    expect(full, kTileBytes);
    load(b, in, kTileBytes, full); // fault(buffer_handed_back_before_the_wait): read not waited for
  }
  __syncwarp();
  wait_products<0>();
  wait(full, 0);
  write_out(out, d);
}
CASE(buffer_handed_back_before_the_wait) {
  Device<float> out(512);
  Device<Element> in(kTile);
  buffer_handed_back_before_the_wait<<<1, kThreads>>>(out, in);
}

__global__ void source_of_a_store_written(Element *out) {
  __shared__ alignas(1024) Element tile[kTile];
  fill(tile, 1);
  fence_proxy();
  __syncthreads();
  if (threadIdx.x == 0) {
    store(out, tile, kTileBytes);
    commit_stores();
    tile[5] = __float2bfloat16(9); // fault(source_of_a_store_written): read not waited for
    wait_stores_read<0>();
  }
}
CASE(source_of_a_store_written) {
  Device<Element> out(kTile);
  source_of_a_store_written<<<1, kThreads>>>(out);
}

__global__ void one_block_adds_and_one_stores(float *out) {
  __shared__ alignas(128) float part[kThreads];
  part[threadIdx.x] = 1;
  fence_proxy();
  __syncthreads();
  if (blockIdx.x == 1)
    out[threadIdx.x] = 2; // fault(one_block_adds_and_one_stores): race between blocks
  else if (threadIdx.x == 0) {
    add(out, part, sizeof part);
    commit_stores();
    wait_stores_read<0>();
  }
}
CASE(one_block_adds_and_one_stores) {
  Device<float> out(kThreads);
  one_block_adds_and_one_stores<<<2, kThreads>>>(out);
}

__global__ void wait_for_the_store_before(Element *out) {
  __shared__ alignas(1024) Element tiles[2][kTile];
  fill(tiles[0], 1);
  fill(tiles[1], 2);
  fence_proxy();
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; ++i) {
      store(out + i * kTile, tiles[i], kTileBytes);
      commit_stores();
    }
    wait_stores_read<1>();
    tiles[0][5] = __float2bfloat16(9);
    tiles[1][5] = __float2bfloat16(9); // fault(wait_for_the_store_before): read not waited for
    wait_stores_read<0>();
  }
}
CASE(wait_for_the_store_before) {
  Device<Element> out(2 * kTile);
  wait_for_the_store_before<<<1, kThreads>>>(out);
}

__global__ void exit_before_the_store_has_read(Element *out) {
  __shared__ alignas(1024) Element tile[kTile];
  fill(tile, 1);
  fence_proxy();
  __syncthreads();
  if (threadIdx.x == 0) {
    store(out, tile, kTileBytes); // fault(exit_before_the_store_has_read): read not waited for
    commit_stores();
  }
}
CASE(exit_before_the_store_has_read) {
  Device<Element> out(kTile);
  exit_before_the_store_has_read<<<1, kThreads>>>(out);
}

// --- data that has not arrived ----------------------------------------------------------------------------------

#define LOADED(bytes)                                                                                        \
  __shared__ alignas(1024) Element tile[kTile];                                                              \
  __shared__ Barrier full;                                                                                   \
  if (threadIdx.x == 0)                                                                                      \
    init(full, 1);                                                                                           \
  fence_barrier_init();                                                                                        \
  if (threadIdx.x == 0) {                                                                                    \
    expect(full, bytes);                                                                                     \
    load(tile, in, kTileBytes, full);                                                                        \
  }                                                                                                          \
  __syncthreads()

__global__ void load_without_wait(Element *out, const Element *in) {
  LOADED(kTileBytes);
  out[threadIdx.x] = tile[threadIdx.x]; // fault(load_without_wait): copy not waited for
}
CASE(load_without_wait) {
  Device<Element> in(kTile), out(kTile);
  load_without_wait<<<1, kThreads>>>(out, in);
}

__global__ void wait_for_the_other_parity(Element *out, const Element *in) {
  LOADED(kTileBytes);
  wait(full, 1);
  out[threadIdx.x] = tile[threadIdx.x]; // fault(wait_for_the_other_parity): copy not waited for
}
CASE(wait_for_the_other_parity) {
  Device<Element> in(kTile), out(kTile);
  wait_for_the_other_parity<<<1, kThreads>>>(out, in);
}

__global__ void product_of_a_tile_on_its_way(float *out, const Element *in) {
  LOADED(kTileBytes);
  Accumulator d = {};
  begin_products();
  product(d, descriptor(tile), descriptor(tile)); // fault(product_of_a_tile_on_its_way): copy not waited for
  commit_products();
  wait_products<0>();
  write_out(out, d);
}
CASE(product_of_a_tile_on_its_way) {
  Device<float> out(512);
  Device<Element> in(kTile);
  product_of_a_tile_on_its_way<<<1, kThreads>>>(out, in);
}

// --- mbarriers ----------------------------------------------------------------------------------------------------

__global__ void more_bytes_expected_than_come(Element *out, const Element *in) {
  LOADED(2 * kTileBytes);
  wait(full, 0); // fault(more_bytes_expected_than_come): barrier
  out[threadIdx.x] = tile[threadIdx.x];
}
CASE(more_bytes_expected_than_come) {
  Device<Element> in(kTile), out(kTile);
  more_bytes_expected_than_come<<<1, kThreads>>>(out, in);
}

__global__ void fewer_bytes_expected_than_come(Element *out, const Element *in) {
  LOADED(kTileBytes / 2);
  wait(full, 0); // fault(fewer_bytes_expected_than_come): barrier
  out[threadIdx.x] = tile[threadIdx.x];
}
CASE(fewer_bytes_expected_than_come) {
  Device<Element> in(kTile), out(kTile);
  fewer_bytes_expected_than_come<<<1, kThreads>>>(out, in);
}

__global__ void an_arrival_is_missing(int *out) {
  __shared__ Barrier barrier;
  if (threadIdx.x == 0)
    init(barrier, kThreads);
  fence_barrier_init();
  if (threadIdx.x != 7)
    arrive(barrier);
  wait(barrier, 0); // fault(an_arrival_is_missing): barrier
  out[threadIdx.x] = 1;
}
CASE(an_arrival_is_missing) {
  Device<int> out(kThreads);
  an_arrival_is_missing<<<1, kThreads>>>(out);
}

__global__ void too_many_arrivals() {
  __shared__ Barrier barrier;
  if (threadIdx.x == 0)
    init(barrier, 3);
  fence_barrier_init();
  if (threadIdx.x < 2)
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], 2;" ::"r"(shared_address(&barrier)) : "memory"); // fault(too_many_arrivals): barrier
}
CASE(too_many_arrivals) { too_many_arrivals<<<1, kThreads>>>(); }

__global__ void mbarrier_before_its_init_is_known(int *out) {
  __shared__ Barrier barrier;
  if (threadIdx.x == 0)
    init(barrier, kThreads);
  arrive(barrier); // fault(mbarrier_before_its_init_is_known): race in a warp
  wait(barrier, 0);
  out[threadIdx.x] = 1;
}
CASE(mbarrier_before_its_init_is_known) {
  Device<int> out(kThreads);
  mbarrier_before_its_init_is_known<<<1, kThreads>>>(out);
}

__global__ void mbarrier_never_initialised() {
  __shared__ Barrier barrier;
  arrive(barrier); // fault(mbarrier_never_initialised): uninitialised read
}
CASE(mbarrier_never_initialised) { mbarrier_never_initialised<<<1, 1>>>(); }

__global__ void mbarrier_initialised_twice() {
  __shared__ Barrier barrier;
  for (int i = 0; i < 2; ++i) {
    init(barrier, 1); // fault(mbarrier_initialised_twice): barrier
    arrive(barrier);
    wait(barrier, 0);
  }
}
CASE(mbarrier_initialised_twice) { mbarrier_initialised_twice<<<1, 1>>>(); }

__global__ void every_lane_loads(Element *out, const Element *in) {
  __shared__ alignas(1024) Element tile[kTile];
  __shared__ Barrier full;
  if (threadIdx.x == 0) {
    init(full, 1);
    expect(full, 32 * kTileBytes);
  }
  fence_barrier_init();
  if (threadIdx.x < 32)
    load(tile, in, kTileBytes, full); // fault(every_lane_loads): election
  wait(full, 0);
  out[threadIdx.x] = tile[threadIdx.x];
}
CASE(every_lane_loads) {
  Device<Element> in(kTile), out(kTile);
  every_lane_loads<<<1, kThreads>>>(out, in);
}

// --- descriptors and tensor maps -------------------------------------------------------------------------------

__global__ void descriptor_out_of_shared_memory(float *out) {
  FILLED;
  product(d, descriptor(a), descriptor(b) + 0x3000); // fault(descriptor_out_of_shared_memory): out of bounds
  commit_products();
  wait_products<0>();
  write_out(out, d);
}
CASE(descriptor_out_of_shared_memory) {
  Device<float> out(512);
  descriptor_out_of_shared_memory<<<1, kThreads>>>(out);
}

__global__ void three_warps(float *out) {
  FILLED; // fault(three_warps): mask
  product(d, descriptor(a), descriptor(b));
  commit_products();
  wait_products<0>();
  write_out(out, d);
}
CASE(three_warps) {
  Device<float> out(512);
  three_warps<<<1, 96>>>(out);
}

__global__ void descriptors_differ(float *out) {
  FILLED;
  product(d, descriptor(a), descriptor(threadIdx.x < 64 ? a : b)); // fault(descriptors_differ): mask
  commit_products();
  wait_products<0>();
  write_out(out, d);
}
CASE(descriptors_differ) {
  Device<float> out(512);
  descriptors_differ<<<1, kThreads>>>(out);
}

__global__ void swizzles_differ(const __grid_constant__ CUtensorMap map, float *out) {
  __shared__ alignas(1024) Element tile[kTile];
  __shared__ Barrier full;
  if (threadIdx.x == 0) {
    init(full, 1);
    expect(full, kTileBytes);
  }
  fence_barrier_init();
  if (threadIdx.x == 0)
    load_box(tile, map, 0, 0, full);
  wait(full, 0);
  Accumulator d = {};
  begin_products();
  product(d, descriptor(tile), descriptor(tile, 2)); // fault(swizzles_differ): swizzle
  commit_products();
  wait_products<0>();
  write_out(out, d);
}
CASE(swizzles_differ) {
  Device<float> out(512);
  Device<Element> in(kTile);
  swizzles_differ<<<1, kThreads>>>(map_of(in, CU_TENSOR_MAP_SWIZZLE_128B, 64), out);
}

/// The box lies in memory, but the map begins before it.
__global__ void map_before_memory(const __grid_constant__ CUtensorMap map, Element *out) {
  __shared__ alignas(1024) Element tile[kTile];
  __shared__ Barrier full;
  if (threadIdx.x == 0) {
    init(full, 1);
    expect(full, kTileBytes);
  }
  fence_barrier_init();
  if (threadIdx.x == 0)
    load_box(tile, map, 0, 32, full); // fault(map_before_memory): out of bounds
  wait(full, 0);
  out[threadIdx.x] = tile[threadIdx.x];
}
CASE(map_before_memory) {
  Device<Element> in(kTile), out(kTile);
  map_before_memory<<<1, kThreads>>>(map_of(in - 32 * 64, CU_TENSOR_MAP_SWIZZLE_128B, 64), out);
}

__global__ void no_tensor_map(const __grid_constant__ CUtensorMap map) {
  __shared__ alignas(1024) Element tile[kTile];
  __shared__ Barrier full;
  if (threadIdx.x == 0) {
    init(full, 1);
    expect(full, kTileBytes);
  }
  fence_barrier_init();
  if (threadIdx.x == 0)
    load_box(tile, map, 0, 0, full); // fault(no_tensor_map): fault
  wait(full, 0);
}
CASE(no_tensor_map) { no_tensor_map<<<1, kThreads>>>(CUtensorMap{{1, 2, 3}}); }

__device__ inline void store_box(const CUtensorMap &map, int x, int y, const void *from) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map), "r"(x),
      "r"(y), "r"(shared_address(from))
      : "memory");
}

/// Loads may begin before a tensor, stores may not.
__global__ void store_before_tensor(const __grid_constant__ CUtensorMap map) {
  __shared__ alignas(1024) Element tile[kTile];
  for (int i = threadIdx.x; i < kTile; i += kThreads)
    tile[i] = __float2bfloat16(1.f);
  fence_proxy();
  __syncthreads();
  if (threadIdx.x == 0) {
    store_box(map, 0, -32, tile); // fault(store_before_tensor): fault
    commit_stores();
    wait_stores_read<0>();
  }
}
CASE(store_before_tensor) {
  Device<Element> out(kTile);
  store_before_tensor<<<1, kThreads>>>(map_of(out, CU_TENSOR_MAP_SWIZZLE_128B, 64));
}

} // namespace
