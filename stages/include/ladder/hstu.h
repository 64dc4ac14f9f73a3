// What every rung of the HSTU ladder computes: attention without a softmax, over jagged batches.
#pragma once

#include <cuda_runtime_api.h>

#include "ladder/problem.h"

namespace ladder {

/// One HSTU attention forward pass ("Actions Speak Louder than Words", Zhai et al., 2024, section 3.2).
///
/// Sequence b has the queries cu_seqlens_q[b] .. cu_seqlens_q[b + 1] - 1 of q and the keys
/// cu_seqlens_k[b] .. cu_seqlens_k[b + 1] - 1 of k and v, n_q <= n_k of them. Its queries are the last n_q of
/// its n_k tokens, so that query i stands at position r = i + n_k - n_q. With the logits
///   x[i][j] = alpha * (q_i . k_j + rab[b][h][r][j])
///   o_i     = inv_length * sum over the visible keys j of silu(x[i][j]) * v_j.
/// A row that sees no key is 0.
///
/// All pointers are device pointers that do not overlap. q (total_q, heads, head_dim), k and v (total_k,
/// heads, head_dim) each have their own stride between tokens, a multiple of 16 bytes; o (total_q, heads,
/// head_dim) is contiguous. Optional tensors that are absent are null.
///
/// With a cache, the history's keys and values, new ones included, are in pages of page_size tokens: sequence
/// b has the pages page_ids[page_offsets[b]] .. page_ids[page_offsets[b + 1] - 1] of kv_cache, the last of
/// which holds last_page_lens[b] tokens. k and v then have q's tokens, and only the targets' are read.
struct HstuProblem {
  const void *q, *k, *v;
  const void *rab; ///< (batch, rab_heads, max_k_len, rab_stride) in dtype; max_k_len of a row are used
  void *o;
  const int *cu_seqlens_q, *cu_seqlens_k; ///< (batch + 1)
  const int *num_contexts, *num_targets;  ///< (batch)
  const void *kv_cache; ///< (pages, 2, page_size, heads, head_dim) in dtype: keys, then values
  const int *page_offsets, *page_ids, *last_page_lens; ///< (batch + 1), (all pages in use), (batch)
  const int *intervals;                                ///< (interval_bounds, total_q), see HstuMask
  int batch, heads, rab_heads, head_dim;
  int total_q, total_k, max_q_len, max_k_len;
  int page_size;
  int q_stride, k_stride, v_stride; ///< elements from token to token
  int rab_stride;                   ///< elements from row to row, a multiple of 8
  int target_group_size, window_left, window_right, interval_bounds; ///< windows: at most max_k_len
  DType dtype;
  float alpha;
  float inv_length; ///< 1 / scaling_seqlen
};

/// Defined by each rung's kernel.cu: enqueues the work on `stream` and returns.
/// Throws std::invalid_argument for a problem that the rung does not support, std::runtime_error when CUDA
/// refuses the launch.
void launch(const HstuProblem &problem, cudaStream_t stream);

} // namespace ladder
