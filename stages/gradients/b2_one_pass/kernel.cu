// b2_one_pass: one kernel computes P and dP once: five products instead of the seven of b1_two_kernels.
//
// A block of keys has dS and K, so it can compute its share of dQ = scale dS K. The share sums over the keys
// of all warps, so dS^T passes through shared memory and is read transposed. Atomics add the shares of all
// blocks in fp32. A second kernel scales and rounds the sums.
#include <cmath>

#include "ladder/backward_rows.h"

namespace {

using ladder::AttentionBackwardProblem;
using ladder::QueryTile;
using ladder::RowStatistics;
using namespace tiles;

constexpr float kLog2E = 1.4426950408889634f;
constexpr int kBuffers = 2;

/// A block's arrangement for elements T and head dimension d.
template <typename T, int d> struct Arrangement {
  static constexpr int rows = d == 64 ? 32 : 16, warps = d == 32 ? 8 : 4; // keys per warp, warps per block
  static constexpr int keys = warps * rows, threads = 32 * warps;
  // Of a tile of queries, a warp computes S^T and dP^T for part_queries at a time: as many as fit into its
  // registers beside dK and dV.
  static constexpr int queries = d == 128 ? 32 : 64, part_queries = d == 64 ? 32 : queries;

  struct Shared {
    SharedTile<T, keys, d> k, v;
    SharedTile<T, queries, d> q[kBuffers], d_o[kBuffers];
    SharedTile<T, keys, queries> ds[kBuffers]; // dS^T
    SharedVec<float, queries> lse[kBuffers], delta[kBuffers];
  };

  /// The warps share a tile of dQ: the nearer to a square each part is, the fewer fragments a warp loads.
  static constexpr int dq_size = queries * d / warps;
  static constexpr int dq_cols = dq_size >= 32 * 32 ? 32 : 16, dq_rows = dq_size / dq_cols;
  using DqSums = GlobalFragments<dq_rows, dq_cols>;
};

template <typename T, int d, typename A> struct KeyGradients;
template <int d, typename A> struct DqPart;

template <typename T, int d, typename A>
__global__ void __launch_bounds__(A::threads)
    differentiate(const __grid_constant__ AttentionBackwardProblem p,
                  const __grid_constant__ RowStatistics statistics, float *dq_sums) {
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
  const DqPart<d, A> dq_part;

  block::load_async(smem.k, key_head.k(), steps.key);
  block::load_async(smem.v, key_head.v(), steps.key);
  QueryTile tile = steps.first(), before = tile;
  load_step(0, tile);
  // The dQ of a step is computed in the next step, so that one barrier serves both.
  for (int step = 0; step <= steps.count(); step++) {
    block::async_wait();
    const QueryTile after = steps.after(tile);
    load_step(step + 1, after);
#pragma unroll 1
    for (int query = 0; step < steps.count() && query < A::queries; query += A::part_queries)
      gradients.add(step % kBuffers, query, steps.query(tile));
    if (step > 0)
      dq_part.add(smem, (step - 1) % kBuffers, dq_sums, steps.dq_tile(before));
    before = tile;
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
    lower_fill(s, s, p.kv_len - steps.key - key);
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
    auto ds = part<A::rows, A::part_queries>(smem.ds[buffer], key, query);
    store(ds, ds_16);
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

/// The calling warp's part of a tile of dQ.
template <int d, typename A> struct DqPart {
  static constexpr int across = d / A::dq_cols;
  int warp = group<A::warps>::warp(), row = warp / across * A::dq_rows, col = warp % across * A::dq_cols;

  /// The calling warp's place among the sums of all (batch, query head), tiles and warps.
  __device__ static typename A::DqSums sums(float *dq_sums, int64_t tile) {
    return {dq_sums + (tile * A::warps + group<A::warps>::warp()) * A::DqSums::size};
  }

  /// Adds the block's share, dS K, to a tile's sums.
  __device__ void add(const typename A::Shared &smem, int buffer, float *dq_sums, int64_t tile) const {
    RegTile<float, A::dq_rows, A::dq_cols> dq;
    zero(dq);
    mma_AtB(dq, part<A::keys, A::dq_rows>(smem.ds[buffer], 0, row), part<A::keys, A::dq_cols>(smem.k, 0, col),
            dq);
    atomic_add(sums(dq_sums, tile), dq);
  }
};

/// dQ = scale * sums, rounded; one block per tile.
template <typename T, int d, typename A>
__global__ void __launch_bounds__(A::warps * 32)
    round_dq(const __grid_constant__ AttentionBackwardProblem p, float *dq_sums) {
  const int64_t query_head = int64_t(blockIdx.z) * p.heads + blockIdx.y;
  const DqPart<d, A> mine;
  RegTile<float, A::dq_rows, A::dq_cols> dq;
  RegTile<T, A::dq_rows, A::dq_cols> out;
  load(dq, mine.sums(dq_sums, query_head * gridDim.x + blockIdx.x));
  mul(dq, dq, p.scale);
  copy(out, dq);
  store(ladder::BackwardHead<T, d>{p, query_head, 0}.dq(), out, blockIdx.x * A::queries + mine.row, mine.col);
}

template <typename T, int d> void launch_head_dim(const AttentionBackwardProblem &p, cudaStream_t stream) {
  RowStatistics statistics(p);
  const size_t rows = statistics.count(p);
  const ladder::Workspace<float> workspace((2 + d) * rows, stream, "b2_one_pass: workspace");
  float *dq_sums = workspace.data() + 2 * rows;
  ladder::compute_row_statistics<T, d>(p, statistics, workspace.data(), stream);
  ladder::check(cudaMemsetAsync(dq_sums, 0, rows * d * sizeof(float), stream), "b2_one_pass: workspace");

  using A = Arrangement<T, d>;
  constexpr auto kernel = differentiate<T, d, A>;
  constexpr int smem_bytes = sizeof(typename A::Shared);
  static_assert(smem_bytes <= 99 * 1024);
  ladder::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem_bytes),
                "b2_one_pass: shared memory");
  kernel<<<ladder::key_grid(p, A::keys), A::threads, smem_bytes, stream>>>(p, statistics, dq_sums);
  ladder::check(cudaGetLastError(), "b2_one_pass: launch");
  const dim3 dq_grid = ladder::launch_grid((p.q_len + A::queries - 1) / A::queries, p.heads, p.batch);
  round_dq<T, d, A><<<dq_grid, A::warps * 32, 0, stream>>>(p, dq_sums);
  ladder::check(cudaGetLastError(), "b2_one_pass: launch");
}

} // namespace

void ladder::launch(const AttentionBackwardProblem &p, cudaStream_t stream) {
  require_alignment(p, 16);
  dispatch_16_bit(p, [&](auto element) {
    dispatch_head_dim<32, 64, 128>(p, [&](auto d) { launch_head_dim<decltype(element), d>(p, stream); });
  });
}
