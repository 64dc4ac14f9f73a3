// Tensor maps and what TMA does with them: boxes in and out, reductions, multicast, and the host's refusals.
#include "check.h"

#include <cooperative_groups.h>
#include <cstdint>
#include <cstring>
#include <cuda.h>
#include <vector>

namespace cg = cooperative_groups;

namespace {

constexpr int kWidth = 64, kHeight = 48; // of the tensor, in floats
constexpr int kBoxWidth = 32, kBoxHeight = 16;
constexpr unsigned kBoxBytes = kBoxWidth * kBoxHeight * sizeof(float);

__device__ unsigned shared_address(const void *p) { return unsigned(__cvta_generic_to_shared(p)); }

__device__ void initialise(std::uint64_t *barrier) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barrier)));
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ void expect(std::uint64_t *barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(bytes)
               : "memory");
}

__device__ void wait(std::uint64_t *barrier, unsigned parity) {
  unsigned done = 0;
  while (!done)
    asm volatile(
        "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.b32 %0, 1, 0, p; }"
        : "=r"(done)
        : "r"(shared_address(barrier)), "r"(parity)
        : "memory");
}

__device__ void load(float *to, const CUtensorMap *map, int x, int y, std::uint64_t *barrier) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, "
               "{%3, %4}], "
               "[%2];" ::"r"(shared_address(to)),
               "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y)
               : "memory");
}

/// Moves a box to the same place of another tensor, plus one; both with the map's swizzle.
__global__ void move(const __grid_constant__ CUtensorMap from, const __grid_constant__ CUtensorMap to, int x,
                     int y) {
  __shared__ alignas(1024) float box[kBoxWidth * kBoxHeight];
  __shared__ std::uint64_t barrier;
  if (threadIdx.x == 0) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&from) : "memory");
    initialise(&barrier);
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    expect(&barrier, kBoxBytes);
    load(box, &from, x, y, &barrier);
  }
  wait(&barrier, 0);
  for (int i = int(threadIdx.x); i < kBoxWidth * kBoxHeight; i += int(blockDim.x))
    box[i] += 1;
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile(
        "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&to), "r"(x),
        "r"(y), "r"(shared_address(box))
        : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
  }
}

/// Adds ones to a box of the tensor, twice; `early` changes the source before it has been read.
__global__ void add(const __grid_constant__ CUtensorMap to, int x, int y, bool early) {
  __shared__ alignas(1024) float box[kBoxWidth * kBoxHeight];
  for (int i = int(threadIdx.x); i < kBoxWidth * kBoxHeight; i += int(blockDim.x))
    box[i] = 1;
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (threadIdx.x == 0)
    for (int i = 0; i < 2; ++i) {
      asm volatile(
          "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(
              &to),
          "r"(x), "r"(y), "r"(shared_address(box))
          : "memory");
      asm volatile("cp.async.bulk.commit_group;" ::: "memory");
      if (early)
        box[0] = 50;
      asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    }
}

/// One block's load for both of the cluster.
__global__ void __cluster_dims__(2, 1, 1) multicast(const __grid_constant__ CUtensorMap from, float *out) {
  __shared__ alignas(1024) float box[kBoxWidth * kBoxHeight];
  __shared__ std::uint64_t barrier;
  const auto cluster = cg::this_cluster();
  if (threadIdx.x == 0) {
    initialise(&barrier);
    expect(&barrier, kBoxBytes);
  }
  cluster.sync();
  if (cluster.block_rank() == 0 && threadIdx.x == 0)
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], [%1, {%3, %4}], [%2], %5;" ::"r"(shared_address(box)),
        "l"(&from), "r"(shared_address(&barrier)), "r"(0), "r"(0), "h"((unsigned short)3)
        : "memory");
  wait(&barrier, 0);
  for (int i = int(threadIdx.x); i < kBoxWidth * kBoxHeight; i += int(blockDim.x))
    out[blockIdx.x * kBoxWidth * kBoxHeight + i] = box[i];
  cluster.sync();
}

using Encode = decltype(&cuTensorMapEncodeTiled);

struct Shape {
  CUtensorMapDataType type = CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
  cuuint32_t rank = 2;
  cuuint64_t size[5] = {kWidth, kHeight, 1, 1, 1};
  cuuint64_t stride[4] = {kWidth * sizeof(float), kWidth * kHeight * sizeof(float), 1 << 20, 1 << 20};
  cuuint32_t box[5] = {kBoxWidth, kBoxHeight, 1, 1, 1};
  cuuint32_t step[5] = {1, 1, 1, 1, 1};
  CUtensorMapInterleave interleave = CU_TENSOR_MAP_INTERLEAVE_NONE;
  CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_NONE;
};

