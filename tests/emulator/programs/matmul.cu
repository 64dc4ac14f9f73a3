// The textbook's tiled product, for sizes that are no multiple of the tile, in float and double.
#include "check.h"

#include <cmath>
#include <vector>

constexpr int kTile = 16;

template <typename T> __global__ void matmul(const T *a, const T *b, T *c, int m, int n, int k) {
  __shared__ T a_smem[kTile][kTile], b_smem[kTile][kTile];
  const int row = blockIdx.y * kTile + threadIdx.y, column = blockIdx.x * kTile + threadIdx.x;
  T sum = 0;
  for (int t = 0; t < k; t += kTile) {
    const int x = t + threadIdx.x, y = t + threadIdx.y;
    a_smem[threadIdx.y][threadIdx.x] = row < m && x < k ? a[row * k + x] : T(0);
    b_smem[threadIdx.y][threadIdx.x] = y < k && column < n ? b[y * n + column] : T(0);
    __syncthreads();
    for (int i = 0; i < kTile; ++i)
      sum += a_smem[threadIdx.y][i] * b_smem[i][threadIdx.x];
    __syncthreads();
  }
  if (row < m && column < n)
    c[row * n + column] = sum;
}

template <typename T> void run(int m, int n, int k) {
  std::vector<T> a(m * k), b(k * n), c(m * n);
  for (int i = 0; i < m * k; ++i)
    a[i] = T(i % 13 - 6) / T(4);
  for (int i = 0; i < k * n; ++i)
    b[i] = T(i % 7 - 3) / T(2);
  T *a_gmem, *b_gmem, *c_gmem;
  CUDA(cudaMalloc(&a_gmem, a.size() * sizeof(T)));
  CUDA(cudaMalloc(&b_gmem, b.size() * sizeof(T)));
  CUDA(cudaMalloc(&c_gmem, c.size() * sizeof(T)));
  CUDA(cudaMemcpy(a_gmem, a.data(), a.size() * sizeof(T), cudaMemcpyHostToDevice));
  CUDA(cudaMemcpy(b_gmem, b.data(), b.size() * sizeof(T), cudaMemcpyHostToDevice));
  const dim3 grid((n + kTile - 1) / kTile, (m + kTile - 1) / kTile);
  matmul<<<grid, dim3(kTile, kTile)>>>(a_gmem, b_gmem, c_gmem, m, n, k);
  CUDA(cudaMemcpy(c.data(), c_gmem, c.size() * sizeof(T), cudaMemcpyDeviceToHost));
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j) {
      double wanted = 0; // exact in either type
      for (int x = 0; x < k; ++x)
        wanted += double(a[i * k + x]) * double(b[x * n + j]);
      CHECK(double(c[i * n + j]) == wanted);
    }
}

int main() {
  run<float>(33, 47, 29);
  run<double>(16, 17, 50);
}
