// Clusters of more than one block are refused, whichever way they are asked for.
#include "check.h"

__global__ void __cluster_dims__(2, 1, 1) cluster_of_two(int *out) { *out = 2; }
__global__ void __cluster_dims__(1, 1, 1) cluster_of_one(int *out) { *out = 1; }
__global__ void plain(int *out) { *out = 3; }

int main() {
  int *out;
  CUDA(cudaMallocManaged(&out, sizeof(int)));
  *out = 0;
  cluster_of_two<<<2, 1>>>(out);
  CHECK_CODE(cudaGetLastError(), cudaErrorNotSupported);
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {2, 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = 2;
  config.blockDim = 1;
  config.attrs = &attribute;
  config.numAttrs = 1;
  CHECK_CODE(cudaLaunchKernelEx(&config, plain, out), cudaErrorNotSupported);
  CHECK(*out == 0);
  cudaGetLastError();
  cluster_of_one<<<2, 1>>>(out);
  CUDA(cudaDeviceSynchronize());
  CHECK(*out == 1);
}
