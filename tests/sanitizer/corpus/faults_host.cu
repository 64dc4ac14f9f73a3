// Planted faults of the host. The line that must be named has a comment: fault, the case in brackets, a
// colon, the kind.
// clang-format off: a fault's mark stands on the line of the fault, however long
#include "corpus.h"

#include <vector>

namespace {

// --- memory of the host and the device ---------------------------------------------------------------------

__global__ void add_one(float *values, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    values[i] += 1.f; // fault(used_after_free): use after free; fault(host_pointer): host pointer; fault(allocation_that_fails): out of bounds
}

CASE(used_after_free) {
  float *values;
  cudaMalloc(&values, 128 * sizeof(float));
  cudaMemset(values, 0, 128 * sizeof(float));
  cudaFree(values);
  add_one<<<1, 128>>>(values, 128);
}

CASE(host_pointer) {
  std::vector<float> values(128);
  add_one<<<1, 128>>>(values.data(), 128);
}

CASE(allocation_that_fails) {
  float *values = nullptr;
  cudaMalloc(&values, size_t(1) << 45);
  add_one<<<1, 128>>>(values, 128);
}

CASE(host_reads_device_memory) {
  Device<float> values(128);
  add_one<<<1, 128>>>(values, 128);
  cudaDeviceSynchronize();
  printf("%g\n", values.data[5]); // fault(host_reads_device_memory): host access
}

CASE(freed_twice) {
  float *values;
  cudaMalloc(&values, 128);
  cudaFree(values);
  cudaFree(values); // fault(freed_twice): bad free
}

CASE(freed_in_the_middle) {
  float *values;
  cudaMalloc(&values, 128);
  cudaFree(values + 4); // fault(freed_in_the_middle): bad free
  cudaFree(values);
}

CASE(never_freed) {
  float *values;
  cudaMalloc(&values, 128); // fault(never_freed): leak
  cudaMemset(values, 0, 128);
}

CASE(copy_too_large) {
  Device<float> values(100);
  std::vector<float> host(128);
  cudaMemcpy(values, host.data(), 128 * sizeof(float), cudaMemcpyHostToDevice); // fault(copy_too_large): bad copy
}

CASE(copy_with_swapped_pointers) {
  Device<float> values(128);
  std::vector<float> host(128);
  cudaMemcpy(host.data(), values, 128 * sizeof(float), cudaMemcpyHostToDevice); // fault(copy_with_swapped_pointers): bad copy
}

CASE(copy_within_the_device_by_host_kind) {
  Device<float> from(128), to(128);
  cudaMemcpy(to, from, 128 * sizeof(float), cudaMemcpyHostToDevice); // fault(copy_within_the_device_by_host_kind): bad copy
}

CASE(copied_after_free) {
  float *values;
  std::vector<float> host(32);
  cudaMalloc(&values, 128);
  cudaMemset(values, 0, 128);
  cudaFree(values);
  cudaMemcpy(host.data(), values, 128, cudaMemcpyDeviceToHost); // fault(copied_after_free): use after free
}

__global__ void writes_all_but_the_last_tile(float *out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    out[i] = float(i);
}
CASE(last_tile_unwritten) {
  float *out;
  std::vector<float> host(100);
  cudaMalloc(&out, 100 * sizeof(float));
  writes_all_but_the_last_tile<<<100 / 32, 32>>>(out, 100);
  cudaMemcpy(host.data(), out, 100 * sizeof(float), cudaMemcpyDeviceToHost); // fault(last_tile_unwritten): unwritten output
  cudaFree(out);
}

CASE(block_too_large) {
  Device<float> values(2048);
  add_one<<<1, 2048>>>(values, 2048); // fault(block_too_large): bad launch
  printf("%s\n", cudaGetErrorName(cudaGetLastError()));
}

__global__ void fill_dynamic(float *out) {
  extern __shared__ float dynamic[];
  dynamic[threadIdx.x] = float(threadIdx.x);
  __syncthreads();
  out[threadIdx.x] = dynamic[threadIdx.x];
}
CASE(too_much_shared_memory) {
  Device<float> out(64);
  fill_dynamic<<<1, 64, 64 * 1024>>>(out); // fault(too_much_shared_memory): bad launch
  printf("%s\n", cudaGetErrorName(cudaGetLastError()));
}

CASE(nobody_asks_for_the_error) {
  Device<float> values(64);
  add_one<<<dim3(1, 70000), 64>>>(values, 64); // fault(nobody_asks_for_the_error): unchecked error
}

__global__ void frees_twice(int *out) {
  int *const own = static_cast<int *>(malloc(64));
  own[0] = 3;
  *out = own[0];
  free(own);
  free(own); // fault(kernel_frees_twice): bad free
}
CASE(kernel_frees_twice) {
  Device<int> out(1);
  frees_twice<<<1, 1>>>(out);
}

} // namespace
