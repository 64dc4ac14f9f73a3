// Streams, events, pinned memory, callbacks: in order, and with the codes of CUDA.
#include "check.h"

__global__ void fill(int *out, int value, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    out[i] = value;
}

__global__ void add(int *out, const int *in, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    out[i] += in[i];
}

void CUDART_CB on_stream(void *data) { *static_cast<int *>(data) += 1; }
void CUDART_CB with_status(cudaStream_t, cudaError_t status, void *data) {
  *static_cast<int *>(data) += status == cudaSuccess ? 10 : 1000;
}

int main() {
  const int n = 1000;
  const size_t bytes = n * sizeof(int);
  int *host, *a, *b;
  CUDA(cudaMallocHost(&host, bytes));
  CUDA(cudaMalloc(&a, bytes));
  CUDA(cudaMallocAsync(&b, bytes, nullptr));
  cudaStream_t streams[2];
  cudaEvent_t start, stop, untimed;
  CUDA(cudaStreamCreate(&streams[0]));
  CUDA(cudaStreamCreateWithFlags(&streams[1], cudaStreamNonBlocking));
  CUDA(cudaEventCreate(&start));
  CUDA(cudaEventCreate(&stop));
  CUDA(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming));

  CUDA(cudaEventRecord(start, streams[0]));
  fill<<<4, 256, 0, streams[0]>>>(a, 1, n);
  fill<<<4, 256, 0, streams[1]>>>(b, 2, n);
  CUDA(cudaEventRecord(untimed, streams[1]));
  CUDA(cudaStreamWaitEvent(streams[0], untimed, 0));
  add<<<4, 256, 0, streams[0]>>>(a, b, n);
  CUDA(cudaMemcpyAsync(host, a, bytes, cudaMemcpyDeviceToHost, streams[0]));
  CUDA(cudaEventRecord(stop, streams[0]));
  int calls = 0;
  CUDA(cudaLaunchHostFunc(streams[0], on_stream, &calls));
  CUDA(cudaStreamAddCallback(streams[0], with_status, &calls, 0));
  CUDA(cudaStreamSynchronize(streams[0]));
  CUDA(cudaStreamQuery(streams[1]));
  CUDA(cudaEventQuery(stop));
  CUDA(cudaEventSynchronize(stop));
  CHECK(calls == 11);
  for (int i = 0; i < n; ++i)
    CHECK(host[i] == 3);

  float ms = -1;
  CUDA(cudaEventElapsedTime(&ms, start, stop));
  CHECK(ms >= 0);
  CHECK_CODE(cudaEventElapsedTime(&ms, start, untimed), cudaErrorInvalidResourceHandle);
  unsigned flags;
  int priority;
  CUDA(cudaStreamGetFlags(streams[1], &flags));
  CUDA(cudaStreamGetPriority(streams[1], &priority));
  CHECK(flags == cudaStreamNonBlocking && priority == 0);
  CUDA(cudaStreamDestroy(streams[0]));
  CUDA(cudaStreamDestroy(streams[1]));
  CHECK_CODE(cudaStreamSynchronize(streams[0]), cudaErrorInvalidResourceHandle);
  fill<<<1, 1, 0, streams[0]>>>(a, 1, n);
  CHECK_CODE(cudaGetLastError(), cudaErrorInvalidResourceHandle);
  CHECK_CODE(cudaGetLastError(), cudaSuccess);
  CUDA(cudaEventDestroy(start));
  CUDA(cudaFreeAsync(b, nullptr));
  CUDA(cudaFree(a));
  CUDA(cudaFreeHost(host));
}
