// What every rung of the backward ladder computes, and the one function it provides.
#pragma once

#include <cuda_runtime_api.h>

#include "ladder/problem.h"

namespace ladder {

/// The gradients of one attention forward pass, o = softmax(scale * q k^T) v with its lse: with
/// p = exp(scale * q k^T - lse) and dp = d_o v^T
///   ds = p * (dp - rowsum(d_o * o) + d_lse)
///   dq = scale * ds k, dk = scale * ds^T q, dv = p^T d_o.
/// All pointers are device pointers to row-major tensors that do not overlap:
///   q, o, d_o, dq (batch, heads, q_len, head_dim) and k, v, dk, dv (batch, kv_heads, kv_len, head_dim) in
///   `dtype`; lse, d_lse (batch, heads, q_len) in fp32. d_lse is null where lse has no gradient.
/// They are contiguous, except that a rung that `takes` strides gets q, k, v and d_o as they lie.
/// heads is a multiple of kv_heads; query head h reads key/value head h / (heads / kv_heads), whose dk and dv
/// are sums over the heads that read it.
/// is_causal lets query i see the keys j <= i (aligned at the upper left corner, so that no row is ever
/// empty).
struct AttentionBackwardProblem {
  const void *q, *k, *v, *o;
  const float *lse;
  const void *d_o;
  const float *d_lse;
  void *dq, *dk, *dv;
  Strides q_strides, k_strides, v_strides, d_o_strides;
  int batch, heads, kv_heads, q_len, kv_len, head_dim;
  DType dtype;
  bool is_causal;
  float scale;
};

/// Each problem that a rung gets is one of these.
struct AttentionBackwardVariant : AttentionBackwardProblem, Variant {
  float *d_sinks; ///< (heads), the sinks' gradient; null without sinks
};
inline const AttentionBackwardVariant &variant_of(const AttentionBackwardProblem &problem) {
  return static_cast<const AttentionBackwardVariant &>(problem);
}

/// Defined by each rung's kernel.cu: enqueues the work on `stream` and returns.
/// Throws std::invalid_argument for a problem that the rung does not support, std::runtime_error when CUDA
/// refuses the launch.
void launch(const AttentionBackwardProblem &problem, cudaStream_t stream);

} // namespace ladder
