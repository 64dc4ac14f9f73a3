#include "matmul_v1.cu"

#include "driver.cuh"

int main(int argc, char **argv) {
  constexpr int N = 256, K = 128;
  auto *A = driver::array<nv_bfloat16>(N * K), *B = driver::array<nv_bfloat16>(K * N),
       *C = driver::array<nv_bfloat16>(N * N);
  return driver::repeat(argc, argv, [&] {
    for (auto *matmul : {matmul_v1, matmul_v2, matmul_v3, matmul_v4})
      matmul(A, B, C, N, N, K);
  });
}
