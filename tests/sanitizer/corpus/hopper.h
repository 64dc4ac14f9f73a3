// What the asynchronous cases are made of: the instructions of sm_90a, one function each.
#pragma once

#include "corpus.h"

#include <cstdint>
#include <cuda.h>
#include <cuda_bf16.h>

constexpr int kThreads = 128;
constexpr int kTile = 64 * 64; // elements of 16 bits: 64 rows of 128 bytes
constexpr unsigned kTileBytes = kTile * sizeof(__nv_bfloat16);

using Element = __nv_bfloat16;
using Barrier = std::uint64_t;

__device__ inline unsigned shared_address(const void *p) { return unsigned(__cvta_generic_to_shared(p)); }

__device__ inline void init(Barrier &barrier, unsigned count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&barrier)), "r"(count)
               : "memory");
}
__device__ inline void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  __syncthreads();
}
__device__ inline void arrive(Barrier &barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&barrier)) : "memory");
}
__device__ inline void expect(Barrier &barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&barrier)),
               "r"(bytes)
               : "memory");
}
__device__ inline void wait(Barrier &barrier, unsigned parity) {
  asm volatile("{ .reg .pred p;\n"
               "again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
               "@!p bra again; }" ::"r"(shared_address(&barrier)),
               "r"(parity)
               : "memory");
}

__device__ inline void load(void *to, const void *from, unsigned bytes, Barrier &barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
          shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(&barrier))
      : "memory");
}
__device__ inline void load_box(void *to, const CUtensorMap &map, int x, int y, Barrier &barrier) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, "
               "{%3, %4}], "
               "[%2];" ::"r"(shared_address(to)),
               "l"(&map), "r"(shared_address(&barrier)), "r"(x), "r"(y)
               : "memory");
}
__device__ inline void store(void *to, const void *from, unsigned bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
               "r"(shared_address(from)), "r"(bytes)
               : "memory");
}
__device__ inline void add(float *to, const float *from, unsigned bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to),
               "r"(shared_address(from)), "r"(bytes)
               : "memory");
}
__device__ inline void commit_stores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int kPending> __device__ inline void wait_stores_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}
template <int kPending> __device__ inline void wait_stores() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kPending) : "memory");
}

__device__ inline void fence_proxy_of_global() { asm volatile("fence.proxy.async.global;" ::: "memory"); }
__device__ inline void fence_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/// Of 64 rows of 128 bytes, whose boxes are `width` elements wide.
inline CUtensorMap map_of(Element *tensor, CUtensorMapSwizzle swizzle, unsigned width) {
  alignas(64) CUtensorMap map;
  const cuuint64_t size[2] = {64, 64}, stride[1] = {128};
  const cuuint32_t box[2] = {width, 64}, step[2] = {1, 1};
  cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, tensor, size, stride, box, step,
                         CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                         CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return map;
}

/// Launches a kernel that may begin before the end of the previous one.
template <typename... Parameters, typename... Arguments>
void launch_early(void (*kernel)(Parameters...), Arguments... arguments) {
  cudaLaunchAttribute early;
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = 4;
  config.blockDim = kThreads;
  config.attrs = &early;
  config.numAttrs = 1;
  cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...);
}

/// Of a tile with rows of 128 bytes; `mode` 1: swizzled by 128 bytes, 2: by 64.
__device__ inline unsigned long long descriptor(const void *tile, unsigned mode = 1) {
  return (unsigned long long)(shared_address(tile) >> 4) | 1ull << 16 | 64ull << 32 |
         (unsigned long long)mode << 62;
}

// --- clusters

__device__ inline unsigned cluster_rank() {
  unsigned rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ inline void arrive_at_cluster() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ inline void arrive_at_cluster_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ inline void wait_for_cluster() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ inline void sync_cluster() {
  arrive_at_cluster();
  wait_for_cluster();
}
__device__ inline void fence_inits() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
/// The same variable of another block of the cluster.
__device__ inline unsigned remote(const void *p, unsigned rank) {
  unsigned address;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared_address(p)), "r"(rank));
  return address;
}
__device__ inline int read_remote(unsigned address) {
  int value;
  asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
  return value;
}
__device__ inline void write_remote(unsigned address, int value) {
  asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}
__device__ inline void arrive_remote(unsigned barrier) {
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ inline void load_multicast(void *to, const void *from, unsigned bytes, Barrier &barrier,
                                      unsigned short ranks) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], "
      "%2, [%3], %4;" ::"r"(shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(&barrier)), "h"(ranks)
      : "memory");
}
/// From this block's shared memory to another one's, whose mbarrier gets the bytes.
__device__ inline void send(unsigned to, const void *from, unsigned bytes, unsigned barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
          to),
      "r"(shared_address(from)), "r"(bytes), "r"(barrier)
      : "memory");
}
/// A word to another block's shared memory, and its bytes to that block's mbarrier.
__device__ inline void send_word(unsigned to, int value, unsigned barrier) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(to),
               "r"(value), "r"(barrier)
               : "memory");
}
/// The same, added to what is there.
__device__ inline void add_word(unsigned to, int value, unsigned barrier) {
  asm volatile("red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%0], %1, "
               "[%2];" ::"r"(to),
               "r"(value), "r"(barrier)
               : "memory");
}

// --- cp.async

__device__ inline void copy_16(void *to, const void *from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
}
__device__ inline void wait_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }
/// A tile, each thread's chunks one after another.
__device__ inline void copy_tile(Element *to, const Element *from) {
  for (int i = 8 * int(threadIdx.x); i < kTile; i += 8 * kThreads)
    copy_16(to + i, from + i);
}

// --- ldmatrix

/// Four matrices: each lane gives the address of a row.
__device__ inline unsigned ldmatrix_x4(const void *row) {
  unsigned a, b, c, d;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
               : "r"(shared_address(row))
               : "memory");
  return a + b + c + d;
}

// --- products

using Accumulator = float[4]; // 64 x 8

/// The compiler moves no use of the registers across this.
__device__ inline void tie(Accumulator &d) {
  for (float &value : d)
    asm volatile("" : "+f"(value)::"memory");
}
__device__ inline void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void product(Accumulator &d, unsigned long long a, unsigned long long b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "l"(a), "l"(b));
}
__device__ inline void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kPending> __device__ inline void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

__device__ inline void fill(Element *tile, float value) {
  for (int i = int(threadIdx.x); i < kTile; i += int(blockDim.x))
    tile[i] = __float2bfloat16(value + float(i % 7));
}
__device__ inline void write_out(float *out, const Accumulator &d) {
  for (int i = 0; i < 4; ++i)
    out[threadIdx.x * 4 + i] = d[i];
}
