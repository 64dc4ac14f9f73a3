#include "kernels.cuh"

#include "driver.cuh"

int main(int argc, char **argv) {
  constexpr int N = 256, K = 64;
  auto *A = driver::array<float>(N * N), *B = driver::array<float>(N * N), *C = driver::array<float>(N * N);
  return driver::repeat(argc, argv, [&] {
    sgemm_shared_mem_block<32><<<dim3(8, 8), 1024>>>(N, N, K, 0.5f, A, B, 3.0f, C);
    sgemm1DBlocktiling<64, 64, 8, 8><<<dim3(4, 4), 512>>>(N, N, K, 0.5f, A, B, 3.0f, C);
    sgemm2DBlocktiling<128, 128, 8, 8, 8><<<dim3(2, 2), 256>>>(N, N, K, 0.5f, A, B, 3.0f, C);
    sgemmVectorize<128, 128, 8, 8, 8><<<dim3(2, 2), 256>>>(N, N, K, 0.5f, A, B, 3.0f, C);
    sgemmResolveBankConflicts<128, 128, 8, 8, 8><<<dim3(2, 2), 256>>>(N, N, K, 0.5f, A, B, 3.0f, C);
    sgemmResolveBankExtraCol<128, 128, 8, 8, 8><<<dim3(2, 2), 256>>>(N, N, K, 0.5f, A, B, 3.0f, C);
    sgemmWarptiling<128, 128, 16, 64, 64, 4, 8, 4, 128><<<dim3(2, 2), 128>>>(N, N, K, 0.5f, A, B, 3.0f, C);
    sgemmDoubleBuffering<128, 256, 16, 128, 32, 1, 8, 8, 256>
        <<<dim3(1, 2), 256>>>(N, N, K, 0.5f, A, B, 3.0f, C);
    runSgemmDoubleBuffering2<128, 128, 16, 64, 64, 4, 8, 4, 128>
        <<<1, 128>>>(128, 128, 64, 0.5f, A, B, 3.0f, C);
  });
}
