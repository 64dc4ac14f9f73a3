#define main main_of_the_sample
#include "transpose.cu"
#undef main

#include "driver.cuh"

int main(int argc, char **argv) {
  constexpr int N = 128;
  auto *in = driver::array<float>(N * N), *out = driver::array<float>(N * N);
  return driver::repeat(argc, argv, [&] {
    for (auto *kernel :
         {copySharedMem, transposeNaive, transposeCoalesced, transposeNoBankConflicts, transposeDiagonal})
      kernel<<<dim3(N / TILE_DIM, N / TILE_DIM), dim3(TILE_DIM, BLOCK_ROWS)>>>(out, in, N, N);
  });
}
