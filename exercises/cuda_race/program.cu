// ladder emulate program.cu -- 200: how often the largest of 200 elements occurs, by one block.
#include <cstdio>
#include <cstdlib>

constexpr int kThreads = 256;

// *times = how often the largest of x[0] to x[n - 1] occurs, for n <= 256. Two trees in the same shared
// memory: the first finds the largest element, the second adds up the places that have it.
__global__ void count_largest(const int *x, int *times, int n) {
  __shared__ int part[kThreads];
  const int t = threadIdx.x, own = t < n ? x[t] : -1;
  part[t] = own;
  __syncthreads();
  for (int width = kThreads / 2; width > 0; width /= 2) {
    if (t < width)
      part[t] = max(part[t], part[t + width]);
    __syncthreads();
  }
  const int most = part[0];
  __syncthreads();
  part[t] = own == most ? 1 : 0;
  __syncthreads();
  for (int width = kThreads / 2; width > 0; width /= 2) {
    if (t < width)
      part[t] += part[t + width];
    __syncthreads();
  }
  if (t == 0)
    *times = part[0];
}

int main(int argc, char **argv) {
  const int n = argc > 1 ? std::atoi(argv[1]) : 200;
  int *x, *times, most = 0, wanted = 0;
  cudaMallocManaged(&x, n * sizeof(int));
  cudaMallocManaged(&times, sizeof(int));
  *times = -1;
  for (int i = 0; i < n; i++) {
    // The largest are few and near the end.
    x[i] = i > n - 20 && (n - i) % 2 == 1 ? 200 : std::rand() % 20 + 100;
    most = x[i] > most ? x[i] : most;
  }
  for (int i = 0; i < n; i++)
    wanted += x[i] == most;
  count_largest<<<1, kThreads>>>(x, times, n);
  if (const cudaError_t error = cudaDeviceSynchronize()) {
    std::printf("%s\n", cudaGetErrorString(error));
    return 1;
  }
  if (*times != wanted) {
    std::printf("the largest is %d, counted %d times, and occurs %d times\n", most, *times, wanted);
    return 1;
  }
  std::printf("right\n");
  cudaFree(x);
  cudaFree(times);
}
