// A graph whose nodes use the same memory, with the argument "edge" in an order that edges give.
#include "check.h"

#include <string>

__global__ void fill(int *data, int value) { data[threadIdx.x] = value; }
__global__ void add_up(const int *data, int *out) {
  int sum = 0;
  for (int i = 0; i < 32; ++i)
    sum += data[i];
  *out = sum;
}

template <typename... Arguments>
cudaGraphNode_t add(cudaGraph_t graph, void (*kernel)(Arguments...), unsigned threads, Arguments... values) {
  void *arguments[] = {&values...};
  cudaKernelNodeParams params{};
  params.func = reinterpret_cast<void *>(kernel);
  params.gridDim = dim3(1);
  params.blockDim = dim3(threads);
  params.kernelParams = arguments;
  cudaGraphNode_t node;
  CUDA(cudaGraphAddKernelNode(&node, graph, nullptr, 0, &params));
  return node;
}

int main(int count, char **arguments) {
  const bool has_edge = count > 1 && std::string(arguments[1]) == "edge";
  int *data, *out;
  CUDA(cudaMalloc(&data, 32 * sizeof *data));
  CUDA(cudaMalloc(&out, sizeof *out));
  cudaStream_t stream;
  CUDA(cudaStreamCreate(&stream));
  cudaGraph_t graph;
  CUDA(cudaGraphCreate(&graph, 0));
  const cudaGraphNode_t fills = add(graph, fill, 32, data, 3);
  const cudaGraphNode_t adds = add<const int *, int *>(graph, add_up, 1, data, out);
  if (has_edge)
    CUDA(cudaGraphAddDependencies(graph, &fills, &adds, nullptr, 1));
  cudaGraphExec_t exec;
  CUDA(cudaGraphInstantiate(&exec, graph, 0));
  for (int round = 0; round < 2; ++round)
    CUDA(cudaGraphLaunch(exec, stream));
  int result;
  CUDA(cudaMemcpyAsync(&result, out, sizeof result, cudaMemcpyDeviceToHost, stream));
  CUDA(cudaStreamSynchronize(stream));
  CHECK(result == 96);
  CUDA(cudaGraphExecDestroy(exec));
  CUDA(cudaGraphDestroy(graph));
  CUDA(cudaStreamDestroy(stream));
  CUDA(cudaFree(out));
  CUDA(cudaFree(data));
}
