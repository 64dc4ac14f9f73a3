// b1_two_kernels: attention backward on tensor cores, without an addition across blocks.
//
// The forward pass kept lse but not P, so P = exp(scale q k^T - lse) is recomputed, tile by tile. dK and dV
// are sums over queries: one kernel parallelises over keys and loops over queries. dQ is a sum over keys:
// another kernel parallelises over queries and loops over keys. Both compute P and dP, which makes seven
// products instead of five, but no block adds to the output of another.
#include <cmath>

#include "ladder/backward_rows.h"

namespace {

using ladder::AttentionBackwardProblem;
using ladder::QueryTile;
using ladder::RowStatistics;
using namespace tiles;

constexpr float kLog2E = 1.4426950408889634f;
constexpr int kBuffers = 2;

/// A block of gradients_of_keys, for elements T and head dimension d.
template <typename T, int d> struct Arrangement {
  static constexpr int rows = d == 64 ? 32 : 16, warps = d == 32 ? 8 : 4; // keys per warp, warps per block
  static constexpr int keys = warps * rows, threads = 32 * warps;
  // Of a tile of queries, a warp computes S^T and dP^T for part_queries at a time: as many as fit into its
  // registers beside dK and dV.
  static constexpr int queries = d == 128 ? 32 : 64, part_queries = d == 64 ? 32 : queries;

  struct Shared {
    SharedTile<T, keys, d> k, v;
    SharedTile<T, queries, d> q[kBuffers], d_o[kBuffers];
    SharedVec<float, queries> lse[kBuffers], delta[kBuffers];
  };
};

template <typename T, int d, typename A> struct KeyGradients;

template <typename T, int d, typename A>
__global__ void __launch_bounds__(A::threads)
    gradients_of_keys(const __grid_constant__ AttentionBackwardProblem p,
                      const __grid_constant__ RowStatistics statistics) {
  using block = group<A::warps>;
  const ladder::Steps<A::queries> steps(p, ladder::block_kv_head(), blockIdx.y * A::keys);
  const ladder::BackwardHead<T, d> key_head{p, 0, steps.kv_head};

  extern __shared__ __align__(128) unsigned char bytes[];
  auto &smem = *reinterpret_cast<typename A::Shared *>(bytes);
  const auto load_step = [&](int step, QueryTile tile) {
    if (step < steps.count()) {
      const ladder::BackwardHead<T, d> head{p, tile.head, steps.kv_head};
      const int query = steps.query(tile), buffer = step % kBuffers;
      block::load_async(smem.q[buffer], head.q(), query);
      block::load_async(smem.d_o[buffer], head.d_o(), query);
      block::load_async(smem.lse[buffer], statistics.lse_of(tile.head), query);
      block::load_async(smem.delta[buffer], statistics.delta_of(tile.head), query);
    }
    async_commit();
  };
  KeyGradients<T, d, A> gradients{p, steps, smem};

  block::load_async(smem.k, key_head.k(), steps.key);
  block::load_async(smem.v, key_head.v(), steps.key);
  QueryTile tile = steps.first();
  load_step(0, tile);
  for (int step = 0; step < steps.count(); step++) {
    block::async_wait();
    const QueryTile after = steps.after(tile);
    load_step(step + 1, after);
#pragma unroll 1
    for (int query = 0; query < A::queries; query += A::part_queries)
      gradients.add(step % kBuffers, query, steps.query(tile));
    tile = after;
  }
  gradients.write(key_head);
}

/// The gradients of a warp's keys, dV and dK, as sums over the queries. All products are transposed (keys x
/// queries), so P^T and dS^T are already in the registers that the next products read as operand A.
template <typename T, int d, typename A> struct KeyGradients {
  const AttentionBackwardProblem &p;
  const ladder::Steps<A::queries> &steps;
  typename A::Shared &smem;
  const int key = threadIdx.x / 32 * A::rows; // the first of them in the block
  RegTile<float, A::rows, d> dv{}, dk{};

  /// Adds the contributions of the queries from `query` on of a buffer. The buffer begins with query
  /// `tile_query` of the head.
  __device__ void add(int buffer, int query, int tile_query) {
    const auto q = part<A::part_queries, d>(smem.q[buffer], query);
    const auto d_o = part<A::part_queries, d>(smem.d_o[buffer], query);
    RegTile<float, A::rows, A::part_queries> s, dp;
    RegTile<T, A::rows, A::part_queries> p_16, ds_16;

    // S^T = K Q^T, P^T = exp(scale S^T - lse), dV += P^T dO
    zero(s);
    mma_ABt(s, part<A::rows, d>(smem.k, key), q, s);
    mul(s, s, p.scale * kLog2E);
    sub_col(s, s, smem.lse[buffer], query);
    if (p.is_causal)
      make_causal_t(s, s, steps.key + key, tile_query + query);
    exp2(s, s);
    copy(p_16, s);
    mma_AB(dv, p_16, d_o, dv);

    // dP^T = V dO^T, dS^T = P^T (dP^T - delta), dK += dS^T Q
    zero(dp);
    mma_ABt(dp, part<A::rows, d>(smem.v, key), d_o, dp);
    sub_col(dp, dp, smem.delta[buffer], query);
    mul(dp, dp, s);
    copy(ds_16, dp);
    mma_AB(dk, ds_16, q, dk);
  }

  __device__ void write(const ladder::BackwardHead<T, d> &head) {
    RegTile<T, A::rows, d> out;
    copy(out, dv);
    store(head.dv(), out, steps.key + key);
    mul(dk, dk, p.scale);
    copy(out, dk);
    store(head.dk(), out, steps.key + key);
  }
};

/// A block of gradient_of_queries.
template <typename T, int d> struct QueryArrangement {
  static constexpr int rows = 32, warps = 4, queries = warps * rows; // queries per warp, warps per block
  static constexpr int keys = d == 128 ? 32 : 64;                    // per tile

  struct Shared {
    SharedTile<T, queries, d> q, d_o;
    SharedTile<T, keys, d> k[kBuffers], v[kBuffers];
  };
};

template <typename T, int d, typename A>
__global__ void __launch_bounds__(A::warps * 32)
    gradient_of_queries(const __grid_constant__ AttentionBackwardProblem p,
                        const __grid_constant__ RowStatistics statistics) {
  using block = group<A::warps>;
  const int block_query = (gridDim.x - 1 - blockIdx.x) * A::queries, warp_query = block::warp() * A::rows;
  const int keys = p.is_causal ? min(p.kv_len, block_query + A::queries) : p.kv_len;
  const int64_t query_head = int64_t(blockIdx.z) * p.heads + blockIdx.y;
  const int64_t kv_head = int64_t(blockIdx.z) * p.kv_heads + blockIdx.y / (p.heads / p.kv_heads);
  const ladder::BackwardHead<T, d> head{p, query_head, kv_head};

  extern __shared__ __align__(128) unsigned char bytes[];
  auto &smem = *reinterpret_cast<typename A::Shared *>(bytes);
  const auto fetch = [&](int key) {
    const int buffer = key / A::keys % kBuffers;
    block::load_async(smem.k[buffer], head.k(), key);
    block::load_async(smem.v[buffer], head.v(), key);
    async_commit();
  };

  RegTile<float, A::rows, A::keys> s, dp;
  RegTile<T, A::rows, A::keys> ds_16;
  typename RegTile<float, A::rows, A::keys>::ColVec lse, delta;
  RegTile<float, A::rows, d> dq;
  RegTile<T, A::rows, d> out;
  zero(dq);
  load(lse, statistics.lse_of(query_head), block_query + warp_query);
  load(delta, statistics.delta_of(query_head), block_query + warp_query);

  block::load_async(smem.q, head.q(), block_query);
  block::load_async(smem.d_o, head.d_o(), block_query);
  fetch(0);
  for (int key = 0; key < keys; key += A::keys) {
    block::async_wait();
    fetch(key + A::keys);
    const auto &k = smem.k[key / A::keys % kBuffers], &v = smem.v[key / A::keys % kBuffers];

    // S = Q K^T, P = exp(scale S - lse)
    zero(s);
    mma_ABt(s, part<A::rows, d>(smem.q, warp_query), k, s);
    mul(s, s, p.scale * kLog2E);
    sub_row(s, s, lse);
    right_fill(s, s, p.kv_len - key);
    if (p.is_causal)
      make_causal(s, s, block_query + warp_query, key);
    exp2(s, s);

    // dP = dO V^T, dS = P (dP - delta), dQ += dS K
    zero(dp);
    mma_ABt(dp, part<A::rows, d>(smem.d_o, warp_query), v, dp);
    sub_row(dp, dp, delta);
    mul(dp, dp, s);
    copy(ds_16, dp);
    mma_AB(dq, ds_16, k, dq);
  }
  mul(dq, dq, p.scale);
  copy(out, dq);
  store(head.dq(), out, block_query + warp_query);
}

template <typename T, int d> void launch_head_dim(const AttentionBackwardProblem &p, cudaStream_t stream) {
  RowStatistics statistics(p);
  const size_t rows = statistics.count(p);
  const ladder::Workspace<float> workspace(2 * rows, stream, "b1_two_kernels: workspace");
  ladder::compute_row_statistics<T, d>(p, statistics, workspace.data(), stream);

  using A = Arrangement<T, d>;
  constexpr auto kernel = gradients_of_keys<T, d, A>;
  constexpr int smem_bytes = sizeof(typename A::Shared);
  static_assert(smem_bytes <= 99 * 1024);
  ladder::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem_bytes),
                "b1_two_kernels: shared memory");
  kernel<<<ladder::key_grid(p, A::keys), A::threads, smem_bytes, stream>>>(p, statistics);
  ladder::check(cudaGetLastError(), "b1_two_kernels: launch");

  using Q = QueryArrangement<T, d>;
  constexpr auto of_queries = gradient_of_queries<T, d, Q>;
  constexpr int of_queries_bytes = sizeof(typename Q::Shared);
  static_assert(of_queries_bytes <= 99 * 1024);
  ladder::check(
      cudaFuncSetAttribute(of_queries, cudaFuncAttributeMaxDynamicSharedMemorySize, of_queries_bytes),
      "b1_two_kernels: shared memory");
  const dim3 query_grid = ladder::launch_grid((p.q_len + Q::queries - 1) / Q::queries, p.heads, p.batch);
  of_queries<<<query_grid, Q::warps * 32, of_queries_bytes, stream>>>(p, statistics);
  ladder::check(cudaGetLastError(), "b1_two_kernels: launch");
}

} // namespace

void ladder::launch(const AttentionBackwardProblem &p, cudaStream_t stream) {
  require_alignment(p, 16);
  dispatch_16_bit(p, [&](auto element) {
    dispatch_head_dim<32, 64, 128>(p, [&](auto d) { launch_head_dim<decltype(element), d>(p, stream); });
  });
}
