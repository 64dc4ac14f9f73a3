#define main main_of_the_sample
#include "globalToShmemAsyncCopy.cu"
#undef main

#include "driver.cuh"

int main(int argc, char **argv) {
  constexpr int N = 64, B = 16;
  auto *a = driver::array<float>(N * N), *b = driver::array<float>(N * N), *c = driver::array<float>(N * N);
  const dim3 grid(N / B, N / B), block(B, B);
  return driver::repeat(argc, argv, [&] {
    MatrixMulAsyncCopyMultiStageLargeChunk<B><<<grid, block>>>(c, a, b, N, N);
    MatrixMulAsyncCopyLargeChunk<B><<<grid, block>>>(c, a, b, N, N);
    MatrixMulAsyncCopyLargeChunkAWBarrier<B><<<grid, block>>>(c, a, b, N, N);
    MatrixMulAsyncCopySingleStage<B><<<grid, block>>>(c, a, b, N, N);
    MatrixMulAsyncCopyMultiStage<B><<<grid, block>>>(c, a, b, N, N);
    MatrixMulNaive<B><<<grid, block>>>(c, a, b, N, N);
    MatrixMulNaiveLargeChunk<B><<<grid, block>>>(c, a, b, N, N);
    MatrixMulAsyncCopyMultiStageSharedState<B><<<grid, dim3(B, B + 2)>>>(c, a, b, N, N);
  });
}
