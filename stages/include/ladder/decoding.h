// What every rung of the decoding ladder computes: attention of a few queries over a long cache of keys.
#pragma once

#include <cuda_runtime_api.h>

#include "ladder/problem.h"

namespace ladder {

/// The most queries per sequence.
constexpr int kMostQueries = 8;

/// One attention forward pass over a cache: o = softmax(scale * q k^T) v and lse = log(sum(exp(scale * q
/// k^T))), natural log. Sequence b has seqused_k[b] keys, from 0 to kv_len; what the cache has beyond them is
/// not read. Without keys o = 0 and lse = -inf. With is_causal the queries are the sequence's last tokens:
/// query i of n sees the keys j <= i + seqused_k[b] - n, and with a window only the last `window` of them
/// before its own. The rungs that take a softcap or sinks: see Variant.
///
/// All pointers are device pointers that do not overlap. q and o are (batch, heads, q_len, head_dim), lse is
/// (batch, heads, q_len) in fp32; they are contiguous. k_cache and v_cache have strides, in elements, with
/// contiguous rows. Strides and pointers are multiples of 16 bytes. heads is a multiple of kv_heads; query
/// head h reads key/value head h / (heads / kv_heads).
///
/// Without a block_table the caches are (batch, kv_heads, kv_len, head_dim). With one they are (pages,
/// kv_heads, page_size, head_dim), and key j of sequence b is row j % page_size of the page block_table[b][j
/// / page_size].
///
/// The caches are in dtype, or in e4m3 with a factor per key/value head, for the rungs that take it.
struct DecodingProblem {
  const void *q, *k_cache, *v_cache;
  void *o;
  float *lse;
  const int *seqused_k;         ///< (batch)
  const int *block_table;       ///< (batch, table_width), or null
  Strides k_strides, v_strides; ///< to the next sequence or page, head and key
  int batch, heads, kv_heads, q_len, kv_len, head_dim;
  int page_size, table_width;
  int num_splits;     ///< how many parts the keys of a sequence are split into; 0: the rung chooses
  int window;         ///< -1 without
  float softcap;      ///< 0 without
  const float *sinks; ///< (heads), or null
  /// (kv_heads): the keys are k_descale * k_cache, and so are the values. Null for caches in dtype.
  const float *k_descale, *v_descale;
  DType dtype; ///< of q and o
  bool is_causal;
  float scale;
};

/// Defined by each rung's kernel.cu: enqueues the work on `stream` and returns.
/// Throws std::invalid_argument for a problem that the rung does not support, std::runtime_error when CUDA
/// refuses the launch.
void launch(const DecodingProblem &problem, cudaStream_t stream);

} // namespace ladder
