// Asynchronous programs that look as if something were wrong, and are right.
#include "hopper.h"

namespace {

#define TILES                                                                                                \
  __shared__ alignas(1024) Element a[kTile], b[kTile];                                                       \
  Accumulator d = {};                                                                                        \
  fill(a, 1);                                                                                                \
  fill(b, 2);                                                                                                \
  fence_proxy();                                                                                             \
  __syncthreads();                                                                                           \
  begin_products()

__global__ void chain(float *out) {
  TILES;
  for (int k = 0; k < 4; ++k)
    product(d, descriptor(a) + 2 * k, descriptor(b) + 2 * k);
  commit_products();
  wait_products<0>();
  write_out(out, d);
}
CASE(chain) {
  Device<float> out(512);
  chain<<<1, kThreads>>>(out);
}

__global__ void fence_by_who_reads(float *out) {
  __shared__ alignas(1024) Element a[kTile];
  Accumulator d = {};
  if (threadIdx.x >= kThreads)
    for (int i = int(threadIdx.x) - kThreads; i < kTile; i += kThreads)
      a[i] = __float2bfloat16(float(i % 5));
  __syncthreads();
  if (threadIdx.x >= kThreads)
    return;
  fence_proxy();
  begin_products();
  product(d, descriptor(a), descriptor(a));
  commit_products();
  wait_products<0>();
  write_out(out, d);
}
CASE(fence_by_who_reads) {
  Device<float> out(512);
  fence_by_who_reads<<<1, 2 * kThreads>>>(out);
}

/// The fence's thread knows of the writes, and who reads knows of the fence.
__global__ void fence_by_a_thread_in_between(float *out) {
  __shared__ alignas(1024) Element a[kTile];
  Accumulator d = {};
  if (threadIdx.x >= kThreads)
    for (int i = int(threadIdx.x) - kThreads; i < kTile; i += kThreads)
      a[i] = __float2bfloat16(float(i % 5));
  __syncthreads();
  if (threadIdx.x == kThreads)
    fence_proxy();
  __syncthreads();
  if (threadIdx.x >= kThreads)
    return;
  begin_products();
  product(d, descriptor(a), descriptor(a));
  commit_products();
  wait_products<0>();
  write_out(out, d);
}
CASE(fence_by_a_thread_in_between) {
  Device<float> out(512);
  fence_by_a_thread_in_between<<<1, 2 * kThreads>>>(out);
}

__global__ void operand_of_the_older_group_written(float *out) {
  TILES;
  product(d, descriptor(a), descriptor(a));
  commit_products();
  product(d, descriptor(b), descriptor(b));
  commit_products();
  wait_products<1>();
  a[threadIdx.x] = __float2bfloat16(3);
  wait_products<0>();
  write_out(out, d);
}
CASE(operand_of_the_older_group_written) {
  Device<float> out(512);
  operand_of_the_older_group_written<<<1, kThreads>>>(out);
}

/// A ring of two buffers; one thread of the warpgroup hands a buffer back for all.
__global__ void ring(float *out, const Element *in, int tiles) {
  __shared__ alignas(1024) Element buffers[2][kTile];
  __shared__ Barrier full[2], empty[2];
  if (threadIdx.x == 0)
    for (int i = 0; i < 2; ++i) {
      init(full[i], 1);
      init(empty[i], 1);
    }
  fence_barrier_init();
  if (threadIdx.x >= kThreads) {
    if (threadIdx.x == kThreads)
      for (int i = 0; i < tiles; ++i) {
        if (i >= 2)
          wait(empty[i % 2], unsigned(i / 2 - 1) & 1);
        expect(full[i % 2], kTileBytes);
        load(buffers[i % 2], in + i * kTile, kTileBytes, full[i % 2]);
      }
    return;
  }
  Accumulator d = {};
  for (int i = 0; i < tiles; ++i) {
    wait(full[i % 2], unsigned(i / 2) & 1);
    begin_products();
    product(d, descriptor(buffers[i % 2]), descriptor(buffers[i % 2]));
    commit_products();
    wait_products<0>();
    if (threadIdx.x == 37)
      arrive(empty[i % 2]);
  }
  write_out(out, d);
}
CASE(ring) {
  Device<float> out(512);
  Device<Element> in(7 * kTile);
  ring<<<1, kThreads + 32>>>(out, in, 7);
}

__global__ void store_and_reuse(Element *out) {
  __shared__ alignas(1024) Element tile[kTile];
  for (int i = 0; i < 3; ++i) {
    fill(tile, float(i));
    fence_proxy();
    __syncthreads();
    if (threadIdx.x == 0) {
      store(out + i * kTile, tile, kTileBytes);
      commit_stores();
      wait_stores_read<0>();
    }
    __syncthreads();
  }
}
CASE(store_and_reuse) {
  Device<Element> out(3 * kTile);
  store_and_reuse<<<1, kThreads>>>(out);
}

__global__ void blocks_add(float *out) {
  __shared__ alignas(128) float part[kThreads];
  for (int i = 0; i < 2; ++i) {
    part[threadIdx.x] = float(blockIdx.x + i);
    fence_proxy();
    __syncthreads();
    if (threadIdx.x == 0) {
      add(out, part, sizeof part); // remark(blocks_add): order of additions
      commit_stores();
      wait_stores_read<0>();
    }
    __syncthreads();
  }
}
CASE(blocks_add) {
  Device<float> out(kThreads);
  blocks_add<<<3, kThreads>>>(out);
}

/// A block passes the turn when its addition is complete, or when only its shared memory has been read.
template <bool kIsComplete> __global__ void bulk_adds_in_turn(float *out, int *turn) {
  __shared__ alignas(128) float part[kThreads];
  part[threadIdx.x] = float(blockIdx.x);
  fence_proxy();
  __syncthreads();
  if (threadIdx.x != 0)
    return;
  int now;
  do
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(now) : "l"(turn) : "memory");
  while (now != int(blockIdx.x));
  asm volatile("fence.proxy.async.global;" ::: "memory");
  add(out, part, sizeof part); // remark(bulk_adds_on_their_way): order of additions
  commit_stores();
  if (kIsComplete)
    wait_stores<0>();
  else
    wait_stores_read<0>();
  asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(turn), "r"(now + 1) : "memory");
}
CASE(bulk_adds_in_turn) {
  Device<float> out(kThreads);
  Device<int> turn(1);
  bulk_adds_in_turn<true><<<3, kThreads>>>(out, turn);
}
CASE(bulk_adds_on_their_way) {
  Device<float> out(kThreads);
  Device<int> turn(1);
  bulk_adds_in_turn<false><<<3, kThreads>>>(out, turn);
}

