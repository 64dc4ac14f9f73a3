// The same two loops in fp32, a thread a row: slow, and exact enough to be held against finite differences.
#pragma once

#include <cmath>
#include <cstdint>

#include "ladder/attention_backward.h"
#include "ladder/dispatch.h"

namespace scalar {

using ladder::AttentionBackwardProblem;

constexpr int kThreads = 64;

__device__ inline float dot(const float *a, const float *b, int d) {
  float sum = 0.f;
  for (int x = 0; x < d; x++)
    sum += a[x] * b[x];
  return sum;
}

/// What a query row and a key have in common: the weight and the gradient of the logit.
struct Pair {
  float weight, ds;

  /// q, d_o, o: the query's rows; k, v: the key's. `query` is the row's number among all heads'.
  __device__ Pair(const AttentionBackwardProblem &p, int64_t query, const float *k, const float *v) {
    const int d = p.head_dim;
    const float *d_o = static_cast<const float *>(p.d_o) + query * d;
    const float delta = dot(d_o, static_cast<const float *>(p.o) + query * d, d);
    const float s = p.scale * dot(static_cast<const float *>(p.q) + query * d, k, d);
    weight = expf(s - p.lse[query]);
    ds = weight * (dot(d_o, v, d) - delta + (p.d_lse ? p.d_lse[query] : 0.f));
  }
};

/// A thread a key; blockIdx.y is its head.
__global__ void __launch_bounds__(kThreads) gradients_of_keys(const AttentionBackwardProblem p) {
  const int key = blockIdx.x * kThreads + threadIdx.x, d = p.head_dim;
  if (key >= p.kv_len)
    return;
  const int group = p.heads / p.kv_heads;
  const int64_t kv_head = int64_t(blockIdx.z) * p.kv_heads + blockIdx.y, row = (kv_head * p.kv_len + key) * d;
  const float *k = static_cast<const float *>(p.k) + row, *v = static_cast<const float *>(p.v) + row;
  float *dk = static_cast<float *>(p.dk) + row, *dv = static_cast<float *>(p.dv) + row;
  for (int x = 0; x < d; x++)
    dk[x] = dv[x] = 0.f;
  for (int64_t head = kv_head * group; head < (kv_head + 1) * group; head++)
    for (int i = p.is_causal ? key : 0; i < p.q_len; i++) {
      const int64_t query = head * p.q_len + i;
      const Pair pair(p, query, k, v);
      for (int x = 0; x < d; x++) {
        dk[x] += p.scale * pair.ds * static_cast<const float *>(p.q)[query * d + x];
        dv[x] += pair.weight * static_cast<const float *>(p.d_o)[query * d + x];
      }
    }
}

/// A thread a query; blockIdx.y is its head.
__global__ void __launch_bounds__(kThreads) gradient_of_queries(const AttentionBackwardProblem p) {
  const int i = blockIdx.x * kThreads + threadIdx.x, d = p.head_dim;
  if (i >= p.q_len)
    return;
  const int64_t query = (int64_t(blockIdx.z) * p.heads + blockIdx.y) * p.q_len + i;
  const int64_t kv_head = int64_t(blockIdx.z) * p.kv_heads + blockIdx.y / (p.heads / p.kv_heads);
  const float *k = static_cast<const float *>(p.k) + kv_head * p.kv_len * d;
  const float *v = static_cast<const float *>(p.v) + kv_head * p.kv_len * d;
  float *dq = static_cast<float *>(p.dq) + query * d;
  for (int x = 0; x < d; x++)
    dq[x] = 0.f;
  const int keys = p.is_causal ? min(p.kv_len, i + 1) : p.kv_len;
  for (int key = 0; key < keys; key++) {
    const Pair pair(p, query, k + int64_t(key) * d, v + int64_t(key) * d);
    for (int x = 0; x < d; x++)
      dq[x] += p.scale * pair.ds * k[int64_t(key) * d + x];
  }
}

} // namespace scalar

/// fp32 tensors of any head dimension.
inline void launch_scalar(const ladder::AttentionBackwardProblem &p, cudaStream_t stream) {
  const auto blocks = [](int rows) { return (rows + scalar::kThreads - 1) / scalar::kThreads; };
  const dim3 key_grid = ladder::launch_grid(blocks(p.kv_len), p.kv_heads, p.batch);
  const dim3 query_grid = ladder::launch_grid(blocks(p.q_len), p.heads, p.batch);
  scalar::gradients_of_keys<<<key_grid, scalar::kThreads, 0, stream>>>(p);
  ladder::check(cudaGetLastError(), "b1_two_kernels: launch");
  scalar::gradient_of_queries<<<query_grid, scalar::kThreads, 0, stream>>>(p);
  ladder::check(cudaGetLastError(), "b1_two_kernels: launch");
}
