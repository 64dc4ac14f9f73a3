// Kernel 2 of llm.c's attention (dev/cuda) on two heads of 64 tokens, into memory that holds NaNs or zeros.
#define main unused_main
#include "attention_forward.cu"
#undef main

#include "../other_kernels/driver.cuh"

int main(int argc, char **) {
  constexpr int tokens = 64, heads = 2, channels = 32, threads = 64;
  auto *in = driver::array<float>(3 * tokens * channels);
  float *out = nullptr;
  driver::require(cudaMalloc(&out, tokens * channels * sizeof(float)));
  if (argc > 1) // what cudaMalloc returns may hold anything, such as NaNs
    driver::require(cudaMemset(out, 0xff, tokens * channels * sizeof(float)));
  attention_forward2(out, in, 1, tokens, channels, heads, threads);
  std::vector<float> host(tokens * channels);
  driver::require(cudaMemcpy(host.data(), out, sizeof(float) * host.size(), cudaMemcpyDefault));
  std::size_t nans = 0;
  for (const float value : host)
    nans += value != value;
  std::printf("%zu of %zu elements are NaN\n", nans, host.size());
  driver::require(cudaFree(in));
  driver::require(cudaFree(out));
}