__global__ void every_lane_loads_its_row(Element *out, const Element *in) {
  __shared__ alignas(1024) Element tile[kTile];
  __shared__ Barrier full;
  if (threadIdx.x == 0) {
    init(full, 1);
    expect(full, 32 * 128);
  }
  fence_barrier_init();
  if (threadIdx.x < 32)
    load(tile + 64 * threadIdx.x, in + 64 * threadIdx.x, 128, full);
  wait(full, 0);
  for (int i = int(threadIdx.x); i < 32 * 64; i += kThreads)
    out[i] = tile[i];
}
CASE(every_lane_loads_its_row) {
  Device<Element> in(kTile), out(kTile);
  every_lane_loads_its_row<<<1, kThreads>>>(out, in);
}

__global__ void expect_after_the_copy(Element *out, const Element *in) {
  __shared__ alignas(1024) Element tile[kTile];
  __shared__ Barrier full;
  if (threadIdx.x == 0)
    init(full, 1);
  fence_barrier_init();
  if (threadIdx.x == 0) {
    load(tile, in, kTileBytes, full);
    expect(full, kTileBytes);
  }
  wait(full, 0);
  for (int i = int(threadIdx.x); i < kTile; i += kThreads)
    out[i] = tile[i];
}
CASE(expect_after_the_copy) {
  Device<Element> in(kTile), out(kTile);
  expect_after_the_copy<<<1, kThreads>>>(out, in);
}

__global__ void phases(int *out) {
  __shared__ Barrier barrier;
  __shared__ int value;
  if (threadIdx.x == 0)
    init(barrier, kThreads);
  fence_barrier_init();
  for (unsigned i = 0; i < 8; ++i) {
    if (threadIdx.x == i)
      value = int(i);
    arrive(barrier);
    wait(barrier, i & 1);
    if (value != int(i))
      out[threadIdx.x] = -1;
    __syncthreads();
  }
  out[threadIdx.x] = value;
}
CASE(phases) {
  Device<int> out(kThreads);
  phases<<<1, kThreads>>>(out);
}

__global__ void __launch_bounds__(384, 1) registers_move(int *out) {
  if (threadIdx.x < 128)
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
  else
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
  out[threadIdx.x] = 1;
}
CASE(registers_move) {
  Device<int> out(384);
  registers_move<<<1, 384>>>(out);
}

__global__ void __cluster_dims__(2, 1, 1) neighbours(int *out) {
  __shared__ int own;
  unsigned rank, address;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  if (threadIdx.x == 0)
    own = int(rank) + 5;
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
  int theirs;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared_address(&own)), "r"(rank ^ 1));
  asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(theirs) : "r"(address) : "memory");
  out[blockIdx.x * blockDim.x + threadIdx.x] = theirs;
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}
CASE(neighbours) {
  Device<int> out(64);
  neighbours<<<2, 32>>>(out);
}

