// ladder emulate program.cu -- 1000: a x for 1000 elements in four parts, copied and computed on two streams.
#include <cstdio>
#include <cstdlib>

constexpr int kParts = 4, kThreads = 128;

// x[i] becomes *factor times x[i].
__global__ void scale(int *x, const int *factor, int n) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  if (i < n)
    x[i] *= *factor;
}

int main(int argc, char **argv) {
  const int n = argc > 1 ? std::atoi(argv[1]) : 1000, part = (n + kParts - 1) / kParts;
  int *x, *x_host, *wanted, *factor, *factor_host;
  cudaMalloc(&x, n * sizeof(int));
  cudaMalloc(&factor, sizeof(int));
  cudaMallocHost(&x_host, n * sizeof(int)); // pinned: can be copied while the CPU goes on
  cudaMallocHost(&factor_host, sizeof(int));
  wanted = new int[n];
  *factor_host = std::rand() % 10 + 2;
  for (int i = 0; i < n; i++) {
    x_host[i] = std::rand() % 1000;
    wanted[i] = x_host[i] * *factor_host;
  }
  cudaStream_t streams[2];
  for (cudaStream_t &stream : streams)
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  cudaEvent_t ready;
  cudaEventCreate(&ready);

  cudaMemcpyAsync(factor, factor_host, sizeof(int), cudaMemcpyHostToDevice, streams[0]);
  cudaEventRecord(ready, streams[0]);
  cudaStreamWaitEvent(streams[1], ready);
  for (int p = 0; p < kParts; p++) {
    const int first = p * part, count = n - first < part ? n - first : part;
    if (count <= 0)
      break;
    const cudaStream_t stream = streams[p % 2];
    cudaMemcpyAsync(x + first, x_host + first, count * sizeof(int), cudaMemcpyHostToDevice, stream);
    scale<<<(count + kThreads - 1) / kThreads, kThreads, 0, stream>>>(x + first, factor, count);
    cudaMemcpyAsync(x_host + first, x + first, count * sizeof(int), cudaMemcpyDeviceToHost, stream);
  }
  cudaDeviceSynchronize();

  if (const cudaError_t error = cudaGetLastError()) {
    std::printf("%s\n", cudaGetErrorString(error));
    return 1;
  }
  for (int i = 0; i < n; i++) {
    if (x_host[i] != wanted[i]) {
      std::printf("x[%d] is %d, should be %d\n", i, x_host[i], wanted[i]);
      return 1;
    }
  }
  std::printf("right\n");
  for (const cudaStream_t stream : streams)
    cudaStreamDestroy(stream);
  cudaEventDestroy(ready);
  cudaFree(x);
  cudaFree(factor);
  cudaFreeHost(x_host);
  cudaFreeHost(factor_host);
  delete[] wanted;
}
