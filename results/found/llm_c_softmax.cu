// Softmax kernel 4 of llm.c (dev/cuda) on 4 rows of 96 values, with two warps per block.
#define main unused_main
#include "softmax_forward.cu"
#undef main

#include "../other_kernels/driver.cuh"

int main() {
  constexpr int rows = 4, columns = 96, threads = 64;
  std::vector<float> in(rows * columns), wanted(rows * columns);
  const auto value = [](std::size_t i) { return i % 7; };
  for (std::size_t i = 0; i < in.size(); ++i)
    in[i] = float(value(i));
  softmax_forward_cpu(wanted.data(), in.data(), rows, columns);
  auto *x = driver::array_of<float>(in.size(), value), *y = driver::array<float>(in.size());
  softmax_forward(4, y, x, rows, columns, threads);
  validate_result(y, wanted.data(), "softmax", wanted.size(), 1e-4f);
  driver::require(cudaFree(x));
  driver::require(cudaFree(y));
}
