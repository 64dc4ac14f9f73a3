// ladder emulate program.cu -- 600: the largest difference of neighbours among 600 elements, by one block.
#include <cstdio>
#include <cstdlib>

constexpr int kThreads = 256;

// *largest = the largest |x[i] - x[i - 1]| within chunks of 256 elements. The block does one chunk after the
// other.
__global__ void largest_difference(const int *x, int *largest, int n) {
  __shared__ int tile[kThreads];
  const int t = threadIdx.x;
  int most = 0;
  for (int first = 0; first < n; first += kThreads) {
    const int i = first + t;
    if (i < n)
      tile[t] = x[i];
    __syncthreads();
    if (i < n && t > 0)
      most = max(most, abs(tile[t] - tile[t - 1]));
    __syncthreads();
  }
  tile[t] = most;
  __syncthreads();
  if (t == 0) {
    for (int other = 1; other < kThreads; other++)
      most = max(most, tile[other]);
    *largest = most;
  }
}

int main(int argc, char **argv) {
  const int n = argc > 1 ? std::atoi(argv[1]) : 600;
  int *x, *largest, wanted = 0;
  cudaMallocManaged(&x, n * sizeof(int));
  cudaMallocManaged(&largest, sizeof(int));
  *largest = -1;
  for (int i = 0; i < n; i++) {
    x[i] = std::rand() % 1000;
    if (i % kThreads > 0 && std::abs(x[i] - x[i - 1]) > wanted)
      wanted = std::abs(x[i] - x[i - 1]);
  }
  largest_difference<<<1, kThreads>>>(x, largest, n);
  if (const cudaError_t error = cudaDeviceSynchronize()) {
    std::printf("%s\n", cudaGetErrorString(error));
    return 1;
  }
  if (*largest != wanted) {
    std::printf("the largest difference is %d, should be %d\n", *largest, wanted);
    return 1;
  }
  std::printf("right\n");
  cudaFree(x);
  cudaFree(largest);
}
