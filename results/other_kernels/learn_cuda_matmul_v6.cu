#include "matmul_v6.cu"

#include "driver.cuh"

constexpr int kSize = 256;

template <int BM, int BN, int BK, int WarpsM, int WarpsN, int Stages>
void launch(const nv_bfloat16 *A, const nv_bfloat16 *B, nv_bfloat16 *C) {
  launch_kernel(matmul_v6_kernel<BM, BN, BK, WarpsM, WarpsN, Stages, 0>, kSize / BM * (kSize / BN),
                WarpsM * WarpsN * WARP_SIZE, (BM + BN) * BK * int(sizeof(nv_bfloat16)) * Stages, A, B, C,
                kSize, kSize, kSize);
}

int main(int argc, char **argv) {
  auto *A = driver::array<nv_bfloat16>(kSize * kSize), *B = driver::array<nv_bfloat16>(kSize * kSize),
       *C = driver::array<nv_bfloat16>(kSize * kSize);
  return driver::repeat(argc, argv, [&] {
    launch<128, 128, 64, 2, 2, 2>(A, B, C);
    launch<64, 128, 32, 2, 2, 4>(A, B, C);
  });
}
