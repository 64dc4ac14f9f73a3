// What every rung of the HSTU ladder's backward computes.
#pragma once

#include "ladder/hstu.h"

namespace ladder {

/// The gradients of one HSTU forward pass (HstuProblem): with x = alpha * (q k^T + rab), the mask M and
/// dp = inv_length * d_o v^T
///   d_rab = alpha * silu'(x) * M * dp       dq = d_rab k, dk = d_rab^T q
///   dv    = inv_length * (silu(x) * M)^T d_o
/// `forward` is the pass to differentiate, without o and without a cache. d_o (total_q, heads, head_dim), dq
/// like it, dk and dv (total_k, heads, head_dim) are contiguous, in dtype. d_rab (batch, rab_heads,
/// max_k_len, rab_stride) is in fp32, summed over the heads if they share the bias, or null if its gradient
/// is not needed.
struct HstuBackwardProblem {
  HstuProblem forward;
  const void *d_o;
  void *dq, *dk, *dv;
  float *d_rab;
};

/// Defined by each rung's kernel.cu: enqueues the work on `stream` and returns.
/// Throws std::invalid_argument for a problem that the rung does not support, std::runtime_error when CUDA
/// refuses the launch.
void launch(const HstuBackwardProblem &problem, cudaStream_t stream);

} // namespace ladder
