// ladder emulate program.cu -- 20 30 40: the product of a 20 x 40 and a 40 x 30 matrix.
#include <cmath>
#include <cstdio>
#include <cstdlib>

constexpr int kTile = 16;

// c (m, n) = a (m, k) times b (k, n). A block of 16 x 16 threads computes a tile of c, one element per
// thread. Tiles of a and b are loaded into shared memory, where 16 threads use each element.
__global__ void multiply(const float *a, const float *b, float *c, int m, int n, int k) {
  __shared__ float a_smem[kTile][kTile], b_smem[kTile][kTile];
  const int x = threadIdx.x, y = threadIdx.y;
  const int row = blockIdx.y * kTile + y, col = blockIdx.x * kTile + x;
  float sum = 0.f;
  for (int k0 = 0; k0 < k; k0 += kTile) {
    a_smem[y][x] = row < m && k0 + x < k ? a[row * k + k0 + x] : 0.f;
    b_smem[y][x] = k0 + y < k && col < n ? b[(k0 + y) * n + col] : 0.f;
    __syncthreads();
    for (int i = 0; i < kTile; i++)
      sum += a_smem[y][i] * b_smem[i][x];
    __syncthreads();
  }
  if (row < m && col < n)
    c[row * n + col] = sum;
}

int main(int argc, char **argv) {
  const int m = argc > 3 ? std::atoi(argv[1]) : 20, n = argc > 3 ? std::atoi(argv[2]) : 30;
  const int k = argc > 3 ? std::atoi(argv[3]) : 40;
  float *a, *b, *c;
  cudaMallocManaged(&a, m * k * sizeof(float));
  cudaMallocManaged(&b, k * n * sizeof(float));
  cudaMallocManaged(&c, m * n * sizeof(float));
  for (int i = 0; i < m * k; i++)
    a[i] = float(i % 7 - 3);
  for (int i = 0; i < k * n; i++)
    b[i] = float(i % 5 - 2);
  for (int i = 0; i < m * n; i++)
    c[i] = NAN; // elements that no thread writes stay NaN
  const dim3 grid((n + kTile - 1) / kTile, (m + kTile - 1) / kTile), block(kTile, kTile);
  multiply<<<grid, block>>>(a, b, c, m, n, k);
  if (const cudaError_t error = cudaDeviceSynchronize()) {
    std::printf("%s\n", cudaGetErrorString(error));
    return 1;
  }
  for (int row = 0; row < m; row++) {
    for (int col = 0; col < n; col++) {
      float wanted = 0.f; // a sum of whole numbers: exact
      for (int i = 0; i < k; i++)
        wanted += a[row * k + i] * b[i * n + col];
      if (c[row * n + col] != wanted) {
        std::printf("c[%d][%d] is %g, should be %g\n", row, col, c[row * n + col], wanted);
        return 1;
      }
    }
  }
  std::printf("right\n");
  cudaFree(a);
  cudaFree(b);
  cudaFree(c);
}
