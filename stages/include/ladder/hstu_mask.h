// Which keys a query of an HSTU sequence sees, and hence which tiles it needs.
//
// A row of the mask is a range of keys with one gap: row r sees begin(r) <= j < end(r) without history <= j <
// gap_end(r), history being the first target. All four are non-decreasing in r (except for a context's end),
// so the first and the last row of a tile determine the rest. Intervals, if given, define the mask instead.
#pragma once

#include <cstdint>

#include "ladder/hstu.h"

namespace ladder {

/// The mask of one sequence of `k_len` tokens. Rows are positions in the sequence. kIntervals: whether the
/// problem's intervals define the mask.
template <bool kIntervals> struct HstuMask {
  int k_len, contexts, history, group, left, right;
  const int *intervals; ///< of row 0; bound b of row r is intervals[b * distance + r]
  int bounds, distance;

  /// `query` is the index in q of the sequence's first query, and `shift` its position.
  __device__ HstuMask(const HstuProblem &p, int b, int k_len, int query, int shift)
      : k_len(k_len), contexts(p.num_contexts ? p.num_contexts[b] : 0),
        history(k_len - (p.num_targets ? p.num_targets[b] : 0)), group(p.target_group_size),
        left(p.window_left), right(kIntervals ? -1 : p.window_right),
        intervals(kIntervals ? p.intervals + query - shift : nullptr), bounds(p.interval_bounds),
        distance(p.total_q) {}

  __device__ int begin(int r) const { return left < 0 ? 0 : max(0, r - left); }
  __device__ int end(int r) const {
    return r < contexts ? history : right < 0 ? k_len : min(k_len, r + right + 1);
  }
  __device__ int gap_end(int r) const {
    return r < history ? history : history + (r - history) / group * group;
  }

  /// Whether the rows up to `last` see all of the keys key .. key + keys - 1 except those past a row's end.
  __device__ bool all_before_end(int last, int key, int keys) const {
    return !kIntervals && key >= begin(last) && (key + keys <= history || history >= k_len);
  }

  /// One row: bit j of bits(key, keys), for j < keys <= 64, says whether it sees key `key` + j.
  struct Row {
    const HstuMask &mask;
    int r, begin, end, gap_begin, gap_end;

    __device__ uint64_t bits(int key, int keys) const {
      if constexpr (kIntervals)
        return mask.interval_bits(r, key) & below(keys);
      return range(begin - key, end - key) & ~range(gap_begin - key, gap_end - key) & below(keys);
    }
  };
  __device__ Row row(int r) const { return {*this, r, begin(r), end(r), history, gap_end(r)}; }

  /// The bits of row r alone.
  __device__ uint64_t row_bits(int r, int key, int keys) const { return row(r).bits(key, keys); }

private:
  __device__ uint64_t interval_bits(int r, int key) const {
    uint64_t seen = range(-key, intervals[r] - key);
    for (int b = 1; b < bounds; b += 2)
      seen |= range(intervals[b * distance + r] - key, intervals[(b + 1) * distance + r] - key);
    return seen & range(-key, k_len - key);
  }

  /// Bits first .. end - 1 of 64; those out of range are left out.
  __device__ static uint64_t range(int first, int end) { return below(end) & ~below(first); }
  __device__ static uint64_t below(int n) { return n <= 0 ? 0 : n >= 64 ? ~0ull : (1ull << n) - 1; }
};

/// The keys that some of the rows first .. last see, and those that all of them see; without intervals.
struct HstuKeys {
  int begin, end, gap_begin, gap_end;  ///< outside begin .. end and in the gap, no row sees any key
  int all_begin, all_end, all_gap_end; ///< within, and outside this wider gap, every row sees every key

  template <bool kIntervals>
  __device__ HstuKeys(const HstuMask<kIntervals> &mask, int first, int last)
      : begin(mask.begin(first)), end(max(mask.end(first), mask.end(last))), gap_begin(mask.history),
        gap_end(mask.gap_end(first)), all_begin(mask.begin(last)),
        all_end(min(mask.end(first), mask.end(max(first, min(mask.contexts, last))))),
        all_gap_end(mask.gap_end(last)) {}

  /// Whether a row sees one of the keys key .. key + keys - 1.
  __device__ bool any_in(int key, int keys) const {
    return key < end && key + keys > begin && !(key >= gap_begin && key + keys <= gap_end);
  }
  /// Whether every row sees all of them.
  __device__ bool all_in(int key, int keys) const {
    return key >= all_begin && key + keys <= all_end && (key + keys <= gap_begin || key >= all_gap_end);
  }
};

} // namespace ladder
