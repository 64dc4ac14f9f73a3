// A tiled matrix product: a block computes 128 x 128 of C, of which each warp holds 64 x 64 in registers,
// while cp.async loads the next tiles of A and B.
#include "ladder/dispatch.h"
#include "ladder/gemm.h"
#include "tiles/tiles.h"

namespace {

using namespace tiles;

constexpr int kWarps = 4, kSide = 128, kWarpSide = 64, kDepth = 32, kBuffers = 4;

template <typename T> struct Buffer {
  SharedTile<T, kSide, kDepth> a;
  SharedTile<T, kDepth, kSide> b;
};

template <typename T>
__global__ void __launch_bounds__(kWarps * 32) gemm(const __grid_constant__ ladder::GemmProblem problem) {
  using block = group<kWarps>;
  const WideMatrix<const T> a{static_cast<const T *>(problem.a), problem.rows, problem.depth, problem.depth};
  const WideMatrix<const T> b{static_cast<const T *>(problem.b), problem.depth, problem.cols, problem.cols};
  const WideMatrix<T> c{static_cast<T *>(problem.c), problem.rows, problem.cols, problem.cols};
  const int row = blockIdx.y * kSide, warp_row = block::warp() / 2 * kWarpSide;
  const int col = blockIdx.x * kSide, warp_col = block::warp() % 2 * kWarpSide;

  extern __shared__ __align__(128) unsigned char smem[];
  auto &buffers = SharedAllocator(smem).allocate<Buffer<T>, kBuffers>();
  RegTile<float, kWarpSide, kWarpSide> sum;
  RegTile<T, kWarpSide, kWarpSide> sum_16;
  zero(sum);

  const auto fetch = [&](int k) { // columns of A and rows of B from k on; zeros past the last
    auto &buffer = buffers[k / kDepth % kBuffers];
    block::load_async(buffer.a, a, row, k);
    block::load_async(buffer.b, b, k, col);
    async_commit();
  };
  for (int k = 0; k < (kBuffers - 1) * kDepth; k += kDepth)
    fetch(k);
  for (int k = 0; k < problem.depth; k += kDepth) {
    block::async_wait<kBuffers - 2>(); // this buffer is full, and all warps are done with the last one
    fetch(k + (kBuffers - 1) * kDepth);
    const auto &buffer = buffers[k / kDepth % kBuffers];
    mma_AB(sum, part<kWarpSide, kDepth>(buffer.a, warp_row), part<kDepth, kWarpSide>(buffer.b, 0, warp_col),
           sum);
  }
  copy(sum_16, sum);
  store(c, sum_16, row + warp_row, col + warp_col);
}

} // namespace

void ladder::launch(const GemmProblem &p, cudaStream_t stream) {
  if (p.cols % 8 != 0 || p.depth % 8 != 0)
    refuse("gemm takes N and K that are multiples of 8");
  dispatch_16_bit(p, [&](auto element) {
    using T = decltype(element);
    constexpr int smem_bytes = SharedAllocator::bytes<Buffer<T>, kBuffers>;
    check(cudaFuncSetAttribute(gemm<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, smem_bytes),
          "gemm: shared memory");
    const dim3 grid = launch_grid((p.cols + kSide - 1) / kSide, (p.rows + kSide - 1) / kSide);
    gemm<T><<<grid, kWarps * 32, smem_bytes, stream>>>(p);
  });
  check(cudaGetLastError(), "gemm: launch");
}
