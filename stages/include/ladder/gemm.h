// What a matrix product computes, and the one function it provides.
#pragma once

#include <cuda_runtime_api.h>

#include "ladder/problem.h"

namespace ladder {

/// c = a b: a (rows, depth), b (depth, cols) and c (rows, cols) are device pointers to contiguous row-major
/// matrices in `dtype`; c overlaps neither a nor b.
struct GemmProblem {
  const void *a, *b;
  void *c;
  int rows, cols, depth;
  DType dtype;
};

/// Defined by each stage's kernel.cu: enqueues the work on `stream` and returns.
/// Throws std::invalid_argument for a problem that the stage does not support, std::runtime_error when CUDA
/// refuses the launch.
void launch(const GemmProblem &problem, cudaStream_t stream);

} // namespace ladder
