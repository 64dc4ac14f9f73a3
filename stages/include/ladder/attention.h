// What every rung of the attention ladder computes, and the one function it provides.
#pragma once

#include <cuda_runtime_api.h>

#include "ladder/problem.h"

namespace ladder {

/// One attention forward pass: o = softmax(scale * q k^T) v, and lse = log(sum(exp(scale * q k^T))), natural
/// log. All pointers are device pointers to row-major tensors that do not overlap:
///   q, o (batch, heads, q_len, head_dim) and k, v (batch, kv_heads, kv_len, head_dim) in `dtype`; lse
///   (batch, heads, q_len) in fp32.
/// They are contiguous, except that a rung that `takes` strides gets q, k and v as they lie.
/// heads is a multiple of kv_heads; query head h reads key/value head h / (heads / kv_heads).
/// is_causal lets query i see the keys j <= i (aligned at the upper left corner, so that no row is ever
/// empty).
struct AttentionProblem {
  const void *q, *k, *v;
  void *o;
  float *lse;
  Strides q_strides, k_strides, v_strides;
  int batch, heads, kv_heads, q_len, kv_len, head_dim;
  DType dtype;
  bool is_causal;
  float scale;
};

/// Each problem that a rung gets is one of these.
struct AttentionVariant : AttentionProblem, Variant {};
inline const AttentionVariant &variant_of(const AttentionProblem &problem) {
  return static_cast<const AttentionVariant &>(problem);
}

/// Defined by each rung's kernel.cu: enqueues the work on `stream` and returns.
/// Throws std::invalid_argument for a problem that the rung does not support, std::runtime_error when CUDA
/// refuses the launch.
void launch(const AttentionProblem &problem, cudaStream_t stream);

} // namespace ladder
