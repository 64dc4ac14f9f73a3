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

} // namespace
