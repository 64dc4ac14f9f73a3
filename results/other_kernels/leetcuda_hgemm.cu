#include "hgemm_mma_stage.cu"

#include "driver.cuh"

constexpr int kSize = 256, kDepth = 128, kTile = 128, kStages = 3;

template <int Pad> void launch(half *A, half *B, half *C) {
  auto *kernel =
      hgemm_mma_m16n8k16_mma2x4_warp4x4_stages_kernel<16, 8, 16, 2, 4, 4, 4, Pad, Pad, kStages, false>;
  const int smem = kStages * (kTile * (16 + Pad) + 16 * (kTile + Pad)) * int(sizeof(half));
  kernel<<<dim3(kSize / kTile, kSize / kTile), 256, driver::allow_smem(kernel, smem)>>>(A, B, C, kSize, kSize,
                                                                                        kDepth);
}

int main(int argc, char **argv) {
  auto *A = driver::array<half>(kSize * kDepth), *B = driver::array<half>(kDepth * kSize),
       *C = driver::array<half>(kSize * kSize);
  return driver::repeat(argc, argv, [&] {
    launch<0>(A, B, C);
    launch<8>(A, B, C);
  });
}
