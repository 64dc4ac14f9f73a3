// 48 KiB of shared memory a block; more after opting in, up to what the GPU has.
#include "check.h"

__global__ void use(int *out, int n) {
  extern __shared__ int data[];
  for (int i = threadIdx.x; i < n; i += blockDim.x)
    data[i] = i;
  __syncthreads();
  if (threadIdx.x == 0)
    *out = data[n - 1];
}

__global__ void half_static(int *out, int n) {
  __shared__ int own[4096];
  extern __shared__ int data[];
  own[threadIdx.x] = data[threadIdx.x] = n;
  __syncthreads();
  if (threadIdx.x == 0)
    *out = own[1] + data[2];
}

int main() {
  int *out, opt_in = 0, limit = 0;
  CUDA(cudaMallocManaged(&out, sizeof(int)));
  CUDA(cudaDeviceGetAttribute(&opt_in, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
  CUDA(cudaDeviceGetAttribute(&limit, cudaDevAttrMaxSharedMemoryPerBlock, 0));
  CHECK(limit == 48 * 1024 && opt_in > limit);
  std::printf("%d\n", opt_in);

  use<<<1, 32, 48 * 1024>>>(out, 12 * 1024);
  CUDA(cudaDeviceSynchronize());
  CHECK(*out == 12 * 1024 - 1);
  use<<<1, 32, 48 * 1024 + 4>>>(out, 12 * 1024);
  CHECK_CODE(cudaGetLastError(), cudaErrorInvalidValue);
  CHECK_CODE(cudaFuncSetAttribute(use, cudaFuncAttributeMaxDynamicSharedMemorySize, opt_in + 1),
             cudaErrorInvalidValue);
  CUDA((cudaGetLastError(), cudaFuncSetAttribute(use, cudaFuncAttributeMaxDynamicSharedMemorySize, opt_in)));
  use<<<1, 32, opt_in>>>(out, opt_in / 4);
  CUDA(cudaDeviceSynchronize());
  CHECK(*out == opt_in / 4 - 1);

  // The static part counts too.
  half_static<<<1, 32, 32 * 1024>>>(out, 3);
  CUDA(cudaDeviceSynchronize());
  CHECK(*out == 6);
  half_static<<<1, 32, 32 * 1024 + 4>>>(out, 3);
  CHECK_CODE(cudaGetLastError(), cudaErrorInvalidValue);
  cudaFuncAttributes attributes;
  CUDA(cudaFuncGetAttributes(&attributes, half_static));
  CHECK(attributes.sharedSizeBytes == 16384 && attributes.maxThreadsPerBlock == 1024);
  CHECK(attributes.maxDynamicSharedSizeBytes == 32 * 1024);
}
