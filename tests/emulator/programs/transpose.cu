// Through a shared tile, whose column reads collide unless its rows are padded.
#include "check.h"

#include <vector>

constexpr int kTile = 32, kRows = 8;

template <int Pad> __global__ void transpose(const float *in, float *out, int width) {
  __shared__ volatile float tile[kTile][kTile + Pad];
  int x = blockIdx.x * kTile + threadIdx.x, y = blockIdx.y * kTile + threadIdx.y;
  for (int j = 0; j < kTile; j += kRows)
    tile[threadIdx.y + j][threadIdx.x] = in[(y + j) * width + x];
  __syncthreads();
  x = blockIdx.y * kTile + threadIdx.x;
  y = blockIdx.x * kTile + threadIdx.y;
  for (int j = 0; j < kTile; j += kRows)
    out[(y + j) * width + x] = tile[threadIdx.x][threadIdx.y + j];
}

int main() {
  const int width = 128;
  std::vector<float> in(width * width), out(width * width);
  for (int i = 0; i < width * width; ++i)
    in[i] = float(i);
  float *in_gmem, *out_gmem;
  const size_t bytes = in.size() * sizeof(float);
  CUDA(cudaMalloc(&in_gmem, bytes));
  CUDA(cudaMalloc(&out_gmem, bytes));
  CUDA(cudaMemcpy(in_gmem, in.data(), bytes, cudaMemcpyHostToDevice));
  for (const bool padded : {false, true}) {
    const dim3 grid(width / kTile, width / kTile), block(kTile, kRows);
    CUDA(cudaMemset(out_gmem, 0, bytes));
    if (padded)
      transpose<1><<<grid, block>>>(in_gmem, out_gmem, width);
    else
      transpose<0><<<grid, block>>>(in_gmem, out_gmem, width);
    CUDA(cudaMemcpy(out.data(), out_gmem, bytes, cudaMemcpyDeviceToHost));
    for (int y = 0; y < width; ++y)
      for (int x = 0; x < width; ++x)
        CHECK(out[x * width + y] == in[y * width + x]);
  }
}
