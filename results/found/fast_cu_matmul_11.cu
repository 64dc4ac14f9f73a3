// Kernel 11 of fast.cu: one cluster of two blocks computes two tiles, one after the other, as its runKernel11
// makes 64 clusters do.
#include <cassert>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include <cuda.h>
#include <cuda_bf16.h>

#include "../other_kernels/driver.cuh"

using bf16 = __nv_bfloat16;
using std::max;
#define CEIL_DIV(a, b) (((a) + (b) - 1) / (b))
#define cudaCheck driver::require
#include "matmul_11.cuh"

namespace {

constexpr int M = 256, N = 512, K = 256, BM = 128, BN = 256, BK = 64, threads = 384, stages = 3;

float a_of(std::size_t i) { return float((i * 7 + i / K) % 5) - 2; }
float b_of(std::size_t i) { return float((i * 3 + i / K) % 7) - 3; }

/// Element (row, column) of the product, rounded as the kernel rounds it.
float product(int row, int column) {
  float sum = 0;
  for (int k = 0; k < K; ++k)
    sum += a_of(row * K + k) * b_of(column * K + k);
  return float(bf16(sum));
}

} // namespace

int main() {
  auto *A = driver::array_of<bf16>(M * K, a_of), *B = driver::array_of<bf16>(N * K, b_of),
       *C = driver::array<bf16>(M * N);
  auto *tiles = driver::array_of<int>(M11::SPACE_LEN, [](std::size_t i) { return i < 2 ? int(i) : -1; });
  auto *kernel = M11::matmulKernel11<BM, BN, BK, threads, stages, 2, 2, 1>;
  const int bytes = driver::allow_smem(kernel, sizeof(M11::SMem<BM, BN, BK, stages>));
  kernel<<<2, threads, bytes>>>(M, N, K, M11::create_tensor_map<BN, BM, false>(C, N, M),
                                M11::create_tensor_map<BM, BK>(A, M, K),
                                M11::create_tensor_map<BN, BK>(B, N, K), tiles);
  std::vector<bf16> found(M * N);
  driver::require(cudaMemcpy(found.data(), C, found.size() * sizeof(bf16), cudaMemcpyDeviceToHost));
  int wrong = 0;
  for (int column = 0; column < N; ++column)
    for (int row = 0; row < M; ++row)
      wrong += float(found[column * M + row]) != product(row, column);
  std::printf("%d of %d elements are wrong\n", wrong, M * N);
  for (void *memory :
       {static_cast<void *>(A), static_cast<void *>(B), static_cast<void *>(C), static_cast<void *>(tiles)})
    driver::require(cudaFree(memory));
}
