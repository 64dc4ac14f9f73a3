// Clusters: how they are launched, what their blocks know of themselves, and how they reach each other.
#include "check.h"

#include <cooperative_groups.h>
#include <cstdint>

namespace cg = cooperative_groups;

namespace {

__device__ unsigned shared_address(const void *p) { return unsigned(__cvta_generic_to_shared(p)); }

__device__ unsigned mapped(const void *p, unsigned rank) {
  unsigned result;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(result) : "r"(shared_address(p)), "r"(rank));
  return result;
}

__device__ void wait(const std::uint64_t *barrier, unsigned parity) {
  unsigned done = 0;
  while (!done)
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2; "
                 "selp.b32 %0, 1, 0, p; }"
                 : "=r"(done)
                 : "r"(shared_address(barrier)), "r"(parity)
                 : "memory");
}

struct Place {
  unsigned rank, size, x, y, clusters_x, cluster_x;
};

__global__ void __cluster_dims__(2, 2, 1) places(Place *out) {
  const auto cluster = cg::this_cluster();
  const dim3 index = cluster.block_index();
  if (threadIdx.x == 0) {
    unsigned clusters_x, cluster_x;
    asm("mov.u32 %0, %%nclusterid.x;" : "=r"(clusters_x));
    asm("mov.u32 %0, %%clusterid.x;" : "=r"(cluster_x));
    out[blockIdx.y * gridDim.x + blockIdx.x] = {
        cluster.block_rank(), cluster.num_blocks(), index.x, index.y, clusters_x, cluster_x};
  }
}

/// Each block reads its neighbour's number by a generic address and by shared::cluster.
__global__ void neighbours(int *out) {
  __shared__ int own;
  const auto cluster = cg::this_cluster();
  if (threadIdx.x == 0)
    own = 100 + int(blockIdx.x);
  cluster.sync();
  const unsigned next = (cluster.block_rank() + 1) % cluster.num_blocks();
  const int *const theirs = cluster.map_shared_rank(&own, next);
  int by_cluster, rank;
  asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(by_cluster) : "r"(mapped(&own, next)) : "memory");
  asm("getctarank.shared::cluster.u32 %0, %1;" : "=r"(rank) : "r"(mapped(&own, next)));
  if (threadIdx.x == 0)
    out[blockIdx.x] = *theirs * 1000000 + by_cluster * 1000 + rank;
  cluster.sync();
}

/// Atomics on the histogram of block 0, by all blocks.
__global__ void __cluster_dims__(4, 1, 1) histogram(int *out) {
  __shared__ int bins[8];
  const auto cluster = cg::this_cluster();
  if (threadIdx.x < 8)
    bins[threadIdx.x] = 0;
  cluster.sync();
  atomicAdd(cluster.map_shared_rank(bins, 0) + threadIdx.x % 8, int(cluster.block_rank()) + 1);
  cluster.sync();
  if (cluster.block_rank() == 0 && threadIdx.x < 8)
    out[threadIdx.x] = bins[threadIdx.x];
}

/// Block 1 sends to block 0 with st.async, red.async and a bulk copy; block 0's mbarrier counts the bytes.
__global__ void __cluster_dims__(2, 1, 1) sends(int *out) {
  __shared__ alignas(128) int data[64];
  __shared__ alignas(128) int source[32];
  __shared__ std::uint64_t barrier;
  const auto cluster = cg::this_cluster();
  constexpr unsigned kBytes = 4 + 16 + 4 + 128;
  if (threadIdx.x == 0) {
    for (int &value : data)
      value = 1000;
    for (int i = 0; i < 32; ++i)
      source[i] = i;
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&barrier)));
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    if (cluster.block_rank() == 0)
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&barrier)),
                   "r"(kBytes)
                   : "memory");
  }
  cluster.sync();
  if (cluster.block_rank() == 1 && threadIdx.x == 0) {
    const unsigned there = mapped(data, 0), their_barrier = mapped(&barrier, 0);
    asm volatile(
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(there), "r"(7),
        "r"(their_barrier)
        : "memory");
    asm volatile(
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::
            "r"(there + 16),
        "r"(1), "r"(2), "r"(3), "r"(4), "r"(their_barrier)
        : "memory");
    asm volatile("red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 "
                 "[%0], %1, [%2];" ::"r"(there + 4),
                 "r"(23), "r"(their_barrier)
                 : "memory");
    asm volatile(
        "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
            there + 128),
        "r"(shared_address(source)), "r"(128), "r"(their_barrier)
        : "memory");
  }
  if (cluster.block_rank() == 0) {
    wait(&barrier, 0);
    for (int i = int(threadIdx.x); i < 64; i += int(blockDim.x))
      out[i] = data[i];
  }
  cluster.sync();
}

