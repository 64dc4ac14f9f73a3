// What a layer norm computes, and the one function it provides.
#pragma once

#include <cuda_runtime_api.h>

#include "ladder/problem.h"

namespace ladder {

/// y[i][j] = (x[i][j] - mean_i) / sqrt(variance_i + epsilon) * weight[j] + bias[j], mean and variance those
/// of row i of x. x and y (rows, cols), weight and bias (cols) are device pointers to contiguous row-major
/// tensors in `dtype`; y overlaps none of them.
struct LayerNormProblem {
  const void *x, *weight, *bias;
  void *y;
  int rows, cols;
  DType dtype;
  static constexpr float epsilon = 1e-5f;
};

/// Defined by each stage's kernel.cu: enqueues the work on `stream` and returns.
/// Throws std::invalid_argument for a problem that the stage does not support, std::runtime_error when CUDA
/// refuses the launch.
void launch(const LayerNormProblem &problem, cudaStream_t stream);

} // namespace ladder
