// How often each of 64 values occurs: blocks of 128 threads, y begins as 0.
#include <cuda_runtime.h>

const int kBins = 64;

__global__ void global_atomics(const int *x, int *y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    atomicAdd(&y[x[i]], 1);
}

template <bool is_cleared, bool has_barrier> __device__ void shared_of(const int *x, int *y, int n) {
  __shared__ int bins[kBins];
  if (is_cleared && threadIdx.x < kBins)
    bins[threadIdx.x] = 0;
  __syncthreads();
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    atomicAdd(&bins[x[i]], 1);
  if (has_barrier)
    __syncthreads();
  if (threadIdx.x < kBins)
    atomicAdd(&y[threadIdx.x], bins[threadIdx.x]);
}

__global__ void shared_bins(const int *x, int *y, int n) { shared_of<true, true>(x, y, n); }
__global__ void bins_not_cleared(const int *x, int *y, int n) { shared_of<false, true>(x, y, n); }
__global__ void last_barrier_missing(const int *x, int *y, int n) { shared_of<true, false>(x, y, n); }

__global__ void counted_by_bin(const int *x, int *y, int n) {
  int found = 0;
  for (int i = 0; i < n && blockIdx.x == 0 && threadIdx.x < kBins; ++i)
    found += x[i] == threadIdx.x;
  if (blockIdx.x == 0 && threadIdx.x < kBins)
    y[threadIdx.x] = found;
}

__global__ void no_atomics(const int *x, int *y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    y[x[i]] += 1;
}

__global__ void no_guard(const int *x, int *y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  atomicAdd(&y[x[i] % kBins], 1);
}
