// The softmax of each row: a block of 64 threads per row.
#include <cuda_runtime.h>
#include <math_constants.h>

const int kThreads = 64;

template <bool is_max> __device__ float over_block(float mine) {
  __shared__ float part[kThreads];
  __syncthreads();
  part[threadIdx.x] = mine;
  for (int step = kThreads / 2; step; step /= 2) {
    __syncthreads();
    if (threadIdx.x < step) {
      float other = part[threadIdx.x + step];
      part[threadIdx.x] = is_max ? fmaxf(part[threadIdx.x], other) : part[threadIdx.x] + other;
    }
  }
  __syncthreads();
  return part[0];
}

__global__ void three_passes(const float *x, float *y, int n) {
  x += blockIdx.x * n, y += blockIdx.x * n;
  float most = -CUDART_INF_F, sum = 0;
  for (int i = threadIdx.x; i < n; i += kThreads)
    most = fmaxf(most, x[i]);
  most = over_block<true>(most);
  for (int i = threadIdx.x; i < n; i += kThreads)
    sum += expf(x[i] - most);
  sum = over_block<false>(sum);
  for (int i = threadIdx.x; i < n; i += kThreads)
    y[i] = expf(x[i] - most) / sum;
}

template <bool rescales> __device__ void online_of(const float *x, float *y, int n) {
  x += blockIdx.x * n, y += blockIdx.x * n;
  float most = -CUDART_INF_F, sum = 0;
  for (int i = threadIdx.x; i < n; i += kThreads) {
    float now = fmaxf(most, x[i]);
    sum = (rescales ? sum * expf(most - now) : sum) + expf(x[i] - now);
    most = now;
  }
  float all = over_block<true>(most);
  sum = over_block<false>(sum == 0 ? 0 : sum * expf(most - all));
  for (int i = threadIdx.x; i < n; i += kThreads)
    y[i] = expf(x[i] - all) / sum;
}

__global__ void online(const float *x, float *y, int n) { online_of<true>(x, y, n); }

__global__ void no_rescaling(const float *x, float *y, int n) { online_of<false>(x, y, n); }

__global__ void kept_in_shared(const float *x, float *y, int n) {
  extern __shared__ float row[];
  float most = -CUDART_INF_F, sum = 0;
  for (int i = threadIdx.x; i < n; i += kThreads)
    most = fmaxf(most, row[i] = x[blockIdx.x * n + i]);
  most = over_block<true>(most);
  for (int i = threadIdx.x; i < n; i += kThreads)
    sum += row[i] = exp2f((row[i] - most) * 1.44269504f);
  sum = over_block<false>(sum);
  for (int i = threadIdx.x; i < n; i += kThreads)
    y[blockIdx.x * n + i] = row[i] * (1 / sum);
}

__global__ void one_warp(const float *x, float *y, int n) {
  x += blockIdx.x * n, y += blockIdx.x * n;
  float most = -CUDART_INF_F, sum = 0;
  for (int i = threadIdx.x % 32; i < n; i += 32)
    most = fmaxf(most, x[i]);
  for (int step = 16; step; step /= 2)
    most = fmaxf(most, __shfl_xor_sync(0xffffffff, most, step));
  for (int i = threadIdx.x % 32; i < n; i += 32)
    sum += expf(x[i] - most);
  for (int step = 16; step; step /= 2)
    sum += __shfl_xor_sync(0xffffffff, sum, step);
  for (int i = threadIdx.x; i < n; i += kThreads)
    y[i] = expf(x[i] - most) / sum;
}

__global__ void no_maximum(const float *x, float *y, int n) {
  x += blockIdx.x * n, y += blockIdx.x * n;
  float sum = 0;
  for (int i = threadIdx.x; i < n; i += kThreads)
    sum += expf(x[i]);
  sum = over_block<false>(sum);
  for (int i = threadIdx.x; i < n; i += kThreads)
    y[i] = expf(x[i]) / sum;
}

__global__ void maximum_from_zero(const float *x, float *y, int n) {
  x += blockIdx.x * n, y += blockIdx.x * n;
  float most = 0, sum = 0;
  for (int i = threadIdx.x; i < n; i += kThreads)
    most = fmaxf(most, x[i]);
  most = 20 * over_block<true>(most);
  for (int i = threadIdx.x; i < n; i += kThreads)
    sum += expf(x[i] - most);
  sum = over_block<false>(sum);
  for (int i = threadIdx.x; i < n; i += kThreads)
    y[i] = expf(x[i] - most) / sum;
}

__global__ void shared_too_short(const float *x, float *y, int n) {
  __shared__ float row[256];
  float sum = 0;
  for (int i = threadIdx.x; i < n; i += kThreads)
    sum += row[i] = expf(x[blockIdx.x * n + i] - x[blockIdx.x * n]);
  sum = over_block<false>(sum);
  for (int i = threadIdx.x; i < n; i += kThreads)
    y[blockIdx.x * n + i] = row[i] / sum;
}

__global__ void reused_without_barrier(const float *x, float *y, int n) {
  __shared__ float part[kThreads];
  x += blockIdx.x * n, y += blockIdx.x * n;
  float mine = -CUDART_INF_F;
  for (int i = threadIdx.x; i < n; i += kThreads)
    mine = fmaxf(mine, x[i]);
  part[threadIdx.x] = mine;
  __syncthreads();
  float most = part[0], sum = 0;
  for (int i = 1; i < kThreads; ++i)
    most = fmaxf(most, part[i]);
  for (int i = threadIdx.x; i < n; i += kThreads)
    sum += expf(x[i] - most);
  part[threadIdx.x] = sum; // others may still read the maxima
  __syncthreads();
  sum = 0;
  for (int i = 0; i < kThreads; ++i)
    sum += part[i];
  for (int i = threadIdx.x; i < n; i += kThreads)
    y[i] = expf(x[i] - most) / sum;
}
