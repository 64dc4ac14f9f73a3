#include "flash.cu"

#include "driver.cuh"

int main(int argc, char **argv) {
  constexpr int B = 2, H = 2, N = 64, d = 64, tile = 32;
  const std::size_t elements = std::size_t(B) * H * N * d, rows = std::size_t(B) * H * N;
  auto *Q = driver::array<float>(elements), *K = driver::array<float>(elements),
       *V = driver::array<float>(elements);
  auto *O = driver::array_of<float>(elements, [](auto) { return 0; });
  auto *l = driver::array_of<float>(rows, [](auto) { return 0; });
  auto *m = driver::array_of<float>(rows, [](auto) { return -INFINITY; });
  const int smem = (3 * tile * d + tile * tile) * int(sizeof(float));
  return driver::repeat(argc, argv, [&] {
    forward_kernel<<<dim3(B, H), tile, smem>>>(Q, K, V, N, d, N / tile, N / tile, tile, tile, 0.125f, l, m,
                                               O);
  });
}
