// Planted faults of what is used before it has been waited for: bytes that a phase does not expect, sums that
// are read back, registers of products. The line that must be named has a comment, as in faults_waits.cu.
// clang-format off: a fault's mark stands on the line of the fault, however long
#include "hopper.h"

namespace {

// --- bytes of an mbarrier's phase --------------------------------------------------------------------------

#define K_AND_V                                                                                              \
  __shared__ alignas(1024) Element k[kTile], v[kTile];                                                       \
  __shared__ Barrier full;                                                                                   \
  if (threadIdx.x == 0)                                                                                      \
    init(full, 1);                                                                                           \
  fence_barrier_init()

__global__ void bytes_of_one_copy_of_two(float *out, const Element *in) {
  K_AND_V;
  if (threadIdx.x == 0) {
    expect(full, kTileBytes);
    load(k, in, kTileBytes, full);
    load(v, in + kTile, kTileBytes, full);
  }
  wait(full, 0);
  const float sum = float(k[threadIdx.x]);
  out[threadIdx.x] = sum + float(v[threadIdx.x]); // fault(bytes_of_one_copy_of_two): copy not waited for
}
CASE(bytes_of_one_copy_of_two) {
  Device<float> out(kThreads);
  Device<Element> in(2 * kTile);
  bytes_of_one_copy_of_two<<<1, kThreads>>>(out, in);
}

/// The second copy is only used after other waits, and its phase is still not the one that was waited for.
__global__ void uncovered_copy_in_rounds(float *out, const Element *in, int rounds) {
  K_AND_V;
  float sum = 0.f;
  for (int i = 0; i < rounds; ++i) {
    if (threadIdx.x == 0) {
      expect(full, kTileBytes); // fault(uncovered_copy_in_rounds): copy not waited for
      load(k, in, kTileBytes, full);
      load(v, in + kTile, kTileBytes / 2, full);
    }
    wait(full, unsigned(i) & 1);
    sum += float(k[threadIdx.x]);
    __syncthreads();
  }
  out[threadIdx.x] = sum;
}
CASE(uncovered_copy_in_rounds) {
  Device<float> out(kThreads);
  Device<Element> in(2 * kTile);
  uncovered_copy_in_rounds<<<1, kThreads>>>(out, in, 1);
}

// --- what bulk stores and sums write -----------------------------------------------------------------------

#define PART                                                                                                 \
  __shared__ alignas(128) float part[kThreads];                                                              \
  part[threadIdx.x] = 1.f;                                                                                   \
  fence_proxy();                                                                                             \
  __syncthreads()

__global__ void sum_read_back_too_early(float *sum, float *out) {
  PART;
  if (threadIdx.x == 0) {
    add(sum, part, sizeof part);
    commit_stores();
    wait_stores_read<0>();
  }
  __syncthreads();
  out[threadIdx.x] = sum[threadIdx.x]; // fault(sum_read_back_too_early): copy not waited for
}
CASE(sum_read_back_too_early) {
  Device<float> sum(kThreads), out(kThreads);
  sum_read_back_too_early<<<1, kThreads>>>(sum, out);
}

__global__ void store_read_back_too_early(float *to, float *out) {
  PART;
  if (threadIdx.x == 0) {
    store(to, part, sizeof part);
    commit_stores();
    wait_stores_read<0>();
    out[0] = to[1]; // fault(store_read_back_too_early): copy not waited for
  }
}
CASE(store_read_back_too_early) {
  Device<float> to(kThreads), out(1);
  store_read_back_too_early<<<1, kThreads>>>(to, out);
}

__global__ void sum_handed_over_too_early(float *sum, unsigned *flag, float *out) {
  PART;
  if (blockIdx.x == 0) {
    if (threadIdx.x == 0) {
      add(sum, part, sizeof part);
      commit_stores();
      wait_stores_read<0>();
      __threadfence();
      atomicExch(flag, 1u);
    }
  } else {
    if (threadIdx.x == 0) {
      while (atomicAdd(flag, 0u) == 0) {
      }
      __threadfence();
    }
    __syncthreads();
    out[threadIdx.x] = sum[threadIdx.x]; // fault(sum_handed_over_too_early): copy not waited for
  }
}
CASE(sum_handed_over_too_early) {
  Device<float> sum(kThreads), out(kThreads);
  Device<unsigned> flag(1);
  sum_handed_over_too_early<<<2, kThreads>>>(sum, flag, out);
}

// --- memory of mbarriers -----------------------------------------------------------------------------------

__global__ void data_over_a_live_mbarrier(float *out, const float *in) {
  __shared__ union {
    Barrier barrier;
    float data[kThreads];
  } place;
  if (threadIdx.x == 0)
    init(place.barrier, kThreads);
  fence_barrier_init();
  arrive(place.barrier);
  wait(place.barrier, 0);
  __syncthreads();
  place.data[threadIdx.x] = in[threadIdx.x]; // fault(data_over_a_live_mbarrier): barrier
  __syncthreads();
  out[threadIdx.x] = place.data[kThreads - 1 - threadIdx.x];
}
CASE(data_over_a_live_mbarrier) {
  Device<float> out(kThreads), in(kThreads);
  data_over_a_live_mbarrier<<<1, kThreads>>>(out, in);
}

/// The tile is longer than the program says, and its last bytes are the mbarrier's.
__global__ void tile_loaded_over_its_mbarrier(Element *out, const Element *in) {
  __shared__ alignas(1024) struct {
    Element tile[kTile - 8];
    Barrier full;
  } place;
  __shared__ Barrier other;
  if (threadIdx.x == 0) {
    init(place.full, 1);
    init(other, 1);
  }
  fence_barrier_init();
  if (threadIdx.x == 0) {
    expect(other, kTileBytes);
    load(place.tile, in, kTileBytes, other); // fault(tile_loaded_over_its_mbarrier): barrier
  }
  wait(other, 0);
  out[threadIdx.x] = place.tile[threadIdx.x];
}
CASE(tile_loaded_over_its_mbarrier) {
  Device<Element> in(kTile), out(kThreads);
  tile_loaded_over_its_mbarrier<<<1, kThreads>>>(out, in);
}

// --- registers of products ---------------------------------------------------------------------------------

#define OPERANDS                                                                                             \
  __shared__ alignas(1024) Element a[kTile], b[kTile];                                                       \
  fill(a, 1.f);                                                                                              \
  fill(b, 2.f);                                                                                              \
  fence_proxy();                                                                                             \
  __syncthreads();                                                                                           \
  Accumulator d = {}

__global__ void accumulator_scaled_before_the_wait(float *out, int steps) {
  OPERANDS;
  for (int i = 0; i < steps; ++i) {
    begin_products();
    product(d, descriptor(a), descriptor(b));
    commit_products();
    for (float &value : d)
      value *= 0.5f; // fault(accumulator_scaled_before_the_wait): product not waited for
    wait_products<0>();
  }
  write_out(out, d);
}
CASE(accumulator_scaled_before_the_wait) {
  Device<float> out(4 * kThreads);
  accumulator_scaled_before_the_wait<<<1, kThreads>>>(out, 3);
}

__global__ void accumulator_stored_before_the_wait(float *out) {
  OPERANDS;
  begin_products();
  product(d, descriptor(a), descriptor(b));
  commit_products();
  write_out(out, d); // fault(accumulator_stored_before_the_wait): product not waited for
  wait_products<0>();
}
CASE(accumulator_stored_before_the_wait) {
  Device<float> out(4 * kThreads);
  accumulator_stored_before_the_wait<<<1, kThreads>>>(out);
}

__global__ void wait_for_one_group_of_two(float *out) {
  OPERANDS;
  Accumulator e = {};
  begin_products();
  product(d, descriptor(a), descriptor(b));
  commit_products();
  product(e, descriptor(b), descriptor(a));
  commit_products();
  wait_products<1>();
  write_out(out, d);
  write_out(out + 4 * kThreads, e); // fault(wait_for_one_group_of_two): product not waited for
  wait_products<0>();
}
CASE(wait_for_one_group_of_two) {
  Device<float> out(8 * kThreads);
  wait_for_one_group_of_two<<<1, kThreads>>>(out);
}

__global__ void scaled_without_a_fence(float *out, int steps) {
  OPERANDS;
  begin_products();
  for (int i = 0; i < steps; ++i) {
    product(d, descriptor(a), descriptor(b)); // fault(scaled_without_a_fence): wgmma fence
    commit_products();
    wait_products<0>();
    for (float &value : d)
      value *= 0.5f;
  }
  write_out(out, d);
}
CASE(scaled_without_a_fence) {
  Device<float> out(4 * kThreads);
  scaled_without_a_fence<<<1, kThreads>>>(out, 3);
}

__global__ void no_fence_at_all(float *out) {
  OPERANDS;
  product(d, descriptor(a), descriptor(b)); // fault(no_fence_at_all): wgmma fence
  commit_products();
  wait_products<0>();
  write_out(out, d);
}
CASE(no_fence_at_all) {
  Device<float> out(4 * kThreads);
  no_fence_at_all<<<1, kThreads>>>(out);
}

// --- global memory, for the async proxy ---------------------------------------------------------------------

/// Block 0 writes data and raises a flag; block 1 sees the flag and loads the data in bulk.
__global__ void flag_then_bulk_load(Element *data, int *flag, Element *out) {
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
    expect(full, sizeof tile);
    load(tile, data, sizeof tile, full); // fault(flag_then_bulk_load): proxy fence
  }
  __syncthreads();
  wait(full, 0);
  out[threadIdx.x] = tile[threadIdx.x];
}
CASE(flag_then_bulk_load) {
  Device<Element> data(kThreads), out(kThreads);
  Device<int> flag(1);
  flag_then_bulk_load<<<2, kThreads>>>(data, flag, out);
}

