#include "flash_attn_v2.cu"

#include "driver.cuh"

int main(int argc, char **argv) {
  constexpr int B = 1, H = 2, N = 128, d = 128;
  auto *Q = driver::array<half>(H * N * d), *K = driver::array<half>(H * N * d),
       *V = driver::array<half>(H * N * d), *O = driver::array<half>(H * N * d);
  return driver::repeat(argc, argv, [&] {
    for (auto *launch : {launch_flash_attn_v2_mma_kernel, launch_flash_attn_v2_mma_swizzle_kernel,
                         launch_flash_attn_v2_mma_swizzle_doublebuffer_kernel,
                         launch_flash_attn_v2_mma_swizzle_multibuf_kernel})
      launch(Q, K, V, O, B, H, N, N, d, nullptr);
  });
}
