// A launch with clusters on a GPU that has none.
#include "check.h"

__global__ void plain(int *out) { *out = 3; }

int main() {
  int *out;
  CUDA(cudaMallocManaged(&out, sizeof(int)));
  *out = 0;
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
}
