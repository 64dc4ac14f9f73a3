// Sums with shuffles, with shared memory and with votes.
#include "check.h"

#include <vector>

constexpr int kThreads = 256;

__device__ int warp_sum(int value) {
  for (int offset = 16; offset > 0; offset /= 2)
    value += __shfl_down_sync(0xffffffff, value, offset);
  return value;
}

__global__ void sum_shuffles(const int *in, int *out, int n) {
  __shared__ int partial[kThreads / 32];
  int value = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    value += in[i];
  value = warp_sum(value);
  if (threadIdx.x % 32 == 0)
    partial[threadIdx.x / 32] = value;
  __syncthreads();
  if (threadIdx.x < 32) {
    value = warp_sum(threadIdx.x < kThreads / 32 ? partial[threadIdx.x] : 0);
    if (threadIdx.x == 0)
      atomicAdd(out, value);
  }
}

// The classic tree with interleaved addressing.
__global__ void sum_tree(const int *in, int *out, int n) {
  extern __shared__ int tree[];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  tree[threadIdx.x] = i < n ? in[i] : 0;
  __syncthreads();
  for (unsigned stride = blockDim.x / 2; stride > 0; stride >>= 1) {
    if (threadIdx.x < stride)
      tree[threadIdx.x] += tree[threadIdx.x + stride];
    __syncthreads();
  }
  if (threadIdx.x == 0)
    atomicAdd(out, tree[0]);
}

__global__ void count_even(const int *in, int *out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const unsigned even = __ballot_sync(0xffffffff, i < n && in[i] % 2 == 0);
  const int in_block = __syncthreads_count(i < n && in[i] % 2 == 0);
  if (threadIdx.x % 32 == 0)
    atomicAdd(&out[0], __popc(even));
  if (threadIdx.x == 0)
    atomicAdd(&out[1], in_block);
}

int main() {
  const int n = 10'001;
  std::vector<int> in(n);
  int sum = 0, even = 0;
  for (int i = 0; i < n; ++i) {
    in[i] = (i * 7919) % 1013 - 500;
    sum += in[i];
    even += in[i] % 2 == 0;
  }
  int *in_gmem, *out_gmem;
  CUDA(cudaMalloc(&in_gmem, n * sizeof(int)));
  CUDA(cudaMalloc(&out_gmem, 4 * sizeof(int)));
  CUDA(cudaMemcpy(in_gmem, in.data(), n * sizeof(int), cudaMemcpyHostToDevice));
  CUDA(cudaMemset(out_gmem, 0, 4 * sizeof(int)));
  sum_shuffles<<<8, kThreads>>>(in_gmem, out_gmem, n);
  sum_tree<<<(n + kThreads - 1) / kThreads, kThreads, kThreads * sizeof(int)>>>(in_gmem, out_gmem + 1, n);
  count_even<<<(n + kThreads - 1) / kThreads, kThreads>>>(in_gmem, out_gmem + 2, n);
  CUDA(cudaDeviceSynchronize());
  int out[4];
  CUDA(cudaMemcpy(out, out_gmem, sizeof out, cudaMemcpyDeviceToHost));
  CHECK(out[0] == sum && out[1] == sum && out[2] == even && out[3] == even);
}
