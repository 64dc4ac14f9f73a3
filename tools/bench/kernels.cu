// Kernels to measure the emulator's speed, with loops like those of real kernels.
#include <cstdint>
#include <cuda_fp16.h>
#include <mma.h>

constexpr int kTile = 32;

// Scalar: the textbook's tiled product, 32 x 32 threads per block, sizes multiples of 32.
extern "C" __global__ void scalar(const float *a, const float *b, float *c, int n) {
  __shared__ float a_smem[kTile][kTile], b_smem[kTile][kTile];
  const int row = blockIdx.y * kTile + threadIdx.y, column = blockIdx.x * kTile + threadIdx.x;
  float sum = 0;
  for (int t = 0; t < n; t += kTile) {
    a_smem[threadIdx.y][threadIdx.x] = a[row * n + t + threadIdx.x];
    b_smem[threadIdx.y][threadIdx.x] = b[(t + threadIdx.y) * n + column];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kTile; ++i)
      sum = fmaf(a_smem[threadIdx.y][i], b_smem[i][threadIdx.x], sum);
    __syncthreads();
  }
  c[row * n + column] = sum;
}

// Tensor cores: each of four warps multiplies its 16 x 64 rows of A by a 64 x 64 tile of B in shared memory,
// as the attention kernels do with Q and K: ldmatrix, then mma.sync.
extern "C" __global__ void tensor(const std::uint16_t *a, const std::uint16_t *b, float *c, int rounds) {
  constexpr int kWidth = 64, kWarps = 4;
  __shared__ alignas(128) std::uint16_t a_smem[kWarps * 16 * kWidth], b_smem[kWidth * kWidth];
  for (int i = threadIdx.x; i < kWarps * 16 * kWidth; i += blockDim.x)
    a_smem[i] = a[i];
  for (int i = threadIdx.x; i < kWidth * kWidth; i += blockDim.x)
    b_smem[i] = b[i];
  __syncthreads();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const auto swizzled = [](int row, int chunk) { return row * kWidth + (chunk ^ row % 8) * 8; };
  std::uint32_t a_rmem[4][4];
  float sum[8][4] = {};
  for (int round = 0; round < rounds; ++round) {
    for (int k = 0; k < 4; ++k) {
      const auto at = static_cast<std::uint32_t>(
          __cvta_generic_to_shared(&a_smem[warp * 16 * kWidth + swizzled(lane % 16, 2 * k + lane / 16)]));
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(a_rmem[k][0]), "=r"(a_rmem[k][1]), "=r"(a_rmem[k][2]), "=r"(a_rmem[k][3])
                   : "r"(at));
    }
    for (int n = 0; n < 8; ++n)
      for (int k = 0; k < 4; k += 2) {
        std::uint32_t b_rmem[4];
        const auto at = static_cast<std::uint32_t>(
            __cvta_generic_to_shared(&b_smem[swizzled(n * 8 + lane % 8, 2 * k + lane / 8)]));
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(b_rmem[0]), "=r"(b_rmem[1]), "=r"(b_rmem[2]), "=r"(b_rmem[3])
                     : "r"(at));
        for (int half = 0; half < 2; ++half)
          asm volatile(
              "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
              "{%8, %9}, {%0, %1, %2, %3};"
              : "+f"(sum[n][0]), "+f"(sum[n][1]), "+f"(sum[n][2]), "+f"(sum[n][3])
              : "r"(a_rmem[k + half][0]), "r"(a_rmem[k + half][1]), "r"(a_rmem[k + half][2]),
                "r"(a_rmem[k + half][3]), "r"(b_rmem[2 * half]), "r"(b_rmem[2 * half + 1]));
      }
    // A small version of attention's work between its two products.
    for (int n = 0; n < 8; ++n)
      for (int i = 0; i < 4; ++i)
        sum[n][i] = fmaxf(sum[n][i] * 0.5f, -1e30f);
  }
  for (int n = 0; n < 8; ++n)
    for (int i = 0; i < 4; ++i)
      c[((blockIdx.x * kWarps + warp) * 32 + lane) * 32 + n * 4 + i] = sum[n][i];
}

// wmma: the tensor cores through CUDA's own API. Each warp multiplies tiles of 16 x 16 from shared memory.
extern "C" __global__ void wmma(const __half *a, const __half *b, float *c, int rounds) {
  namespace wmma = nvcuda::wmma;
  constexpr int kWidth = 64, kTiles = kWidth / 16;
  __shared__ alignas(128) __half a_smem[kWidth * kWidth], b_smem[kWidth * kWidth];
  for (int i = threadIdx.x; i < kWidth * kWidth; i += blockDim.x) {
    a_smem[i] = a[i];
    b_smem[i] = b[i];
  }
  __syncthreads();
  const int warp = threadIdx.x / 32;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sums[kTiles];
  for (auto &sum : sums)
    wmma::fill_fragment(sum, 0.0f);
  for (int round = 0; round < rounds; ++round)
    for (int k = 0; k < kTiles; ++k) {
      wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> rows;
      wmma::load_matrix_sync(rows, &a_smem[warp * 16 * kWidth + k * 16], kWidth);
      for (int n = 0; n < kTiles; ++n) {
        wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> columns;
        wmma::load_matrix_sync(columns, &b_smem[k * 16 * kWidth + n * 16], kWidth);
        wmma::mma_sync(sums[n], rows, columns, sums[n]);
      }
    }
  for (int n = 0; n < kTiles; ++n)
    wmma::store_matrix_sync(&c[((blockIdx.x * 4 + warp) * kTiles + n) * 256], sums[n], 16,
                            wmma::mem_row_major);
}

// Double precision: an n-body problem per block, in shared memory.
extern "C" __global__ void fp64(const double *mass, double *pull, int rounds) {
  constexpr int kBodies = 256;
  __shared__ double body_smem[kBodies][2];
  const int i = blockIdx.x * kBodies + threadIdx.x;
  body_smem[threadIdx.x][0] = mass[i];
  body_smem[threadIdx.x][1] = mass[i] * 0.5;
  __syncthreads();
  double sum = 0;
  for (int round = 0; round < rounds; ++round)
    for (int j = 0; j < kBodies; j += 8) {
      const double distance = body_smem[j][1] - body_smem[threadIdx.x][1];
      sum = fma(body_smem[(threadIdx.x + round) % kBodies][0], 1.0 / sqrt(distance * distance + 0.25), sum);
    }
  pull[i] = sum;
}
