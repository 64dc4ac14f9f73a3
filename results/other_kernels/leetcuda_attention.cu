#include "flash_attn_mma_split_q.cu"

#include "driver.cuh"

constexpr int kHeads = 2, kLength = 128;

/// The tiles are those of the repository's own launch.
template <int HeadDim, int Stages> void launch(half *Q, half *K, half *V, half *O) {
  constexpr int keys = HeadDim < 128 ? 64 : 16, pad = 8;
  auto *kernel = flash_attn_mma_stages_split_q_kernel<HeadDim, 16, 8, 16, 4, 1, 4, 1, 1, keys / 8, 1,
                                                      HeadDim / 8, Stages, pad>;
  const int smem = (64 + (Stages + 1) * keys) * (HeadDim + pad) * int(sizeof(half));
  kernel<<<dim3(kLength / 64, kHeads), 128, driver::allow_smem(kernel, smem)>>>(Q, K, V, O, kLength, kHeads);
}

int main(int argc, char **argv) {
  constexpr int elements = kHeads * kLength * 128;
  auto *Q = driver::array<half>(elements), *K = driver::array<half>(elements),
       *V = driver::array<half>(elements), *O = driver::array<half>(elements);
  return driver::repeat(argc, argv, [&] {
    launch<64, 1>(Q, K, V, O);
    launch<64, 2>(Q, K, V, O);
    launch<128, 2>(Q, K, V, O);
  });
}
