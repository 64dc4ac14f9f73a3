// What HSTU's norm and gate compute, and their gradients.
#pragma once

#include <cuda_runtime_api.h>

#include "ladder/problem.h"

namespace ladder {

/// y = n * gate, n[i][j] = (x[i][j] - mean_i) / sqrt(variance_i + epsilon) * weight[j] + bias[j], mean and
/// variance those of row i of x. x, gate and y (rows, cols) are device pointers to contiguous row-major
/// tensors in `dtype`, weight and bias (cols) to fp32; y overlaps none of them.
struct NormGateProblem {
  const void *x, *gate;
  const float *weight, *bias;
  void *y;
  int rows, cols;
  DType dtype;
  static constexpr float epsilon = 1e-6f; // x is attention divided by a length: its variance may be small
};

/// The gradients for d_y (rows, cols): dx and d_gate (rows, cols) in dtype, d_weight and d_bias (cols) in
/// fp32. `forward` is the pass that is differentiated, without a y.
struct NormGateBackwardProblem {
  NormGateProblem forward;
  const void *d_y;
  void *dx, *d_gate;
  float *d_weight, *d_bias;
};

/// Defined by each stage's kernel.cu: enqueues the work on `stream` and returns.
/// Throws std::invalid_argument for a problem that the stage does not support, std::runtime_error when CUDA
/// refuses the launch.
void launch(const NormGateProblem &problem, cudaStream_t stream);
void launch(const NormGateBackwardProblem &problem, cudaStream_t stream);

} // namespace ladder
