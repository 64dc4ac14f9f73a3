// Arguments that make no sense: each is an error, none is carried out in part, and nothing else comes of it.
#include "check.h"

#include <climits>
#include <cstdint>
#include <thread>
#include <vector>

__global__ void add(int *data, int n) {
  const int i = threadIdx.x;
  if (i < n)
    data[i] += 1;
}

__global__ void work(volatile int *progress, int *data, int n) {
  progress[0] = 1;
  for (int round = 0; round < 4; ++round)
    for (int i = threadIdx.x; i < n; i += 32)
      data[i] += round;
  progress[1] = 1;
}

__device__ int variable[16];

constexpr size_t kMost = SIZE_MAX;

void sizes_that_wrap() {
  void *pointer = nullptr;
  size_t pitch = 0;
  CHECK_CODE(cudaMallocPitch(&pointer, &pitch, kMost, 1), cudaErrorMemoryAllocation);
  CHECK_CODE(cudaMallocPitch(&pointer, &pitch, 1, kMost / 512 + 1), cudaErrorMemoryAllocation);
  cudaPitchedPtr pitched;
  CHECK_CODE(cudaMalloc3D(&pitched, make_cudaExtent(1, kMost / 512 + 1, 1)), cudaErrorMemoryAllocation);
  CHECK_CODE(cudaMalloc3D(&pitched, make_cudaExtent(512, 1, kMost / 512 + 1)), cudaErrorMemoryAllocation);
  CHECK_CODE(cudaDeviceSetLimit(cudaLimitMallocHeapSize, kMost), cudaErrorInvalidValue);
}

void boxes() {
  const int height = 4, depth = 2;
  cudaPitchedPtr gmem;
  const cudaExtent extent = make_cudaExtent(512, height, depth);
  CUDA(cudaMalloc3D(&gmem, extent));
  CHECK_CODE(cudaMemset2D(gmem.ptr, 512, 1, 1, kMost / 512 + 2), cudaErrorInvalidValue);
  CHECK_CODE(cudaMemset2D(gmem.ptr, kMost, 1, 1, 3), cudaErrorInvalidValue);
  CHECK_CODE(cudaMemset3D(gmem, 1, make_cudaExtent(1, 1, kMost / 512)), cudaErrorInvalidValue);
  // Slices of fewer rows than the box has would lie on each other; of none, any number of them.
  cudaPitchedPtr flat = gmem;
  flat.ysize = 0;
  CHECK_CODE(cudaMemset3D(flat, 1, make_cudaExtent(1, 1, kMost)), cudaErrorInvalidValue);
  cudaMemcpy3DParms parameters = {};
  parameters.srcPtr = parameters.dstPtr = gmem;
  parameters.extent = make_cudaExtent(1, 1, 1);
  parameters.kind = cudaMemcpyDeviceToDevice;
  CUDA(cudaMemcpy3D(&parameters));
  parameters.dstPos = make_cudaPos(0, kMost / 512 + 1, 0);
  CHECK_CODE(cudaMemcpy3D(&parameters), cudaErrorInvalidValue);
  parameters.dstPos = make_cudaPos(512, 0, 0);
  CHECK_CODE(cudaMemcpy3D(&parameters), cudaErrorInvalidPitchValue);
  unsigned char out[512 * height * depth];
  CUDA(cudaMemcpy(out, gmem.ptr, sizeof out, cudaMemcpyDeviceToHost));
  for (const unsigned char byte : out)
    CHECK(byte == 0);
  CUDA(cudaFree(gmem.ptr));
}

void variables() {
  int *small;
  int host[16] = {};
  CUDA(cudaMalloc(&small, 4));
  CHECK_CODE(cudaMemcpyToSymbol(variable, small, sizeof host, 0, cudaMemcpyDeviceToDevice),
             cudaErrorInvalidValue);
  CHECK_CODE(cudaMemcpyFromSymbol(small, variable, sizeof host, 0, cudaMemcpyDeviceToDevice),
             cudaErrorInvalidValue);
  CHECK_CODE(cudaMemcpyToSymbol(variable, reinterpret_cast<void *>(0x1000), 4, 0, cudaMemcpyDeviceToDevice),
             cudaErrorInvalidValue);
  CHECK_CODE(cudaMemcpyToSymbol(variable, nullptr, 4, 0), cudaErrorInvalidValue);
  CUDA(cudaMemcpyToSymbol(variable, nullptr, 0, 0));
  CHECK_CODE(cudaMemcpyToSymbol(variable, host, 4, kMost), cudaErrorInvalidValue);
  CUDA(cudaFree(small));
}

