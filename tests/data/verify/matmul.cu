// c = a b, m x k times k x n: blocks of 16 x 16 threads on tiles of 16 x 16.
#include <cuda_fp16.h>
#include <cuda_runtime.h>

const int kTile = 16;

template <class Sum> __device__ void plain_of(const float *a, const float *b, float *c, int m, int n, int k) {
  int row = blockIdx.y * kTile + threadIdx.y, column = blockIdx.x * kTile + threadIdx.x;
  if (row >= m || column >= n)
    return;
  Sum sum = Sum(0.f);
  for (int i = 0; i < k; ++i)
    sum += Sum(a[row * k + i]) * Sum(b[i * n + column]);
  c[row * n + column] = float(sum);
}

__global__ void plain(const float *a, const float *b, float *c, int m, int n, int k) {
  plain_of<float>(a, b, c, m, n, k);
}

__global__ void in_double(const float *a, const float *b, float *c, int m, int n, int k) {
  plain_of<double>(a, b, c, m, n, k);
}

__global__ void in_half(const float *a, const float *b, float *c, int m, int n, int k) {
  plain_of<__half>(a, b, c, m, n, k);
}

template <bool has_second_barrier, bool has_k_guard>
__device__ void tiled_of(const float *a, const float *b, float *c, int m, int n, int k) {
  __shared__ float a_tile[kTile][kTile], b_tile[kTile][kTile];
  int tx = threadIdx.x, ty = threadIdx.y;
  int row = blockIdx.y * kTile + ty, column = blockIdx.x * kTile + tx;
  float sum = 0;
  for (int first = 0; first < k; first += kTile) {
    bool a_inside = row < m && (!has_k_guard || first + tx < k);
    bool b_inside = column < n && (!has_k_guard || first + ty < k);
    a_tile[ty][tx] = a_inside ? a[row * k + first + tx] : 0;
    b_tile[ty][tx] = b_inside ? b[(first + ty) * n + column] : 0;
    __syncthreads();
    for (int i = 0; i < kTile; ++i)
      sum += a_tile[ty][i] * b_tile[i][tx];
    if (has_second_barrier)
      __syncthreads();
  }
  if (row < m && column < n)
    c[row * n + column] = sum;
}

__global__ void tiled(const float *a, const float *b, float *c, int m, int n, int k) {
  tiled_of<true, true>(a, b, c, m, n, k);
}

__global__ void second_barrier_missing(const float *a, const float *b, float *c, int m, int n, int k) {
  tiled_of<false, true>(a, b, c, m, n, k);
}

__global__ void no_guard_along_k(const float *a, const float *b, float *c, int m, int n, int k) {
  tiled_of<true, false>(a, b, c, m, n, k);
}

__global__ void split_over_k(const float *a, const float *b, float *c, int m, int n, int k) {
  int row = blockIdx.y * kTile + threadIdx.y, column = blockIdx.x * kTile + threadIdx.x;
  for (int half = 0; half < 2; ++half) {
    float sum = 0;
    for (int i = half; i < k; i += 2)
      sum += row < m && column < n ? a[row * k + i] * b[i * n + column] : 0;
    if (row < m && column < n)
      atomicAdd(&c[row * n + column], sum);
  }
}

__global__ void whole_tiles_only(const float *a, const float *b, float *c, int m, int n, int k) {
  int row = blockIdx.y * kTile + threadIdx.y, column = blockIdx.x * kTile + threadIdx.x;
  float sum = 0;
  for (int i = 0; i < k; ++i)
    sum += row < m && column < n ? a[row * k + i] * b[i * n + column] : 0;
  if (row < m / kTile * kTile && column < n)
    c[row * n + column] = sum;
}

__global__ void b_transposed(const float *a, const float *b, float *c, int m, int n, int k) {
  int row = blockIdx.y * kTile + threadIdx.y, column = blockIdx.x * kTile + threadIdx.x;
  float sum = 0;
  for (int i = 0; i < k; ++i)
    sum += row < m && column < n ? a[row * k + i] * b[column * k + i] : 0;
  if (row < m && column < n)
    c[row * n + column] = sum;
}