/// An mbarrier's place becomes another one's.
__global__ void initialised_anew(int *out) {
  __shared__ Barrier barrier;
  for (int i = 0; i < 2; ++i) {
    if (threadIdx.x == 0)
      init(barrier, kThreads);
    fence_barrier_init();
    arrive(barrier);
    wait(barrier, 0);
    __syncthreads();
    if (threadIdx.x == 0)
      asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(shared_address(&barrier)) : "memory");
  }
  out[threadIdx.x] = 1;
}
CASE(initialised_anew) {
  Device<int> out(kThreads);
  initialised_anew<<<1, kThreads>>>(out);
}

__global__ void one_phase_for_both_copies(float *out, const Element *in) {
  __shared__ alignas(1024) Element k[kTile], v[kTile];
  __shared__ Barrier full;
  if (threadIdx.x == 0)
    init(full, 1);
  fence_barrier_init();
  if (threadIdx.x == 0) {
    expect(full, 2 * kTileBytes);
    load(k, in, kTileBytes, full);
    load(v, in + kTile, kTileBytes, full);
  }
  wait(full, 0);
  out[threadIdx.x] = float(k[threadIdx.x]) + float(v[threadIdx.x]);
}
CASE(one_phase_for_both_copies) {
  Device<float> out(kThreads);
  Device<Element> in(2 * kTile);
  one_phase_for_both_copies<<<1, kThreads>>>(out, in);
}

__global__ void sum_read_back(float *sum, float *out) {
  __shared__ alignas(128) float part[kThreads];
  part[threadIdx.x] = 1.f;
  fence_proxy();
  __syncthreads();
  if (threadIdx.x == 0) {
    add(sum, part, sizeof part);
    commit_stores();
    wait_stores_read<0>();
    wait_stores<0>();
  }
  __syncthreads();
  out[threadIdx.x] = sum[threadIdx.x];
}
CASE(sum_read_back) {
  Device<float> sum(kThreads), out(kThreads);
  sum_read_back<<<1, kThreads>>>(sum, out);
}

__global__ void memory_of_an_mbarrier_reused(float *out, const float *in) {
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
  if (threadIdx.x == 0)
    asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(shared_address(&place.barrier)) : "memory");
  __syncthreads();
  place.data[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = place.data[kThreads - 1 - threadIdx.x];
}
CASE(memory_of_an_mbarrier_reused) {
  Device<float> out(kThreads), in(kThreads);
  memory_of_an_mbarrier_reused<<<1, kThreads>>>(out, in);
}

__global__ void every_lane_stores_the_tile(float *out) {
  __shared__ alignas(128) float tile[kThreads];
  tile[threadIdx.x] = float(threadIdx.x);
  fence_proxy();
  __syncthreads();
  if (threadIdx.x < 32) {
    store(out, tile, sizeof tile); // remark(every_lane_stores_the_tile): flag
    commit_stores();
    wait_stores<0>();
  }
}
CASE(every_lane_stores_the_tile) {
  Device<float> out(kThreads);
  every_lane_stores_the_tile<<<1, kThreads>>>(out);
}

#define OPERANDS                                                                                             \
  __shared__ alignas(1024) Element a[kTile], b[kTile];                                                       \
  fill(a, 1.f);                                                                                              \
  fill(b, 2.f);                                                                                              \
  fence_proxy();                                                                                             \
  __syncthreads();                                                                                           \
  Accumulator d = {}

__global__ void scaled_between_products(float *out, int steps) {
  OPERANDS;
  for (int i = 0; i < steps; ++i) {
    for (float &value : d)
      value *= 0.5f;
    tie(d);
    begin_products();
    product(d, descriptor(a), descriptor(b));
    product(d, descriptor(a), descriptor(b));
    commit_products();
    wait_products<0>();
  }
  write_out(out, d);
}
CASE(scaled_between_products) {
  Device<float> out(4 * kThreads);
  scaled_between_products<<<1, kThreads>>>(out, 3);
}

/// One accumulator is used while the product of the other one is in flight.
__global__ void two_accumulators_in_turn(float *out, int steps) {
  OPERANDS;
  Accumulator e = {};
  for (int i = 0; i < steps; ++i) {
    tie(e);
    begin_products();
    product(d, descriptor(a), descriptor(b));
    commit_products();
    product(e, descriptor(b), descriptor(a));
    commit_products();
    wait_products<1>();
    float sum = 0.f;
    for (const float value : d)
      sum += value;
    out[4 * kThreads + i * kThreads + threadIdx.x] = sum;
    wait_products<0>();
    for (float &value : e)
      value += sum;
  }
  write_out(out, e);
}
CASE(two_accumulators_in_turn) {
  Device<float> out(7 * kThreads);
  two_accumulators_in_turn<<<1, kThreads>>>(out, 3);
}

} // namespace
