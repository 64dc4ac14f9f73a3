// What a row softmax computes, and the one function it provides.
#pragma once

#include <cuda_runtime_api.h>

#include "ladder/problem.h"

namespace ladder {

/// y[i][j] = exp(x[i][j]) / sum over j of exp(x[i][j]). x and y are device pointers to contiguous row-major
/// matrices (rows, cols) in `dtype` that do not overlap.
struct RowSoftmaxProblem {
  const void *x;
  void *y;
  int rows, cols;
  DType dtype;
};

/// Defined by each stage's kernel.cu: enqueues the work on `stream` and returns.
/// Throws std::invalid_argument for a problem that the stage does not support, std::runtime_error when CUDA
/// refuses the launch.
void launch(const RowSoftmaxProblem &problem, cudaStream_t stream);

} // namespace ladder
