// y[i] = x[0] + ... + x[i] in each row of 256: a block of 256 threads per row.
#include <cuda_runtime.h>

const int kRow = 256;

__global__ void two_buffers(const float *x, float *y) {
  __shared__ float sums[2][kRow];
  int i = threadIdx.x, now = 0;
  sums[0][i] = x[blockIdx.x * kRow + i];
  for (int step = 1; step < kRow; step *= 2, now ^= 1) {
    __syncthreads();
    sums[now ^ 1][i] = sums[now][i] + (i >= step ? sums[now][i - step] : 0);
  }
  y[blockIdx.x * kRow + i] = sums[now][i];
}

template <int barriers> __device__ void one_buffer_of(const float *x, float *y) {
  __shared__ float sums[kRow];
  int i = threadIdx.x;
  sums[i] = x[blockIdx.x * kRow + i];
  __syncthreads();
  for (int step = 1; step < kRow; step *= 2) {
    float other = i >= step ? sums[i - step] : 0;
    if (barriers > 1)
      __syncthreads();
    sums[i] += other;
    __syncthreads();
  }
  y[blockIdx.x * kRow + i] = sums[i];
}

__global__ void one_buffer(const float *x, float *y) { one_buffer_of<2>(x, y); }
__global__ void one_barrier_too_few(const float *x, float *y) { one_buffer_of<1>(x, y); }

__device__ float warp_scan(float sum) {
  for (int step = 1; step < 32; step *= 2) {
    float other = __shfl_up_sync(0xffffffff, sum, step);
    sum += threadIdx.x % 32 >= step ? other : 0;
  }
  return sum;
}

__global__ void by_warps(const float *x, float *y) {
  __shared__ float warps[kRow / 32];
  float sum = warp_scan(x[blockIdx.x * kRow + threadIdx.x]);
  if (threadIdx.x % 32 == 31)
    warps[threadIdx.x / 32] = sum;
  __syncthreads();
  for (int warp = 0; warp < threadIdx.x / 32; ++warp)
    sum += warps[warp];
  y[blockIdx.x * kRow + threadIdx.x] = sum;
}

__global__ void lane_condition_missing(const float *x, float *y) {
  float sum = x[blockIdx.x * kRow + threadIdx.x];
  for (int step = 1; step < 32; step *= 2)
    sum += __shfl_up_sync(0xffffffff, sum, step);
  y[blockIdx.x * kRow + threadIdx.x] = sum;
}

__global__ void exclusive(const float *x, float *y) {
  float sum = 0;
  for (int i = 0; i < threadIdx.x; ++i)
    sum += x[blockIdx.x * kRow + i];
  y[blockIdx.x * kRow + threadIdx.x] = sum;
}

__global__ void by_one_thread(const float *x, float *y) {
  float sum = 0;
  for (int i = 0; i < kRow && threadIdx.x == 0; ++i)
    y[blockIdx.x * kRow + i] = sum += x[blockIdx.x * kRow + i];
}
