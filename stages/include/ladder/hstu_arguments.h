// The fields of an HstuProblem from Python.
#pragma once

#include "ladder/arguments.h"
#include "ladder/hstu.h"

namespace ladder {

/// Rungs read and write matrices up to 16 bytes at a time.
constexpr unsigned kHstuAlignment = 16;

inline HstuProblem hstu_problem(Arguments &arguments) {
  HstuProblem p{};
  arguments.tensor("q", p.q, kHstuAlignment);
  arguments.tensor("k", p.k, kHstuAlignment);
  arguments.tensor("v", p.v, kHstuAlignment);
  arguments.optional_tensor("rab", p.rab, kHstuAlignment);
  arguments.tensor("cu_seqlens_q", p.cu_seqlens_q);
  arguments.tensor("cu_seqlens_k", p.cu_seqlens_k);
  arguments.optional_tensor("num_contexts", p.num_contexts);
  arguments.optional_tensor("num_targets", p.num_targets);
  arguments.optional_tensor("intervals", p.intervals);
  arguments.optional_tensor("kv_cache", p.kv_cache, kHstuAlignment);
  arguments.optional_tensor("page_offsets", p.page_offsets);
  arguments.optional_tensor("page_ids", p.page_ids);
  arguments.optional_tensor("last_page_lens", p.last_page_lens);
  arguments.size("batch", p.batch);
  arguments.size("heads", p.heads);
  arguments.size("rab_heads", p.rab_heads, 0);
  arguments.size("head_dim", p.head_dim);
  arguments.size("total_q", p.total_q);
  arguments.size("total_k", p.total_k);
  arguments.size("max_q_len", p.max_q_len);
  arguments.size("max_k_len", p.max_k_len);
  arguments.size("page_size", p.page_size, 0);
  arguments.size("q_stride", p.q_stride);
  arguments.size("k_stride", p.k_stride);
  arguments.size("v_stride", p.v_stride);
  arguments.size("rab_stride", p.rab_stride);
  arguments.size("target_group_size", p.target_group_size);
  arguments.number("window_left", p.window_left);
  arguments.number("window_right", p.window_right);
  arguments.size("interval_bounds", p.interval_bounds, 0);
  arguments.dtype("dtype", p.dtype);
  arguments.number("alpha", p.alpha);
  arguments.number("inv_length", p.inv_length);
  return p;
}

} // namespace ladder