CUresult encode(CUtensorMap *map, void *tensor, const Shape &shape) {
  void *function = nullptr;
  cudaDriverEntryPointQueryResult result;
  CUDA(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault,
                                        &result));
  CHECK(result == cudaDriverEntryPointSuccess);
  return reinterpret_cast<Encode>(function)(
      map, shape.type, shape.rank, tensor, shape.size, shape.stride, shape.box, shape.step, shape.interleave,
      shape.swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

void check_moves(float *from, float *to) {
  for (const CUtensorMapSwizzle swizzle : {CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_SWIZZLE_32B,
                                           CU_TENSOR_MAP_SWIZZLE_64B, CU_TENSOR_MAP_SWIZZLE_128B}) {
    Shape shape;
    shape.swizzle = swizzle;
    const unsigned span = swizzle ? 16u << swizzle : 128;
    shape.box[0] = span / sizeof(float);
    shape.box[1] = kBoxBytes / span;
    alignas(64) CUtensorMap maps[2];
    CHECK(encode(&maps[0], from, shape) == CUDA_SUCCESS);
    CHECK(encode(&maps[1], to, shape) == CUDA_SUCCESS);
    for (const int y : {0, 4, 40}) {
      for (int i = 0; i < kWidth * kHeight; ++i)
        to[i] = -1;
      const int x = 8;
      move<<<1, 64>>>(maps[0], maps[1], x, y);
      CUDA(cudaDeviceSynchronize());
      for (int i = 0; i < kHeight; ++i)
        for (int j = 0; j < kWidth; ++j) {
          const bool inside = j >= x && j < x + int(shape.box[0]) && i >= y && i < y + int(shape.box[1]);
          CHECK(to[i * kWidth + j] == (inside ? from[i * kWidth + j] + 1 : -1));
        }
    }
  }
}

/// CUTLASS and Triton clear a bit of the map of a small tensor, wherever the tensor lies.
void check_cleared_bit() {
  constexpr std::size_t kApart = 1 << 21;
  char *memory;
  CUDA(cudaMallocManaged(&memory, 2 * kApart));
  for (const std::size_t place : {std::size_t(0), kApart}) {
    float *const tensor = reinterpret_cast<float *>(memory + place);
    for (int i = 0; i < kWidth * kHeight; ++i)
      tensor[i] = float(i);
    alignas(64) CUtensorMap map;
    CHECK(encode(&map, tensor, Shape{}) == CUDA_SUCCESS);
    map.opaque[1] &= ~(1ull << 21);
    move<<<1, 64>>>(map, map, 0, 0);
    CUDA(cudaDeviceSynchronize());
    CHECK(tensor[kBoxWidth - 1] == kBoxWidth && tensor[kBoxWidth] == kBoxWidth);
  }
  CUDA(cudaFree(memory));
}

void check_refusals(float *tensor) {
  alignas(64) CUtensorMap map;
  const auto refused = [&](auto change) {
    Shape shape;
    change(shape);
    return encode(&map, tensor, shape) == CUDA_ERROR_INVALID_VALUE;
  };
  CHECK(refused([](Shape &s) { s.rank = 0; }));
  CHECK(refused([](Shape &s) { s.rank = 6; }));
  CHECK(refused([](Shape &s) { s.size[1] = 0; }));
  CHECK(refused([](Shape &s) { s.size[0] = (1ull << 32) + 1; }));
  CHECK(refused([](Shape &s) { s.stride[0] = 24; }));
  CHECK(refused([](Shape &s) { s.stride[0] = 1ull << 40; }));
  CHECK(refused([](Shape &s) { s.box[1] = 257; }));
  CHECK(refused([](Shape &s) { s.box[1] = 0; }));
  CHECK(refused([](Shape &s) { s.box[0] = 3; }));
  CHECK(refused([](Shape &s) { s.step[1] = 9; }));
  CHECK(refused([](Shape &s) { s.swizzle = CU_TENSOR_MAP_SWIZZLE_64B; }));
  CHECK(refused([](Shape &s) { s.interleave = CU_TENSOR_MAP_INTERLEAVE_16B; }));
  CHECK(encode(&map, tensor + 1, Shape{}) == CUDA_ERROR_INVALID_VALUE);
  CHECK(encode(reinterpret_cast<CUtensorMap *>(reinterpret_cast<char *>(&map) + 8), tensor, Shape{}) ==
        CUDA_ERROR_INVALID_VALUE);
}

} // namespace

int main() {
  float *from, *to, *out;
  CUDA(cudaMallocManaged(&from, kWidth * kHeight * sizeof(float)));
  CUDA(cudaMallocManaged(&to, kWidth * kHeight * sizeof(float)));
  CUDA(cudaMallocManaged(&out, 2 * kBoxBytes));
  for (int i = 0; i < kWidth * kHeight; ++i)
    from[i] = float(i);
  check_moves(from, to);
  check_cleared_bit();
  check_refusals(from);

  alignas(64) CUtensorMap map;
  CHECK(encode(&map, to, Shape{}) == CUDA_SUCCESS);
  for (const bool early : {false, true}) {
    for (int i = 0; i < kWidth * kHeight; ++i)
      to[i] = 10;
    add<<<1, 32>>>(map, 0, 0, early);
    CUDA(cudaDeviceSynchronize());
    CHECK(to[1] == 12 && to[kBoxWidth] == 10);
    CHECK((to[0] == 12) == !early);
  }

  CHECK(cuTensorMapReplaceAddress(&map, from) == CUDA_SUCCESS);
  multicast<<<2, 64>>>(map, out);
  CUDA(cudaDeviceSynchronize());
  for (int i = 0; i < 2 * kBoxWidth * kBoxHeight; ++i)
    CHECK(out[i] == from[i / kBoxWidth % kBoxHeight * kWidth + i % kBoxWidth]);

  // Any 128 bytes are no tensor map.
  std::memset(&map, 0x5a, sizeof map);
  move<<<1, 64>>>(map, map, 0, 0);
  CHECK_CODE(cudaDeviceSynchronize(), cudaErrorIllegalInstruction);
}
