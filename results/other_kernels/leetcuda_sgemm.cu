#include "sgemm_async.cu"

#include "driver.cuh"

int main(int argc, char **argv) {
  constexpr int N = 256, K = 64, tile = 128;
  auto *A = driver::array<float>(N * K), *B = driver::array<float>(K * N), *C = driver::array<float>(N * N);
  const dim3 grid(N / tile, N / tile), block(16, 16);
  return driver::repeat(argc, argv, [&] {
    sgemm_t_8x8_sliced_k16_f32x4_bcf_dbuf_kernel<tile, tile, 16, 8, 8, 0><<<grid, block>>>(A, B, C, N, N, K);
    sgemm_t_8x8_sliced_k16_f32x4_bcf_dbuf_async_kernel<tile, tile, 16, 8, 8, 0>
        <<<grid, block>>>(A, B, C, N, N, K);
    sgemm_t_8x8_sliced_k16_f32x4_bcf_dbuf_async_kernel<tile, tile, 16, 8, 8, 4>
        <<<grid, block>>>(A, B, C, N, N, K);
  });
}
