// ladder emulate program.cu -- 20 30 40: the product of a 20 x 40 and a 40 x 30 matrix, from global memory.
#include <cmath>
#include <cstdio>
#include <cstdlib>

constexpr int kTile = 16;

// c (m, n) = a (m, k) times b (k, n). One thread computes one element.
__global__ void multiply(const float *a, const float *b, float *c, int m, int n, int k) {
  const int row = blockIdx.y * kTile + threadIdx.y, col = blockIdx.x * kTile + threadIdx.x;
  if (row < m && col < n) {
    float sum = 0.f;
    for (int i = 0; i < k; i++)
      sum += a[row * k + i] * b[i * n + col];
    c[row * n + col] = sum;
  }
}

int main(int argc, char **argv) {
  const int m = argc > 3 ? std::atoi(argv[1]) : 20, n = argc > 3 ? std::atoi(argv[2]) : 30;
  const int k = argc > 3 ? std::atoi(argv[3]) : 40;
  float *a, *b, *c;
  cudaMallocManaged(&a, m * k * sizeof(float));
  cudaMallocManaged(&b, k * n * sizeof(float));
  cudaMallocManaged(&c, m * n * sizeof(float));
  for (int i = 0; i < m * k; i++)
    a[i] = float(std::rand() % 9 - 4);
  for (int i = 0; i < k * n; i++)
    b[i] = float(std::rand() % 9 - 4);
  for (int i = 0; i < m * n; i++)
    c[i] = NAN; // elements that no thread writes keep this
  const dim3 grid((n + kTile - 1) / kTile, (m + kTile - 1) / kTile), block(kTile, kTile);
  multiply<<<grid, block>>>(a, b, c, m, n, k);
  if (const cudaError_t error = cudaDeviceSynchronize()) {
    std::printf("%s\n", cudaGetErrorString(error));
    return 1;
  }
  for (int row = 0; row < m; row++) {
    for (int col = 0; col < n; col++) {
      float wanted = 0.f; // of whole numbers: exact
      for (int i = 0; i < k; i++)
        wanted += a[row * k + i] * b[i * n + col];
      if (c[row * n + col] != wanted) {
        std::printf("c[%d][%d] is %g, should be %g, the sum of a[%d][i] b[i][%d] for i = 0 to %d\n", row, col,
                    c[row * n + col], wanted, row, col, k - 1);
        return 1;
      }
    }
  }
  std::printf("right\n");
  cudaFree(a);
  cudaFree(b);
  cudaFree(c);
}