/// The sums begin at zero.
__global__ void added_to_unfenced_zeros(float *sums) {
  __shared__ alignas(128) float part[kThreads];
  sums[threadIdx.x] = 0.f;
  part[threadIdx.x] = float(threadIdx.x);
  fence_proxy();
  __syncthreads();
  if (threadIdx.x == 0) {
    add(sums, part, sizeof part); // fault(added_to_unfenced_zeros): proxy fence
    commit_stores();
    wait_stores<0>();
  }
}
CASE(added_to_unfenced_zeros) {
  Device<float> sums(kThreads);
  cudaMemset(sums, 1, sums.bytes);
  added_to_unfenced_zeros<<<1, kThreads>>>(sums);
}

// --- what may still be read -----------------------------------------------------------------------------------

/// Three warps read each tile by ldmatrix and hand it back.
__global__ void loaded_over_rows_that_ldmatrix_reads(unsigned *out, const float4 *in, int tiles) {
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
        load(tile, in + 32 * i, sizeof tile, full); // fault(loaded_over_rows_that_ldmatrix_reads): proxy fence
      }
      continue;
    }
    wait(full, unsigned(i) & 1);
    sum += ldmatrix_x4(&tile[lane]);
    __syncwarp();
    if (lane == 0)
      arrive(empty);
  }
  out[threadIdx.x] = sum;
}
CASE(loaded_over_rows_that_ldmatrix_reads) {
  Device<float4> in(32 * 4);
  Device<unsigned> out(kThreads);
  loaded_over_rows_that_ldmatrix_reads<<<1, kThreads>>>(out, in, 4);
}

