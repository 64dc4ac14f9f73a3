// What a query row and a key contribute to the gradients.
#pragma once

#include <cmath>
#include <cstdint>

#include "ladder/attention_backward.h"

__device__ inline float dot(const float *a, const float *b, int d) {
  float sum = 0.f;
  for (int x = 0; x < d; x++)
    sum += a[x] * b[x];
  return sum;
}

/// The weight P of a query row and a key, recomputed from lse, and the gradient dS of their logit.
struct Pair {
  float weight, ds;

  /// `query` is the row's number among the rows of all heads; k and v are the key's rows.
  __device__ Pair(const ladder::AttentionBackwardProblem &p, int64_t query, const float *k, const float *v) {
    const int d = p.head_dim;
    const float *d_o = static_cast<const float *>(p.d_o) + query * d;
    const float delta = dot(d_o, static_cast<const float *>(p.o) + query * d, d);
    const float s = p.scale * dot(static_cast<const float *>(p.q) + query * d, k, d);
    weight = expf(s - p.lse[query]);
    ds = weight * (dot(d_o, v, d) - delta + (p.d_lse ? p.d_lse[query] : 0.f));
  }
};
