// y = x transposed: blocks of 16 x 16 threads on tiles of 16 x 16.
#include <cuda_runtime.h>

const int kTile = 16;

__global__ void plain(const float *x, float *y, int rows, int columns) {
  int i = blockIdx.y * kTile + threadIdx.y, j = blockIdx.x * kTile + threadIdx.x;
  if (i < rows && j < columns)
    y[j * rows + i] = x[i * columns + j];
}

template <int stride, bool has_barrier, bool is_guarded, bool is_swizzled>
__device__ void tiled_of(const float *x, float *y, int rows, int columns) {
  __shared__ float tile[kTile * stride];
  int tx = threadIdx.x, ty = threadIdx.y;
  int i = blockIdx.y * kTile + ty, j = blockIdx.x * kTile + tx;
  if (i < rows && j < columns)
    tile[ty * stride + (is_swizzled ? tx ^ ty : tx)] = x[i * columns + j];
  if (has_barrier)
    __syncthreads();
  i = blockIdx.y * kTile + tx, j = blockIdx.x * kTile + ty;
  if (!is_guarded || (i < rows && j < columns))
    y[j * rows + i] = tile[tx * stride + (is_swizzled ? tx ^ ty : ty)];
}

__global__ void tiled(const float *x, float *y, int r, int c) {
  tiled_of<kTile, true, true, false>(x, y, r, c);
}
__global__ void padded(const float *x, float *y, int r, int c) {
  tiled_of<17, true, true, false>(x, y, r, c);
}
__global__ void swizzled(const float *x, float *y, int r, int c) {
  tiled_of<16, true, true, true>(x, y, r, c);
}
__global__ void no_barrier(const float *x, float *y, int r, int c) {
  tiled_of<17, false, true, false>(x, y, r, c);
}
__global__ void no_guard(const float *x, float *y, int r, int c) {
  tiled_of<17, true, false, false>(x, y, r, c);
}

__global__ void square_only(const float *x, float *y, int rows, int columns) {
  int i = blockIdx.y * kTile + threadIdx.y, j = blockIdx.x * kTile + threadIdx.x;
  if (i < rows && j < columns)
    y[j * columns + i] = x[i * columns + j];
}

__global__ void same_guard_twice(const float *x, float *y, int rows, int columns) {
  __shared__ float tile[kTile][kTile + 1];
  int tx = threadIdx.x, ty = threadIdx.y;
  int i = blockIdx.y * kTile + ty, j = blockIdx.x * kTile + tx;
  bool is_inside = i < rows && j < columns;
  if (is_inside)
    tile[ty][tx] = x[i * columns + j];
  __syncthreads();
  if (is_inside)
    y[(blockIdx.x * kTile + ty) * rows + blockIdx.y * kTile + tx] = tile[tx][ty];
}

__global__ void copies(const float *x, float *y, int rows, int columns) {
  int i = blockIdx.y * kTile + threadIdx.y, j = blockIdx.x * kTile + threadIdx.x;
  if (i < rows && j < columns)
    y[i * columns + j] = x[i * columns + j];
}