void handles() {
  cudaStream_t stream, next;
  cudaEvent_t event, another;
  CUDA(cudaStreamCreate(&stream));
  CUDA(cudaStreamDestroy(stream));
  CUDA(cudaStreamCreate(&next));
  CHECK_CODE(cudaStreamQuery(stream), cudaErrorInvalidResourceHandle);
  CHECK_CODE(cudaStreamDestroy(stream), cudaErrorInvalidResourceHandle);
  CUDA(cudaEventCreate(&event));
  CUDA(cudaEventDestroy(event));
  CUDA(cudaEventCreate(&another));
  CHECK_CODE(cudaEventRecord(event, next), cudaErrorInvalidResourceHandle);
  CHECK_CODE(cudaEventDestroy(event), cudaErrorInvalidResourceHandle);
  CUDA(cudaDeviceReset());
  CHECK_CODE(cudaStreamQuery(next), cudaErrorInvalidResourceHandle);
  CHECK_CODE(cudaEventQuery(another), cudaErrorInvalidResourceHandle);
}

void kernels() {
  size_t bytes;
  int blocks, *data;
  const void *kernel = reinterpret_cast<const void *>(add);
  CHECK_CODE(cudaOccupancyAvailableDynamicSMemPerBlock(&bytes, kernel, 1, INT_MAX), cudaErrorInvalidValue);
  CHECK_CODE(cudaOccupancyAvailableDynamicSMemPerBlock(&bytes, kernel, INT_MAX, 1024), cudaErrorInvalidValue);
  CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, 32, kMost));
  CHECK(blocks == 0);
  CUDA(cudaMalloc(&data, 4));
  void *no_pointer[] = {&data, nullptr};
  CHECK_CODE(cudaLaunchKernel(kernel, dim3(1), dim3(1), no_pointer, 0, nullptr), cudaErrorInvalidValue);
  int n = 1;
  void *arguments[] = {&data, &n};
  cudaLaunchConfig_t config = {};
  config.gridDim = config.blockDim = dim3(1);
  config.numAttrs = 1;
  CHECK_CODE(cudaLaunchKernelExC(&config, kernel, arguments), cudaErrorInvalidValue);
  cudaLaunchAttribute cluster = {};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = cluster.val.clusterDim.y = 1u << 16;
  cluster.val.clusterDim.z = 1;
  config.attrs = &cluster;
  CHECK_CODE(cudaLaunchKernelExC(&config, kernel, arguments), cudaErrorNotSupported);
  CUDA(cudaFree(data));
}

void registered_memory() {
  std::vector<char> own(1 << 16);
  CHECK_CODE(cudaHostRegister(own.data(), kMost / 2, 0), cudaErrorInvalidValue);
  CHECK_CODE(cudaHostRegister(own.data(), size_t(1) << 45, 0), cudaErrorInvalidValue);
  CUDA(cudaHostRegister(own.data(), own.size(), 0));
  CUDA(cudaHostUnregister(own.data()));
}

/// As on a GPU, memory is freed when the work that uses it is done, whichever thread asks.
void free_beside_a_launch() {
  const int n = 1 << 18;
  int *data, *progress;
  CUDA(cudaMalloc(&data, n * sizeof(int)));
  CUDA(cudaMallocManaged(&progress, 2 * sizeof(int)));
  std::thread other([&] { work<<<1, 32>>>(progress, data, n); });
  volatile int *const seen = progress;
  while (!seen[0])
    std::this_thread::yield();
  CUDA(cudaFree(data));
  CHECK(seen[1] == 1);
  other.join();
  CUDA(cudaDeviceSynchronize());
  CUDA(cudaFree(progress));
}

int main() {
  sizes_that_wrap();
  boxes();
  variables();
  handles();
  kernels();
  registered_memory();
  free_beside_a_launch();
}
