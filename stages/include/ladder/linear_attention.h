// What causal linear attention computes, and the one function it provides.
#pragma once

#include <cuda_runtime_api.h>

#include "ladder/problem.h"

namespace ladder {

/// o[i] = sum over j <= i of (q[i] . k[j]) v[j], for each head. All are device pointers to contiguous tensors
/// (heads, length, head_dim) in `dtype`; o overlaps none of the others.
struct LinearAttentionProblem {
  const void *q, *k, *v;
  void *o;
  int heads, length, head_dim;
  DType dtype;
};

/// Defined by each stage's kernel.cu: enqueues the work on `stream` and returns.
/// Throws std::invalid_argument for a problem that the stage does not support, std::runtime_error when CUDA
/// refuses the launch.
void launch(const LinearAttentionProblem &problem, cudaStream_t stream);

} // namespace ladder
