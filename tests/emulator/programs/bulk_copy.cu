// cuda::memcpy_async with a barrier, which is a bulk copy from sm_90 on.
#include "check.h"

#include <cuda/barrier>

using Barrier = cuda::barrier<cuda::thread_scope_block>;

constexpr int kTile = 256, kTiles = 5;

__global__ void double_tiles(const int *in, int *out) {
  __shared__ alignas(128) int tile[2][kTile];
#pragma nv_diag_suppress static_var_with_dynamic_init
  __shared__ Barrier arrived[2];
  if (threadIdx.x == 0)
    for (Barrier &barrier : arrived)
      init(&barrier, blockDim.x);
  __syncthreads();
  const auto load = [&](int i) {
    if (threadIdx.x == 0)
      cuda::memcpy_async(tile[i % 2], in + i * kTile, cuda::aligned_size_t<16>(sizeof tile[0]),
                         arrived[i % 2]);
  };
  load(0);
  for (int i = 0; i < kTiles; ++i) {
    if (i + 1 < kTiles)
      load(i + 1);
    arrived[i % 2].arrive_and_wait();
    out[i * kTile + threadIdx.x] = 2 * tile[i % 2][kTile - 1 - threadIdx.x];
    __syncthreads();
  }
}

int main() {
  int *in, *out;
  CUDA(cudaMallocManaged(&in, kTiles * kTile * sizeof(int)));
  CUDA(cudaMallocManaged(&out, kTiles * kTile * sizeof(int)));
  for (int i = 0; i < kTiles * kTile; ++i)
    in[i] = 3 * i + 1;
  double_tiles<<<1, kTile>>>(in, out);
  CUDA(cudaDeviceSynchronize());
  for (int i = 0; i < kTiles; ++i)
    for (int j = 0; j < kTile; ++j)
      CHECK(out[i * kTile + j] == 2 * in[i * kTile + kTile - 1 - j]);
}
