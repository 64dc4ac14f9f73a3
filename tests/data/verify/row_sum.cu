// y[row] = sum of max(x[row, i], 0): a block of 128 threads per row.
#include <cuda_runtime.h>

const int kThreads = 128;

__device__ float part_of(const float *x, int n) {
  float sum = 0;
  for (int i = threadIdx.x; i < n; i += kThreads)
    sum += fmaxf(x[i], 0.f);
  return sum;
}

__device__ float lanes_sum(float mine) {
  for (int step = 16; step; step /= 2)
    mine += __shfl_xor_sync(0xffffffff, mine, step);
  return mine;
}

__device__ float block_sum(float mine) {
  __shared__ float part[kThreads];
  part[threadIdx.x] = mine;
  for (int step = kThreads / 2; step; step /= 2) {
    __syncthreads();
    if (threadIdx.x < step)
      part[threadIdx.x] += part[threadIdx.x + step];
  }
  __syncthreads();
  return part[0];
}

__global__ void tree(const float *x, float *y, int n) {
  float all = block_sum(part_of(x + blockIdx.x * n, n));
  if (threadIdx.x == 0)
    y[blockIdx.x] = all;
}

__global__ void shuffles(const float *x, float *y, int n) {
  __shared__ float warps[kThreads / 32];
  float mine = lanes_sum(part_of(x + blockIdx.x * n, n));
  if (threadIdx.x % 32 == 0)
    warps[threadIdx.x / 32] = mine;
  __syncthreads();
  if (threadIdx.x == 0)
    y[blockIdx.x] = warps[0] + warps[1] + warps[2] + warps[3];
}

__global__ void atomics(const float *x, float *y, int n) {
  atomicAdd(&y[blockIdx.x], part_of(x + blockIdx.x * n, n));
}

__global__ void one_thread(const float *x, float *y, int n) {
  float sum = 0;
  for (int i = 0; i < n && threadIdx.x == 0; ++i)
    sum += fmaxf(x[blockIdx.x * n + i], 0.f);
  if (threadIdx.x == 0)
    y[blockIdx.x] = sum;
}

__global__ void in_double(const float *x, float *y, int n) {
  double sum = 0;
  for (int i = threadIdx.x % 32; i < n; i += 32)
    sum += fmaxf(x[blockIdx.x * n + i], 0.f);
  for (int step = 16; step; step /= 2)
    sum += __shfl_down_sync(0xffffffff, sum, step);
  if (threadIdx.x == 0)
    y[blockIdx.x] = float(sum);
}

__global__ void two_elements(const float *x, float *y, int n) {
  float sum = 0;
  for (int i = 2 * threadIdx.x; i < n; i += 2 * kThreads)
    sum += fmaxf(x[blockIdx.x * n + i], 0.f) + (i + 1 < n ? fmaxf(x[blockIdx.x * n + i + 1], 0.f) : 0.f);
  float all = block_sum(sum);
  if (threadIdx.x == 0)
    y[blockIdx.x] = all;
}

__global__ void no_barrier(const float *x, float *y, int n) {
  __shared__ float part[kThreads];
  part[threadIdx.x] = part_of(x + blockIdx.x * n, n);
  for (int step = kThreads / 2; step; step /= 2)
    if (threadIdx.x < step)
      part[threadIdx.x] += part[threadIdx.x + step];
  if (threadIdx.x == 0)
    y[blockIdx.x] = part[0];
}

__global__ void last_barrier_missing(const float *x, float *y, int n) {
  __shared__ float warps[kThreads / 32];
  float mine = lanes_sum(part_of(x + blockIdx.x * n, n));
  if (threadIdx.x % 32 == 0)
    warps[threadIdx.x / 32] = mine;
  if (threadIdx.x == kThreads - 1)
    y[blockIdx.x] = warps[0] + warps[1] + warps[2] + warps[3];
}

__global__ void barrier_for_some(const float *x, float *y, int n) {
  __shared__ float part[kThreads];
  part[threadIdx.x] = part_of(x + blockIdx.x * n, n);
  for (int step = kThreads / 2; step; step /= 2)
    if (threadIdx.x < step) {
      __syncthreads();
      part[threadIdx.x] += part[threadIdx.x + step];
    }
  if (threadIdx.x == 0)
    y[blockIdx.x] = part[0];
}

__global__ void no_tail(const float *x, float *y, int n) {
  float all = block_sum(part_of(x + blockIdx.x * n, n / kThreads * kThreads));
  if (threadIdx.x == 0)
    y[blockIdx.x] = all;
}

__global__ void past_the_end(const float *x, float *y, int n) {
  float all = block_sum(part_of(x + blockIdx.x * n, (n + kThreads - 1) / kThreads * kThreads));
  if (threadIdx.x == 0)
    y[blockIdx.x] = all;
}

__global__ void last_row_missing(const float *x, float *y, int n) {
  float all = block_sum(part_of(x + blockIdx.x * n, n));
  if (threadIdx.x == 0 && blockIdx.x + 1 < gridDim.x)
    y[blockIdx.x] = all;
}

__global__ void writes_inputs(float *x, float *y, int n) {
  for (int i = threadIdx.x; i < n; i += kThreads)
    x[blockIdx.x * n + i] = fmaxf(x[blockIdx.x * n + i], 0.f);
  float all = block_sum(part_of(x + blockIdx.x * n, n));
  if (threadIdx.x == 0)
    y[blockIdx.x] = all;
}

__global__ void adds_to_unwritten(const float *x, float *y, int n) {
  float all = block_sum(part_of(x + blockIdx.x * n, n));
  if (threadIdx.x == 0)
    y[blockIdx.x] += all;
}

__device__ int calls;

__global__ void wrong_when_called_again(const float *x, float *y, int n) {
  float all = block_sum(part_of(x + blockIdx.x * n, n));
  if (threadIdx.x)
    return;
  y[blockIdx.x] = all + (calls >= int(gridDim.x));
  atomicAdd(&calls, 1);
}

__device__ int rows_done;

__global__ void blocks_in_order(const float *x, float *y, int n) {
  float all = block_sum(part_of(x + blockIdx.x * n, n));
  if (threadIdx.x == 0)
    y[atomicAdd(&rows_done, 1) % gridDim.x] = all;
}

__global__ void negative_is_forgotten(const float *x, float *y, int n) {
  float sum = 0;
  for (int i = threadIdx.x; i < n; i += kThreads)
    sum += x[blockIdx.x * n + i] > -4.f ? fmaxf(x[blockIdx.x * n + i], 0.f) : x[blockIdx.x * n + i];
  float all = block_sum(sum);
  if (threadIdx.x == 0)
    y[blockIdx.x] = all;
}

__global__ void lanes_that_are_not_there(const float *x, float *y, int n) {
  float mine = part_of(x + blockIdx.x * n, n);
  if (threadIdx.x >= 64)
    mine = 0;
  __shared__ float warps[kThreads / 32];
  mine = lanes_sum(mine);
  if (threadIdx.x % 32 == 0 && threadIdx.x < 64)
    warps[threadIdx.x / 32] = mine;
  __syncthreads();
  if (threadIdx.x == 0)
    y[blockIdx.x] = warps[0] + warps[1] + warps[2] + warps[3];
}

__global__ void endless(const float *x, volatile float *y, int n) {
  while (y[blockIdx.x] != x[0]) {
  }
}
