// What a rotary embedding computes, and the one function it provides.
#pragma once

#include <cuda_runtime_api.h>

#include "ladder/problem.h"

namespace ladder {

/// With h = head_dim / 2 and i < h: y[n][i] = x[n][i] cos[n][i] - x[n][i + h] sin[n][i], and y[n][i + h] =
/// x[n][i + h] cos[n][i] + x[n][i] sin[n][i], for each head. x and y (heads, length, head_dim) in `dtype`,
/// cos and sin (length, head_dim / 2) in fp32 are device pointers to contiguous tensors; y overlaps none of
/// them.
struct RotaryProblem {
  const void *x;
  const float *cos, *sin;
  void *y;
  int heads, length, head_dim;
  DType dtype;
};

/// Defined by each stage's kernel.cu: enqueues the work on `stream` and returns.
/// Throws std::invalid_argument for a problem that the stage does not support, std::runtime_error when CUDA
/// refuses the launch.
void launch(const RotaryProblem &problem, cudaStream_t stream);

} // namespace ladder
