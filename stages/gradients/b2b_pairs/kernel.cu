// b2b_pairs: two warps share their keys, and blocks are larger where shared memory allows.
//
// The five products are limited by shared memory, so each fragment loaded from it should serve as often as
// registers allow. One warp of a pair computes S^T, P^T and dV, the other dP^T, dS^T and dK: each has
// registers for the gradients of twice as many keys as a warp of b2_one_pass, and uses each fragment of Q and
// dO twice.
//
// At d = 128 a block takes 161 KB of shared memory where the GPU has it (sm_80, sm_90). With twice the keys
// per block, Q, dO and the row statistics are loaded half as often, and there are half as many additions to
// dQ. Twice the queries per tile halves the number of barriers.
#include <cmath>

#include "ladder/backward_rows.h"
#include "ladder/device.h"

namespace {

using ladder::AttentionBackwardProblem;
using ladder::QueryTile;
using ladder::RowStatistics;
using namespace tiles;

constexpr float kLog2E = 1.4426950408889634f;
constexpr int kBuffers = 2;

/// The first warp of a pair passes the weights, P <= 1, to the second: always as fp16, which is finer than
/// bf16, and as 2^kShift * P, so that they are normal numbers down to 2^-26.
constexpr int kShift = 12;
constexpr float kUnshift = 1.f / (1 << kShift);

/// A block's arrangement for elements T and head dimension d. The large form needs the shared memory of an
/// sm_80 or sm_90; the small form fits into the 99 KB of an sm_86 or sm_89.
template <typename T, int d, bool kLarge> struct Arrangement {
  // Keys per pair, warps per block.
  static constexpr int rows = d == 64 ? 64 : 32, warps = d == 32 || kLarge ? 8 : 4;
  static constexpr int keys = warps / 2 * rows, threads = 32 * warps;
  // Of a tile of queries, a warp computes S^T or dP^T for part_queries at a time: as many as fit into its
  // registers beside dV or dK.
  static constexpr int queries = d == 128 && !kLarge ? 32 : 64, part_queries = d == 64 ? 32 : queries;

  struct Shared {
    SharedTile<T, keys, d> k, v;
    SharedTile<T, queries, d> q[kBuffers], d_o[kBuffers];
    union {
      SharedTile<__half, keys, queries> weights[kBuffers]; // P^T
      SharedTile<T, keys, queries> ds[kBuffers];           // dS^T: each part replaces its weights
    };
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

/// A warp's half of a pair: the first warp computes S^T, P^T and dV, the second dP^T, dS^T and dK. All
/// products are transposed (keys x queries), so P^T and dS^T are already in the registers that the next
/// products read as operand A.
template <typename T, int d, typename A> struct KeyGradients {
  using pair = group<2>;
  const AttentionBackwardProblem &p;
  const ladder::Steps<A::queries> &steps;
  typename A::Shared &smem;
  const bool has_dv = group<A::warps>::warp() % 2 == 0;
  const int key = threadIdx.x / 64 * A::rows; // the pair's first key in the block
  RegTile<float, A::rows, d> dv_or_dk{};

  /// Adds the contributions of the queries from `query` on of a buffer. The buffer begins with query
  /// `tile_query` of the head.
  __device__ void add(int buffer, int query, int tile_query) {
    const auto k_or_v = part<A::rows, d>(has_dv ? smem.k : smem.v, key);
    const auto q_or_do = part<A::part_queries, d>(has_dv ? smem.q[buffer] : smem.d_o[buffer], query);
    const auto do_or_q = part<A::part_queries, d>(has_dv ? smem.d_o[buffer] : smem.q[buffer], query);
    auto p_smem = part<A::rows, A::part_queries>(smem.weights[buffer], key, query);
    auto ds_smem = part<A::rows, A::part_queries>(smem.ds[buffer], key, query);
    RegTile<float, A::rows, A::part_queries> x;
    RegTile<T, A::rows, A::part_queries> x_16;
    RegTile<__half, A::rows, A::part_queries> weights;

    // S^T = K Q^T, or dP^T = V dO^T
    zero(x);
    mma_ABt(x, k_or_v, q_or_do, x);
    mul(x, x, has_dv ? p.scale * kLog2E : kUnshift);
    sub_col(x, x, has_dv ? smem.lse[buffer] : smem.delta[buffer], query);

    // P^T = exp(scale S^T - lse), for the other warp's dS^T = P^T (dP^T - delta)
    if (has_dv) {
      lower_fill(x, x, p.kv_len - steps.key - key);
      if (p.is_causal)
        make_causal_t(x, x, steps.key + key, tile_query + query);
      exp2(x, x);
      copy(weights, x);
      store(p_smem, weights);
    }
    pair::sync(1 + group<A::warps>::warp() / 2);
    if (!has_dv) {
      load(weights, p_smem);
      mul(x, x, weights);
    }
    copy(x_16, x);
    if (!has_dv) {
      __syncwarp(); // all lanes have loaded their weights
      store(ds_smem, x_16);
    }

    // dV += P^T dO, or dK += dS^T Q
    mma_AB(dv_or_dk, x_16, do_or_q, dv_or_dk);
  }

  __device__ void write(const ladder::BackwardHead<T, d> &head) {
    RegTile<T, A::rows, d> out;
    mul(dv_or_dk, dv_or_dk, has_dv ? kUnshift : p.scale);
    copy(out, dv_or_dk);
    store(has_dv ? head.dv() : head.dk(), out, steps.key + key);
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

template <typename T, int d, typename A>
void launch_arrangement(const AttentionBackwardProblem &p, cudaStream_t stream) {
  RowStatistics statistics(p, kShift);
  const size_t rows = statistics.count(p);
  const ladder::Workspace<float> workspace((2 + d) * rows, stream, "b2b_pairs: workspace");
  float *dq_sums = workspace.data() + 2 * rows;
  ladder::compute_row_statistics<T, d>(p, statistics, workspace.data(), stream);
  ladder::check(cudaMemsetAsync(dq_sums, 0, rows * d * sizeof(float), stream), "b2b_pairs: workspace");

  constexpr auto kernel = differentiate<T, d, A>;
  constexpr int smem_bytes = sizeof(typename A::Shared);
  ladder::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem_bytes),
                "b2b_pairs: shared memory");
  kernel<<<ladder::key_grid(p, A::keys), A::threads, smem_bytes, stream>>>(p, statistics, dq_sums);
  ladder::check(cudaGetLastError(), "b2b_pairs: launch");
  const dim3 dq_grid = ladder::launch_grid((p.q_len + A::queries - 1) / A::queries, p.heads, p.batch);
  round_dq<T, d, A><<<dq_grid, A::warps * 32, 0, stream>>>(p, dq_sums);
  ladder::check(cudaGetLastError(), "b2b_pairs: launch");
}

template <typename T, int d> void launch_head_dim(const AttentionBackwardProblem &p, cudaStream_t stream) {
  using Large = Arrangement<T, d, d == 128>;
  using Small = Arrangement<T, d, false>;
  static_assert(sizeof(typename Small::Shared) <= 99 * 1024);
  const bool is_large = sizeof(typename Large::Shared) <= ladder::max_block_smem_bytes();
  is_large ? launch_arrangement<T, d, Large>(p, stream) : launch_arrangement<T, d, Small>(p, stream);
}

} // namespace

void ladder::launch(const AttentionBackwardProblem &p, cudaStream_t stream) {
  require_alignment(p, 16);
  dispatch_16_bit(p, [&](auto element) {
    dispatch_head_dim<32, 64, 128>(p, [&](auto d) { launch_head_dim<decltype(element), d>(p, stream); });
  });
}
