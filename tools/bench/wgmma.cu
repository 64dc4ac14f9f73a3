// The product of kernels.cu's `tensor` on Hopper's tensor cores: a warpgroup multiplies 64 x 64 by 64 x 64,
// both in shared memory, with the same work between two products.
#include <cstdint>

namespace {

/// Rows of 128 bytes, swizzled by 128 bytes; `step` is the number of the 16 columns.
__device__ std::uint64_t descriptor(const void *tile, int step) {
  constexpr std::uint64_t kRowGroups = 1024 / 16, kSwizzle128 = 1;
  const auto address = std::uint64_t(__cvta_generic_to_shared(tile)) + 32 * step;
  return address >> 4 | 1ull << 16 | kRowGroups << 32 | kSwizzle128 << 62;
}

#define ROW(i) "+f"(sum[i][0]), "+f"(sum[i][1]), "+f"(sum[i][2]), "+f"(sum[i][3])

__device__ void multiply(float (&sum)[8][4], std::uint64_t a, std::uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "
      "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, 1, 1, 1, 0, 0;"
      : ROW(0), ROW(1), ROW(2), ROW(3), ROW(4), ROW(5), ROW(6), ROW(7)
      : "l"(a), "l"(b));
}

} // namespace

extern "C" __global__ void wgmma(const std::uint16_t *a, const std::uint16_t *b, float *c, int rounds) {
  constexpr int kWidth = 64;
  __shared__ alignas(1024) std::uint16_t a_smem[kWidth * kWidth], b_smem[kWidth * kWidth];
  for (int i = threadIdx.x; i < kWidth * kWidth; i += blockDim.x) {
    const int row = i / kWidth, column = i % kWidth,
              place = row * kWidth + (column / 8 ^ row % 8) * 8 + i % 8;
    a_smem[place] = a[i];
    b_smem[place] = b[i];
  }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  float sum[8][4] = {};
  for (int round = 0; round < rounds; ++round) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    for (int k = 0; k < 4; ++k)
      multiply(sum, descriptor(a_smem, k), descriptor(b_smem, k));
    asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" ::: "memory");
    for (auto &row : sum)
      for (float &value : row)
        value = fmaxf(value * 0.5f, -1e30f);
  }
  for (int n = 0; n < 8; ++n)
    for (int i = 0; i < 4; ++i)
      c[(blockIdx.x * blockDim.x + threadIdx.x) * 32 + n * 4 + i] = sum[n][i];
}
