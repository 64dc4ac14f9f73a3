// With atomics on shared memory, then on global memory; and the other atomics.
#include "check.h"

#include <algorithm>
#include <vector>

constexpr int kBins = 64;

__global__ void histogram(const unsigned char *in, int n, int *bins) {
  __shared__ int own[kBins];
  for (int i = threadIdx.x; i < kBins; i += blockDim.x)
    own[i] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    atomicAdd(&own[in[i] % kBins], 1);
  __syncthreads();
  for (int i = threadIdx.x; i < kBins; i += blockDim.x)
    atomicAdd(&bins[i], own[i]);
}

__global__ void others(const unsigned char *in, int n, int *low, int *high, unsigned *bits, float *sum,
                       unsigned long long *wide, int *spins) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n)
    return;
  atomicMin(low, int(in[i]));
  atomicMax(high, int(in[i]));
  atomicOr(bits, 1u << (in[i] & 31));
  atomicAdd(sum, 1.0f);
  atomicAdd(wide, 1ull << 33);
  // A maximum by compare and swap.
  int seen = *spins;
  while (seen < int(in[i])) {
    const int before = atomicCAS(spins, seen, int(in[i]));
    if (before == seen)
      break;
    seen = before;
  }
}

struct Results {
  int low = 1000, high = -1, spins = -1;
  unsigned bits = 0;
  float sum = 0;
  unsigned long long wide = 0;
};

int main() {
  const int n = 5000;
  std::vector<unsigned char> in(n);
  std::vector<int> wanted(kBins), bins(kBins);
  for (int i = 0; i < n; ++i) {
    in[i] = static_cast<unsigned char>(i * i % 251);
    ++wanted[in[i] % kBins];
  }
  unsigned char *in_gmem;
  int *bins_gmem;
  Results results, *r;
  CUDA(cudaMalloc(&in_gmem, n));
  CUDA(cudaMalloc(&bins_gmem, kBins * sizeof(int)));
  CUDA(cudaMalloc(&r, sizeof results));
  CUDA(cudaMemcpy(in_gmem, in.data(), n, cudaMemcpyHostToDevice));
  CUDA(cudaMemset(bins_gmem, 0, kBins * sizeof(int)));
  CUDA(cudaMemcpy(r, &results, sizeof results, cudaMemcpyHostToDevice));
  histogram<<<4, 128>>>(in_gmem, n, bins_gmem);
  others<<<(n + 127) / 128, 128>>>(in_gmem, n, &r->low, &r->high, &r->bits, &r->sum, &r->wide, &r->spins);
  CUDA(cudaDeviceSynchronize());
  CUDA(cudaMemcpy(bins.data(), bins_gmem, kBins * sizeof(int), cudaMemcpyDeviceToHost));
  CUDA(cudaMemcpy(&results, r, sizeof results, cudaMemcpyDeviceToHost));
  CHECK(bins == wanted);
  const auto [low, high] = std::minmax_element(in.begin(), in.end());
  unsigned bits = 0;
  for (const unsigned char value : in)
    bits |= 1u << (value & 31);
  CHECK(results.low == *low && results.high == *high && results.spins == *high && results.bits == bits);
  CHECK(results.sum == float(n) && results.wide == (1ull << 33) * n);
}
