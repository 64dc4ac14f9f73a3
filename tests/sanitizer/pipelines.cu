// A ring of buffers between TMA and its consumers, built at run time from a list of choices, and the faults
// that can be planted in it. Arguments: the choices in the order of Plan. Exit code 3: another result than
// without a ring.
#define CORPUS_HAS_OWN_MAIN
#include "hopper.h"

#include <cstdlib>
#include <vector>

namespace {

enum Fault : int {
  kNone,
  kNoWaitForEmpty,   // the producer fills buffers that are in use
  kNoWaitForFull,    // consumers read what is on its way
  kReleaseBeforeUse, // consumers hand a buffer back before they are done
  kOneGroupReleases, // the other warpgroup still reads
  kMoreBytes,        // than come
  kFewerBytes,
  kParityNeverFlips,
  kNextStage,      // consumers read the buffer after the one that they waited for
  kNoProxyFence,   // before the store
  kNoWaitForStore, // its source is written again
  kNoPublication,  // of the mbarriers to the cluster
  kEveryLaneLoads,
  kOneArrivalTooFew,
};

struct Plan {
  int stages, tiles, groups, copies, lag, all_arrive, begin_empty, products, stores, cluster, fault;
};

constexpr int kMostStages = 4;

__device__ void sync_group(int group) { asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory"); }

__device__ void produce(const Plan &plan, Element *buffers, Barrier *full, Barrier *empty,
                        const Element *in) {
  for (int i = 0; i < plan.tiles; ++i) {
    const int stage = i % plan.stages, round = i / plan.stages;
    if (plan.fault != kNoWaitForEmpty && (plan.begin_empty || round > 0))
      wait(empty[stage], unsigned(round + !plan.begin_empty) & 1);
    const int error = plan.fault == kMoreBytes ? 16 : plan.fault == kFewerBytes ? -16 : 0;
    if (plan.fault != kEveryLaneLoads || threadIdx.x % 32 == 0)
      expect(full[stage], kTileBytes + error);
    const int part = kTile / plan.copies;
    for (int c = 0; c < plan.copies; ++c) {
      Element *const to = buffers + stage * kTile + c * part;
      const Element *const from = in + i * kTile + c * part;
      if (plan.cluster == 1)
        load(to, from, part * sizeof(Element), full[stage]);
      else if (c % 2 == int(cluster_rank())) // each block loads one half for both
        load_multicast(to, from, part * sizeof(Element), full[stage], 3);
    }
  }
  if (plan.cluster == 2) // the neighbour's arrivals must find this block
    for (int i = plan.tiles; i < plan.tiles + plan.stages; ++i)
      if (i / plan.stages > 0 || plan.begin_empty)
        wait(empty[i % plan.stages], unsigned(i / plan.stages + !plan.begin_empty) & 1);
}

__device__ void release(const Plan &plan, Barrier &empty, int group) {
  if (plan.fault == kOneGroupReleases && group > 0)
    return;
  if (!plan.all_arrive)
    sync_group(group);
  if (!plan.all_arrive && threadIdx.x % kThreads != 5)
    return;
  if (plan.fault == kOneArrivalTooFew && threadIdx.x == 5)
    return;
  for (int rank = 0; rank < plan.cluster; ++rank)
    if (plan.cluster == 1)
      arrive(empty);
    else
      arrive_remote(remote(&empty, unsigned(rank)));
}

__device__ void use(const Plan &plan, const Element *tile, Accumulator &d) {
  if (plan.products) {
    begin_products();
    product(d, descriptor(tile), descriptor(tile));
    commit_products();
  } else {
#pragma unroll 4 // constant indices keep d in registers, which products need
    for (int i = 0; i < kTile / kThreads; ++i)
      d[i % 4] += __bfloat162float(tile[i * kThreads + int(threadIdx.x) % kThreads]);
  }
}

/// Stores the sums so far through shared memory, as an epilogue does.
__device__ void store_sums(const Plan &plan, float *out_smem, float *out, const Accumulator &d, int group) {
  const int thread = int(threadIdx.x) % kThreads;
  if (thread == 0 && plan.fault != kNoWaitForStore)
    wait_stores_read<0>();
  sync_group(group);
  for (int i = 0; i < 4; ++i)
    out_smem[4 * thread + i] = d[i];
  if (plan.fault != kNoProxyFence)
    fence_proxy();
  sync_group(group);
  if (thread == 0) {
    store(out, out_smem, 4 * kThreads * sizeof(float));
    commit_stores();
  }
}

__global__ void pipeline(const Plan plan, const Element *in, float *out) {
  extern __shared__ char dynamic[];
  __shared__ Barrier full[kMostStages], empty[kMostStages];
  __shared__ alignas(128) float sums_smem[2][4 * kThreads];
  Element *const buffers = reinterpret_cast<Element *>((std::uintptr_t(dynamic) + 1023) / 1024 * 1024);
  const int group = int(threadIdx.x) / kThreads;
  if (threadIdx.x == 0)
    for (int i = 0; i < plan.stages; ++i) {
      init(full[i], 1);
      const int releasing = plan.fault == kOneGroupReleases ? 1 : plan.groups;
      init(empty[i], unsigned(releasing * plan.cluster * (plan.all_arrive ? kThreads : 1)));
    }
  fence_barrier_init();
  if (plan.cluster == 2 && plan.fault != kNoPublication)
    sync_cluster();
  if (group == plan.groups) {
    if (threadIdx.x % 32 == 0 || plan.fault == kEveryLaneLoads)
      produce(plan, buffers, full, empty, in);
    return;
  }
  if (plan.begin_empty)
    for (int i = 0; i < plan.stages; ++i)
      release(plan, empty[i], group);
  out += (blockIdx.x * plan.groups + group) * 4 * kThreads;
  Accumulator d = {};
  for (int i = 0; i < plan.tiles; ++i) {
    const int stage = i % plan.stages, round = i / plan.stages;
    if (plan.fault != kNoWaitForFull)
      wait(full[stage], plan.fault == kParityNeverFlips ? 0 : unsigned(round) & 1);
    if (plan.fault == kReleaseBeforeUse)
      release(plan, empty[stage], group);
    use(plan, buffers + (plan.fault == kNextStage ? (stage + 1) % plan.stages : stage) * kTile, d);
    const int lag = plan.products ? plan.lag : 0;
    if (plan.products && lag == 1)
      wait_products<1>();
    else
      wait_products<0>();
    if (plan.fault != kReleaseBeforeUse && i >= lag)
      release(plan, empty[(i - lag) % plan.stages], group);
    if (plan.stores && lag == 0)
      store_sums(plan, sums_smem[group], out, d, group);
  }
  wait_products<0>();
  const int left = plan.products && plan.lag && plan.fault != kReleaseBeforeUse;
  if (left)
    release(plan, empty[(plan.tiles - 1) % plan.stages], group);
  store_sums(plan, sums_smem[group], out, d, group);
  if (threadIdx.x % kThreads == 0)
    wait_stores_read<0>();
}

/// The same sums without a ring.
__global__ void sequential(const Plan plan, const Element *in, float *out) {
  __shared__ alignas(1024) Element tile[kTile];
  Accumulator d = {};
  for (int i = 0; i < plan.tiles; ++i) {
    __syncthreads();
    for (int j = int(threadIdx.x); j < kTile; j += kThreads)
      tile[j] = in[i * kTile + j];
    fence_proxy();
    __syncthreads();
    use(plan, tile, d);
    wait_products<0>();
  }
  write_out(out, d);
}

int run(const Plan &plan) {
  std::vector<Element> data(std::size_t(plan.tiles) * kTile);
  for (std::size_t i = 0; i < data.size(); ++i)
    data[i] = __float2bfloat16(float(int(i * 2654435761u >> 20) % 17 - 8) / 8);
  Device<Element> in(data.size());
  const int blocks = 2 * plan.cluster, each = 4 * kThreads;
  Device<float> out(std::size_t(blocks) * plan.groups * each), wanted(each);
  cudaMemcpy(in, data.data(), in.bytes, cudaMemcpyHostToDevice);
  const int smem_bytes = plan.stages * int(kTileBytes) + 1024;
  cudaFuncSetAttribute(pipeline, cudaFuncAttributeMaxDynamicSharedMemorySize, smem_bytes);
  cudaLaunchConfig_t config = {};
  config.gridDim = blocks;
  config.blockDim = plan.groups * kThreads + 32;
  config.dynamicSmemBytes = smem_bytes;
  cudaLaunchAttribute cluster;
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {unsigned(plan.cluster), 1, 1};
  config.attrs = &cluster;
  config.numAttrs = 1;
  if (cudaLaunchKernelEx(&config, pipeline, plan, (const Element *)in, (float *)out) != cudaSuccess)
    return 1;
  sequential<<<1, kThreads>>>(plan, in, wanted);
  std::vector<float> found(out.bytes / sizeof(float)), right(each);
  if (cudaMemcpy(found.data(), out, out.bytes, cudaMemcpyDeviceToHost) != cudaSuccess)
    return 1;
  cudaMemcpy(right.data(), wanted, wanted.bytes, cudaMemcpyDeviceToHost);
  for (std::size_t i = 0; i < found.size(); ++i)
    if (found[i] != right[i % each])
      return 3;
  return 0;
}

} // namespace

int main(int count, char **words) {
  int values[sizeof(Plan) / sizeof(int)] = {};
  if (count != 1 + int(sizeof values / sizeof *values))
    return 2;
  for (int i = 1; i < count; ++i)
    values[i - 1] = atoi(words[i]);
  Plan plan;
  memcpy(&plan, values, sizeof plan);
  return run(plan);
}
