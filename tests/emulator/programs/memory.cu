// Pitched and three-dimensional copies and fills, managed and registered memory, attributes of pointers.
#include "check.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

__global__ void double_all(int *data, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    data[i] *= 2;
}

void two_dimensions() {
  const int width = 100, height = 7; // ints, rows
  std::vector<int> in(width * height), out(width * height);
  std::iota(in.begin(), in.end(), 0);
  int *gmem;
  size_t pitch;
  CUDA(cudaMallocPitch(&gmem, &pitch, width * sizeof(int), height));
  CHECK(pitch >= width * sizeof(int) && pitch % 256 == 0);
  CUDA(cudaMemset2D(gmem, pitch, 0xff, width * sizeof(int), height));
  CUDA(cudaMemcpy2D(gmem, pitch, in.data(), width * sizeof(int), width * sizeof(int), height - 1,
                    cudaMemcpyHostToDevice));
  CUDA(cudaMemcpy2D(out.data(), width * sizeof(int), gmem, pitch, width * sizeof(int), height,
                    cudaMemcpyDeviceToHost));
  for (int i = 0; i < width * height; ++i)
    CHECK(out[i] == (i < width * (height - 1) ? i : -1));
  CHECK_CODE(cudaMemcpy2D(out.data(), 4, gmem, pitch, 8, 2, cudaMemcpyDeviceToHost),
             cudaErrorInvalidPitchValue);
  CHECK_CODE(cudaMemcpy2D(out.data(), pitch, gmem, pitch, 400, 1000, cudaMemcpyDeviceToHost),
             cudaErrorInvalidValue);
  CUDA(cudaFree(gmem));
}

void three_dimensions() {
  const cudaExtent extent = make_cudaExtent(20, 5, 3);
  std::vector<unsigned char> in(20 * 5 * 3), out(in.size());
  std::iota(in.begin(), in.end(), static_cast<unsigned char>(0));
  cudaPitchedPtr gmem;
  CUDA(cudaMalloc3D(&gmem, extent));
  CUDA(cudaMemset3D(gmem, 9, extent));
  cudaMemcpy3DParms to = {}, from = {};
  to.srcPtr = make_cudaPitchedPtr(in.data(), 20, 20, 5);
  to.dstPtr = gmem;
  to.dstPos = make_cudaPos(0, 1, 1);
  to.extent = make_cudaExtent(20, 4, 2);
  to.kind = cudaMemcpyHostToDevice;
  CUDA(cudaMemcpy3D(&to));
  from.srcPtr = gmem;
  from.dstPtr = make_cudaPitchedPtr(out.data(), 20, 20, 5);
  from.extent = extent;
  from.kind = cudaMemcpyDeviceToHost;
  CUDA(cudaMemcpy3D(&from));
  for (int z = 0; z < 3; ++z)
    for (int y = 0; y < 5; ++y)
      for (int x = 0; x < 20; ++x)
        CHECK(out[(z * 5 + y) * 20 + x] == (z >= 1 && y >= 1 ? in[((z - 1) * 5 + (y - 1)) * 20 + x] : 9));
  CUDA(cudaFree(gmem.ptr));
}

void kinds_of_memory() {
  const int n = 64;
  int *managed, *pinned, *device;
  std::vector<int> own(n, 4);
  CUDA(cudaMallocManaged(&managed, n * sizeof(int)));
  CUDA(cudaHostAlloc(&pinned, n * sizeof(int), cudaHostAllocMapped));
  CUDA(cudaMalloc(&device, n * sizeof(int)));
  CUDA(cudaHostRegister(own.data(), n * sizeof(int), cudaHostRegisterDefault));
  std::fill_n(managed, n, 2);
  std::fill_n(pinned, n, 3);
  int *mapped;
  CUDA(cudaHostGetDevicePointer(&mapped, own.data(), 0));
  for (int *data : {managed, pinned, mapped})
    double_all<<<2, 32>>>(data, n);
  CUDA(cudaDeviceSynchronize());
  CHECK(managed[n - 1] == 4 && pinned[0] == 6 && own[5] == 8);

  const struct {
    void *pointer;
    cudaMemoryType type;
  } wanted[] = {{managed + 3, cudaMemoryTypeManaged},
                {pinned, cudaMemoryTypeHost},
                {device, cudaMemoryTypeDevice},
                {own.data(), cudaMemoryTypeHost},
                {const_cast<int *>(&n), cudaMemoryTypeUnregistered}};
  for (const auto &[pointer, type] : wanted) {
    cudaPointerAttributes attributes;
    CUDA(cudaPointerGetAttributes(&attributes, pointer));
    CHECK(attributes.type == type);
  }
  CUDA(cudaHostUnregister(own.data()));
  CHECK_CODE(cudaHostUnregister(own.data()), cudaErrorHostMemoryNotRegistered);
  CUDA(cudaFreeHost(pinned));
  CUDA(cudaFree(managed));
  CUDA(cudaFree(device));
  CUDA(cudaFree(nullptr));
  CHECK_CODE(cudaFree(device), cudaErrorInvalidValue);
}

void sizes() {
  size_t free_before, free_after, total;
  CUDA(cudaMemGetInfo(&free_before, &total));
  CHECK(free_before <= total && total > (1ull << 30));
  void *huge;
  CHECK_CODE(cudaMalloc(&huge, total * 2), cudaErrorMemoryAllocation);
  CHECK_CODE(cudaGetLastError(), cudaErrorMemoryAllocation);
  int *device, host[4] = {};
  CUDA(cudaMalloc(&device, sizeof host));
  CHECK_CODE(cudaMemcpy(device, host, 100, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  CHECK_CODE(cudaMemcpy(host, host, 4, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  CUDA(cudaMemcpy(device, host, sizeof host, cudaMemcpyDefault));
  CHECK_CODE(cudaMemset(device, 0, 100), cudaErrorInvalidValue);
  CUDA(cudaMemGetInfo(&free_after, &total));
  CUDA(cudaFree(device));
}

void zeros_in_large_memory() {
  const size_t size = 80 << 20, first = 4099, bytes = size - 12345; // no whole number of pages
  std::vector<unsigned char> out(size);
  unsigned char *gmem;
  CUDA(cudaMalloc(&gmem, size));
  CUDA(cudaMemset(gmem, 7, size));
  CUDA(cudaMemset(gmem + first, 0, bytes));
  CUDA(cudaMemcpy(out.data(), gmem, size, cudaMemcpyDeviceToHost));
  const auto count = [&](unsigned char value, size_t begin, size_t end) {
    return size_t(std::count(out.begin() + begin, out.begin() + end, value)) == end - begin;
  };
  CHECK(count(7, 0, first) && count(0, first, first + bytes) && count(7, first + bytes, size));
  CUDA(cudaFree(gmem));
}

int main() {
  two_dimensions();
  zeros_in_large_memory();
  three_dimensions();
  kinds_of_memory();
  sizes();
}
