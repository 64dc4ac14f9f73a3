// Kernel 8 of llm.c's softmax gradient (dev/cuda), two warps per block, on one head of 64 tokens.
#define main unused_main
#include "attention_backward.cu"
#undef main

#include "../other_kernels/driver.cuh"

int main() {
  constexpr int tokens = 64, threads = 64;
  auto *att = driver::array<float>(tokens * tokens), *datt = driver::array<float>(tokens * tokens);
  auto *dpreatt = driver::array_of<float>(tokens * tokens, [](std::size_t) { return 0; });
  launch_softmax_8(dpreatt, datt, att, 1, tokens, tokens, 1, threads);
  driver::require(cudaDeviceSynchronize());
  std::vector<float> found(tokens * tokens), wanted(tokens * tokens);
  driver::require(cudaMemcpy(found.data(), dpreatt, sizeof(float) * found.size(), cudaMemcpyDefault));
  launch_softmax_1(dpreatt, datt, att, 1, tokens, tokens, 1, threads);
  driver::require(cudaMemcpy(wanted.data(), dpreatt, sizeof(float) * wanted.size(), cudaMemcpyDefault));
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i)
    wrong += std::abs(found[i] - wanted[i]) > 1e-5f;
  std::printf("%zu of %zu elements differ from kernel 1\n", wrong, wanted.size());
  for (void *array : {att, datt, dpreatt})
    driver::require(cudaFree(array));
}
