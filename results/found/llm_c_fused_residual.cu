// Kernel 2 of llm.c's fused residual and layer norm (dev/cuda) on 32 tokens, with one thread to spare.
#define main unused_main
#include "fused_residual_forward.cu"
#undef main

#include "../other_kernels/driver.cuh"

int main() {
  constexpr int tokens = 32, channels = 16, threads = 64;
  auto *a = driver::array<floatX>(tokens * channels), *b = driver::array<floatX>(tokens * channels);
  auto *weight = driver::array<floatX>(channels), *bias = driver::array<floatX>(channels);
  auto *residual = driver::array<floatX>(tokens * channels),
       *normed = driver::array<floatX>(tokens * channels);
  auto *mean = driver::array<floatX>(tokens), *rstd = driver::array<floatX>(tokens);
  fused_residual_forward2(residual, normed, mean, rstd, a, b, weight, bias, tokens, channels, threads);
  driver::require(cudaDeviceSynchronize());
  for (void *array : {a, b, weight, bias, residual, normed, mean, rstd})
    driver::require(cudaFree(array));
}
