// What sticks and what does not.
#include "check.h"

#include <cstring>

__global__ void write_at(int *data, long long index) { data[index] = 1; }
__global__ void fine() {}
__global__ void __launch_bounds__(64) small_blocks() {}
__global__ void stop() { asm volatile("trap;"); }

void refused_launches() {
  fine<<<1, 2000>>>();
  CHECK_CODE(cudaPeekAtLastError(), cudaErrorInvalidConfiguration);
  CHECK_CODE(cudaGetLastError(), cudaErrorInvalidConfiguration);
  CHECK_CODE(cudaGetLastError(), cudaSuccess);
  fine<<<0, 32>>>();
  CHECK_CODE(cudaGetLastError(), cudaErrorInvalidConfiguration);
  fine<<<dim3(1, 70000), 32>>>();
  CHECK_CODE(cudaGetLastError(), cudaErrorInvalidConfiguration);
  small_blocks<<<1, 128>>>();
  CHECK(cudaGetLastError() != cudaSuccess);
  fine<<<1, 32>>>();
  CUDA(cudaDeviceSynchronize());
  CHECK_CODE(cudaSetDevice(3), cudaErrorInvalidDevice);
  CHECK_CODE(cudaGetLastError(), cudaErrorInvalidDevice);
}

template <typename Launch> void broken_by(cudaError_t code, Launch launch) {
  int *data, value = 0;
  CUDA(cudaMalloc(&data, 64));
  launch(data);
  CHECK_CODE(cudaDeviceSynchronize(), code);
  // It stays, whatever is called, and reading it does not clear it.
  CHECK_CODE(cudaGetLastError(), code);
  CHECK_CODE(cudaGetLastError(), code);
  CHECK_CODE(cudaMemcpy(&value, data, 4, cudaMemcpyDeviceToHost), code);
  CHECK_CODE(cudaMalloc(&data, 64), code);
  fine<<<1, 32>>>();
  CHECK_CODE(cudaPeekAtLastError(), code);
  // Until the device is reset.
  CUDA(cudaDeviceReset());
  CUDA(cudaGetLastError());
  fine<<<1, 32>>>();
  CUDA(cudaDeviceSynchronize());
}

int main() {
  CHECK(std::strcmp(cudaGetErrorString(cudaErrorIllegalAddress),
                    "an illegal memory access was encountered") == 0);
  CHECK(std::strcmp(cudaGetErrorName(cudaErrorInvalidValue), "cudaErrorInvalidValue") == 0);
  CHECK(std::strcmp(cudaGetErrorString(cudaError_t(12345)), "unrecognized error code") == 0);
  refused_launches();
  broken_by(cudaErrorIllegalAddress, [](int *data) { write_at<<<1, 1>>>(data, 16); });
  broken_by(cudaErrorIllegalAddress, [](int *data) { write_at<<<1, 1>>>(data, 1ll << 40); });
  broken_by(cudaErrorIllegalAddress, [](int *) { write_at<<<1, 1>>>(nullptr, 0); });
  broken_by(cudaErrorMisalignedAddress, [](int *data) {
    write_at<<<1, 1>>>(reinterpret_cast<int *>(reinterpret_cast<char *>(data) + 2), 0);
  });
  broken_by(cudaErrorLaunchFailure, [](int *) { stop<<<1, 1>>>(); });
  // The launch has succeeded when its kernel fails.
  broken_by(cudaErrorLaunchFailure, [](int *) { CUDA(cudaLaunchKernel(stop, 1, 1, nullptr, 0, nullptr)); });
}
