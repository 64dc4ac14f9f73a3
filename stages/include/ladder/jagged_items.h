// Work items of a persistent kernel over a jagged batch: sequences of different lengths, one after another in
// one tensor.
#pragma once

#include "ladder/attention.h"
#include "tiles/tma.h"

namespace ladder {

/// A work item: the queries from `row` on of one head of a sequence, and the keys from `key` to `end` that
/// they see. Query i sees the keys i + mask.begin to i + mask.end - 1. Items are numbered sequence by
/// sequence, and within one the last rows of all heads come first. Behind the last item there are items
/// without rows.
struct JaggedItem {
  int row, key, end;
  struct {
    int begin, end;
  } mask;
  tiles::tma::Segment head, kv_head; // their tokens among the queries, and among the keys

  /// The first key that a row sees, and the one after the last.
  __device__ int first_key(int row) const { return max(0, row + mask.begin); }
  __device__ int end_key(int row) const { return min(kv_head.rows, row + mask.end); }

  __device__ JaggedItem(const AttentionVariant &p, int rows, unsigned number) : head{0, 0, 0} {
    for (int b = 0; b < p.batch; b++) {
      const int first = p.cu_seqlens_q[b], length = p.cu_seqlens_q[b + 1] - first;
      const unsigned tiles = (length + rows - 1) / rows;
      if (number < tiles * p.heads) {
        const int number_of_head = number % p.heads, key_first = p.cu_seqlens_k[b];
        head = {first, length, number_of_head};
        kv_head = {key_first, p.cu_seqlens_k[b + 1] - key_first, number_of_head / (p.heads / p.kv_heads)};
        row = (tiles - 1 - number / p.heads) * rows;
        mask.begin = kv_head.rows - length + p.begin;
        mask.end = kv_head.rows - length + p.end;
        key = first_key(row);
        end = end_key(min(row + rows, length) - 1);
        return;
      }
      number -= tiles * p.heads;
    }
  }

  __device__ static unsigned count(const AttentionVariant &p, int rows) {
    unsigned tiles = 0;
    for (int b = 0; b < p.batch; b++)
      tiles += (p.cu_seqlens_q[b + 1] - p.cu_seqlens_q[b] + rows - 1) / rows;
    return tiles * p.heads;
  }
};

} // namespace ladder
