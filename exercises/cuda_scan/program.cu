// ladder emulate program.cu -- 200: running sums of 200 elements, by one block.
#include <cstdio>
#include <cstdlib>

constexpr int kThreads = 256;

// sums[i] = x[0] + ... + x[i], for n <= 256. In round r each element adds the one 2^r places before it. After
// round r it holds the sum of the last 2^(r + 1) elements up to itself (Hillis and Steele 1986).
__global__ void scan(const int *x, int *sums, int n) {
  __shared__ int part[kThreads];
  const int t = threadIdx.x;
  part[t] = t < n ? x[t] : 0;
  __syncthreads();
  for (int distance = 1; distance < kThreads; distance *= 2) {
    const int before = t >= distance ? part[t - distance] : 0;
    __syncthreads();
    part[t] += before;
    __syncthreads();
  }
  if (t < n)
    sums[t] = part[t];
}

int main(int argc, char **argv) {
  const int n = argc > 1 ? std::atoi(argv[1]) : 200;
  int *x, *sums;
  cudaMallocManaged(&x, n * sizeof(int));
  cudaMallocManaged(&sums, n * sizeof(int));
  for (int i = 0; i < n; i++) {
    x[i] = i * i % 13 + 1;
    sums[i] = -1;
  }
  scan<<<1, kThreads>>>(x, sums, n);
  if (const cudaError_t error = cudaDeviceSynchronize()) {
    std::printf("%s\n", cudaGetErrorString(error));
    return 1;
  }
  for (int i = 0, wanted = 0; i < n; i++) {
    wanted += x[i];
    if (sums[i] != wanted) {
      std::printf("sums[%d] is %d, should be %d\n", i, sums[i], wanted);
      return 1;
    }
  }
  std::printf("right\n");
  cudaFree(x);
  cudaFree(sums);
}
