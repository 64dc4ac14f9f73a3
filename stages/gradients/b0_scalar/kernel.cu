// b0_scalar: the gradients of attention in fp32, one thread per row.
//
// The forward pass kept lse but not P, so P = exp(scale q k^T - lse) is recomputed. dK and dV are sums over
// queries: one kernel has a thread per key, which loops over the queries. dQ is a sum over keys: another
// kernel has a thread per query, which loops over the keys. Slow, and exact enough for finite differences.
#include "ladder/attention_backward.h"
#include "ladder/launch.h"
#include "pair.h"

namespace {

using ladder::AttentionBackwardProblem;

constexpr int kThreads = 64;

/// dK and dV: one thread per key; blockIdx.y and .z are its head and batch entry.
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

/// dQ: one thread per query; blockIdx.y and .z are its head and batch entry.
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

void launch_kernels(const AttentionBackwardProblem &p, cudaStream_t stream) {
  const auto blocks = [](int rows) { return (rows + kThreads - 1) / kThreads; };
  const dim3 key_grid = ladder::launch_grid(blocks(p.kv_len), p.kv_heads, p.batch);
  const dim3 query_grid = ladder::launch_grid(blocks(p.q_len), p.heads, p.batch);
  gradients_of_keys<<<key_grid, kThreads, 0, stream>>>(p);
  ladder::check(cudaGetLastError(), "b0_scalar: launch");
  gradient_of_queries<<<query_grid, kThreads, 0, stream>>>(p);
  ladder::check(cudaGetLastError(), "b0_scalar: launch");
}

} // namespace

void ladder::launch(const AttentionBackwardProblem &p, cudaStream_t stream) {
  if (p.dtype != DType::f32)
    refuse("dtype must be f32");
  dispatch_head_dim<32, 64, 128>(p, [&](auto) { launch_kernels(p, stream); });
}