/// Threads of all blocks arrive at block 0's mbarrier.
__global__ void __cluster_dims__(4, 1, 1) arrivals(int *out) {
  __shared__ std::uint64_t barrier;
  const auto cluster = cg::this_cluster();
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&barrier)), "r"(4 * 32));
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  cluster.sync();
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(mapped(&barrier, 0))
               : "memory");
  if (cluster.block_rank() == 0) {
    wait(&barrier, 0);
    if (threadIdx.x == 0)
      *out = 1;
  }
  cluster.sync();
}

template <typename... Parameters, typename... Arguments>
cudaError_t launch(void (*kernel)(Parameters...), dim3 grid, unsigned threads, dim3 cluster,
                   Arguments... arguments) {
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {cluster.x, cluster.y, cluster.z};
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = threads;
  config.attrs = &attribute;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

} // namespace

int main() {
  Place *place;
  int *out;
  CUDA(cudaMallocManaged(&place, 32 * sizeof(Place)));
  CUDA(cudaMallocManaged(&out, 256 * sizeof(int)));

  places<<<dim3(8, 4), 32>>>(place);
  CUDA(cudaDeviceSynchronize());
  for (unsigned y = 0; y < 4; ++y)
    for (unsigned x = 0; x < 8; ++x) {
      const Place &p = place[y * 8 + x];
      CHECK(p.size == 4 && p.x == x % 2 && p.y == y % 2 && p.rank == x % 2 + 2 * (y % 2));
      CHECK(p.clusters_x == 4 && p.cluster_x == x / 2);
    }

  for (unsigned size : {1u, 2u, 8u}) {
    CUDA(launch(neighbours, 16, 64, size, out));
    CUDA(cudaDeviceSynchronize());
    for (unsigned i = 0; i < 16; ++i) {
      const unsigned rank = i % size, next = (rank + 1) % size, block = i - rank + next;
      CHECK(out[i] == int((100 + block) * 1000000 + (100 + block) * 1000 + next));
    }
  }

  histogram<<<8, 256>>>(out);
  CUDA(cudaDeviceSynchronize());
  for (int i = 0; i < 8; ++i)
    CHECK(out[i] == 32 * (1 + 2 + 3 + 4));

  sends<<<2, 32>>>(out);
  CUDA(cudaDeviceSynchronize());
  CHECK(out[0] == 7 && out[1] == 1023 && out[2] == 1000 && out[3] == 1000);
  for (int i = 0; i < 4; ++i)
    CHECK(out[4 + i] == i + 1);
  for (int i = 0; i < 32; ++i)
    CHECK(out[32 + i] == i);

  *out = 0;
  arrivals<<<4, 32>>>(out);
  CUDA(cudaDeviceSynchronize());
  CHECK(*out == 1);

  // What does not fit.
  CHECK_CODE(launch(neighbours, 6, 32, 4, out), cudaErrorInvalidClusterSize);
  CHECK_CODE(launch(neighbours, 16, 32, 16, out), cudaErrorInvalidClusterSize);
  CUDA(cudaFuncSetAttribute(neighbours, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
  CUDA(launch(neighbours, 16, 32, 16, out));
  CUDA(cudaDeviceSynchronize());
  CHECK_CODE(launch(neighbours, 32, 32, 32, out), cudaErrorInvalidClusterSize);
}
