// Variables at module scope: __device__, __constant__, __managed__, with initialisers and addresses.
#include "check.h"

struct Pair {
  int first;
  double second;
};

__constant__ float coefficients[4] = {1, 2, 3, 4};
__constant__ Pair pair = {7, 0.25};
__device__ int counter = 40;
__device__ int unused_by_kernels[10];
__device__ const char *message = "a text";
__device__ int *pointer_to_counter = &counter;
__managed__ int shared_by_both = 5;
__managed__ int managed_array[3];

__global__ void use(float *out) {
  const int i = threadIdx.x;
  out[i] = coefficients[i] + float(pair.first) + float(pair.second);
  atomicAdd(pointer_to_counter, 1);
  if (i == 0) {
    shared_by_both += 10;
    managed_array[1] = message[2];
  }
}

int main() {
  CHECK(shared_by_both == 5);
  float *out_gmem, out[4];
  CUDA(cudaMalloc(&out_gmem, sizeof out));
  use<<<1, 4>>>(out_gmem);
  CUDA(cudaMemcpy(out, out_gmem, sizeof out, cudaMemcpyDeviceToHost));
  for (int i = 0; i < 4; ++i)
    CHECK(out[i] == float(i + 1) + 7.25f);
  CHECK(shared_by_both == 15 && managed_array[0] == 0 && managed_array[1] == 't');

  int count = 0;
  CUDA(cudaMemcpyFromSymbol(&count, counter, sizeof count));
  CHECK(count == 44);
  const float other[2] = {20, 30};
  CUDA(cudaMemcpyToSymbol(coefficients, other, sizeof other, sizeof(float)));
  use<<<1, 4>>>(out_gmem);
  CUDA(cudaMemcpy(out, out_gmem, sizeof out, cudaMemcpyDeviceToHost));
  CHECK(out[0] == 8.25f && out[1] == 27.25f && out[2] == 37.25f && out[3] == 11.25f);

  int *address = nullptr;
  size_t bytes = 0;
  CUDA(cudaGetSymbolAddress(reinterpret_cast<void **>(&address), counter));
  CUDA(cudaMemcpy(&count, address, sizeof count, cudaMemcpyDeviceToHost));
  CHECK(count == 48);
  CUDA(cudaGetSymbolSize(&bytes, coefficients));
  CHECK(bytes == 16);
  CHECK_CODE(cudaMemcpyToSymbol(coefficients, other, 8, 12), cudaErrorInvalidValue);
  CHECK_CODE(cudaMemcpyToSymbol(other, other, 8), cudaErrorInvalidSymbol);
}
