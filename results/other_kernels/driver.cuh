// What the drivers share. An element's value depends on its index alone, so every run counts the same.
#pragma once

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <cuda_runtime.h>

namespace driver {

inline void require(cudaError_t error) {
  if (error == cudaSuccess)
    return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
  std::exit(1);
}

/// An array in global memory whose element i is `value(i)`.
template <typename T, typename Value> T *array_of(std::size_t elements, Value value) {
  std::vector<T> host(elements);
  for (std::size_t i = 0; i < elements; ++i)
    host[i] = T(value(i));
  T *device = nullptr;
  require(cudaMalloc(&device, elements * sizeof(T)));
  require(cudaMemcpy(device, host.data(), elements * sizeof(T), cudaMemcpyHostToDevice));
  return device;
}

/// An array of small numbers of both signs, each a multiple of 1/8.
template <typename T> T *array(std::size_t elements) {
  return array_of<T>(elements, [](std::size_t i) { return float(int(i * 7 % 17) - 8) / 8; });
}

/// Calls `launch`, which launches each kernel once, as often as the command line says (once), and waits.
template <typename Launch> int repeat(int argc, char **argv, Launch launch) {
  for (int run = 0; run < (argc > 1 ? std::atoi(argv[1]) : 1); ++run)
    launch();
  require(cudaGetLastError());
  require(cudaDeviceSynchronize());
  return 0;
}

/// Allows a kernel so many bytes of dynamic shared memory, and returns them.
template <typename Kernel> int allow_smem(Kernel kernel, int bytes) {
  require(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  return bytes;
}

} // namespace driver