/// One thread loads a box of each of two tensors, by one map in memory that it changes in between.
__global__ void map_changed_under_a_load(CUtensorMap *map, const CUtensorMap *second, Element *out) {
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
    for (int i = 0; i < 16; ++i)
      reinterpret_cast<unsigned long long *>(map)[i] = reinterpret_cast<const unsigned long long *>(second)[i]; // fault(map_changed_under_a_load): read not waited for
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
CASE(map_changed_under_a_load) {
  Device<Element> a(kTile), b(kTile), out(2 * kThreads);
  Device<CUtensorMap> maps(2);
  const CUtensorMap both[2] = {map_of(a, CU_TENSOR_MAP_SWIZZLE_NONE, 64),
                               map_of(b, CU_TENSOR_MAP_SWIZZLE_NONE, 64)};
  cudaMemcpy(maps, both, sizeof both, cudaMemcpyHostToDevice);
  map_changed_under_a_load<<<1, kThreads>>>(maps, maps + 1, out);
}

// --- launches that begin early ----------------------------------------------------------------------------------

__global__ void produce(int *data) {
  asm volatile("griddepcontrol.launch_dependents;");
  data[blockIdx.x * kThreads + threadIdx.x] = 7;
}

__global__ void read_before_the_producer_has_ended(const int *in, int *out) {
  out[blockIdx.x * kThreads + threadIdx.x] = in[blockIdx.x * kThreads + threadIdx.x] + 1; // fault(read_before_the_producer_has_ended): race between streams
}
CASE(read_before_the_producer_has_ended) {
  Device<int> data(4 * kThreads), out(4 * kThreads);
  produce<<<4, kThreads>>>(data);
  launch_early(read_before_the_producer_has_ended, data.data, out.data);
}

/// The wait comes after the read.
__global__ void read_before_the_wait(const int *in, int *out) {
  const int first = in[threadIdx.x]; // fault(read_before_the_wait): race between streams
  asm volatile("griddepcontrol.wait;" ::: "memory");
  out[threadIdx.x] = first;
  out[blockIdx.x * kThreads + threadIdx.x] = in[blockIdx.x * kThreads + threadIdx.x] + 1;
}
CASE(read_before_the_wait) {
  Device<int> data(4 * kThreads), out(4 * kThreads);
  produce<<<4, kThreads>>>(data);
  launch_early(read_before_the_wait, data.data, out.data);
}

} // namespace
