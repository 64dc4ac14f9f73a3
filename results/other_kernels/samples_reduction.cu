#include "reduction_kernel.cu"

#include "driver.cuh"

bool isPow2(unsigned int x) { return (x & (x - 1)) == 0; }

int main(int argc, char **argv) {
  constexpr int elements = 8192, threads = 256, kernels = 9;
  auto *in = driver::array_of<int>(elements, [](auto i) { return i & 255; }),
       *out = driver::array<int>(elements / threads);
  return driver::repeat(argc, argv, [&] {
    for (int kernel = 0; kernel < kernels; ++kernel)
      reduce<int>(elements, threads, elements / threads / (kernel < 3 ? 1 : 2), kernel, in, out);
  });
}
