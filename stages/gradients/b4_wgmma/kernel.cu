// b4_wgmma: the five products on Hopper's tensor cores.
//
// mma.sync takes both factors from a warp's registers. wgmma is a product of four warps, a warpgroup, and
// reads K, V, Q, dO and dS from shared memory: no fragments are loaded, and all four warps share what is
// read. So each warpgroup computes both gradients of its 64 keys, and the pairs of b2b_pairs are not needed.
#include <cmath>

#include "ladder/backward_rows.h"
#include "tiles/warpgroup.h"

namespace {

using ladder::AttentionBackwardProblem;
using ladder::QueryTile;
using ladder::RowStatistics;
using namespace tiles;

constexpr float kLog2E = 1.4426950408889634f;
constexpr int kBuffers = 2;

/// The weights are 2^kShift * P, so that they are normal numbers in fp16 down to 2^-26. dP and delta are
/// scaled by the inverse.
constexpr int kShift = 12;
constexpr float kUnshift = 1.f / (1 << kShift);

/// A block's arrangement for elements T and head dimension d.
template <typename T, int d> struct Arrangement {
  // Warpgroups of 64 keys each, and the queries of a tile. Per thread, dV and dK take d registers, S^T and
  // dP^T `queries` registers.
  static constexpr int warpgroups = 2, warps = 4 * warpgroups, threads = 32 * warps, keys = 64 * warpgroups;
  static constexpr int queries = d == 128 ? 64 : 128;

  struct Shared {
    SharedTile<T, keys, d> k, v;
    SharedTile<T, queries, d> q[kBuffers], d_o[kBuffers];
    SharedTile<T, keys, queries> ds[kBuffers]; // dS^T
    SharedVec<float, queries> lse[kBuffers], delta[kBuffers];
  };

  /// The warpgroups share a tile of dQ: each has 64 of 128 rows, or half of the columns of 64 rows.
  static constexpr int dq_cols = queries == 128 ? d : d / 2;
  using DqSums = GlobalFragments<16, dq_cols>; // per warp
};

template <typename T, int d, typename A> struct KeyGradients;
template <int d, typename A> struct DqPart;

template <typename T, int d, typename A>
__global__ void __launch_bounds__(A::threads, 1)
    differentiate(const __grid_constant__ AttentionBackwardProblem p,
                  const __grid_constant__ RowStatistics statistics, float *dq_sums) {
  using block = group<A::warps>;
  const ladder::Steps<A::queries> steps(p, ladder::block_kv_head(), blockIdx.y * A::keys);
  const ladder::BackwardHead<T, d> key_head{p, 0, steps.kv_head};

  extern __shared__ __align__(1024) unsigned char bytes[];
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
    async_wait();
    fence_async_proxy(); // makes the loads and the stores of dS^T visible to wgmma
    block::sync();
    const QueryTile after = steps.after(tile);
    load_step(step + 1, after);
    if (step < steps.count())
      gradients.add(step % kBuffers, steps.query(tile));
    if (step > 0)
      dq_part.add(smem, (step - 1) % kBuffers, dq_sums, steps.dq_tile(before));
    before = tile;
    tile = after;
  }
  gradients.write(key_head);
}

/// The gradients of a warpgroup's keys, dV and dK, as sums over the queries. All products are transposed
/// (keys x queries), so P^T and dS^T are already in the registers that the next products read as operand A.
template <typename T, int d, typename A> struct KeyGradients {
  const AttentionBackwardProblem &p;
  const ladder::Steps<A::queries> &steps;
  typename A::Shared &smem;
  const int group_key = 64 * warpgroup::index(), key = group_key + 16 * warpgroup::warp(); // in the block
  RegTile<float, 16, d> dv{}, dk{};

  /// Adds the contributions of a buffer's queries. They begin with query `tile_query` of the head.
  __device__ void add(int buffer, int tile_query) {
    const auto k = part<64, d>(smem.k, group_key), v = part<64, d>(smem.v, group_key);
    const auto &q = smem.q[buffer], &d_o = smem.d_o[buffer];
    RegTile<float, 16, A::queries> s, dp;
    RegTile<T, 16, A::queries> p_16, ds_16;

    // S^T = K Q^T, P^T = exp(scale S^T - lse)
    warpgroup::mma_ABt(s, k, q);
    warpgroup::mma_wait(s);
    mul(s, s, p.scale * kLog2E);
    sub_col(s, s, smem.lse[buffer]);
    lower_fill(s, s, p.kv_len - steps.key - key);
    if (p.is_causal)
      make_causal_t(s, s, steps.key + key, tile_query);
    exp2(s, s);

    // dP^T = V dO^T, dV += P^T dO
    warpgroup::mma_ABt(dp, v, d_o);
    copy(p_16, s);
    warpgroup::mma_AB(dv, p_16, d_o, dv);
    warpgroup::mma_wait(dp, dv);

    // dS^T = P^T (dP^T - delta), dK += dS^T Q
    mul(dp, dp, kUnshift);
    sub_col(dp, dp, smem.delta[buffer]);
    mul(dp, dp, s);
    copy(ds_16, dp);
    auto ds_smem = part<16, A::queries>(smem.ds[buffer], key);
    store(ds_smem, ds_16);
    warpgroup::mma_AB(dk, ds_16, q, dk);
    warpgroup::mma_wait(dk);
  }

  __device__ void write(const ladder::BackwardHead<T, d> &head) {
    RegTile<T, 16, d> out;
    mul(dv, dv, kUnshift);
    copy(out, dv);
    store(head.dv(), out, steps.key + key);
    mul(dk, dk, p.scale);
    copy(out, dk);
    store(head.dk(), out, steps.key + key);
  }
};

/// The calling warpgroup's part of a tile of dQ.
template <int d, typename A> struct DqPart {
  int row = A::dq_cols == d ? 64 * warpgroup::index() : 0,
      col = A::dq_cols == d ? 0 : A::dq_cols * warpgroup::index();

  /// The calling warp's place among the sums of all (batch, query head), tiles and warps.
  __device__ static typename A::DqSums sums(float *dq_sums, int64_t tile) {
    return {dq_sums + (tile * A::warps + group<A::warps>::warp()) * A::DqSums::size};
  }

  /// Adds the block's share, dS K, to a tile's sums.
  __device__ void add(const typename A::Shared &smem, int buffer, float *dq_sums, int64_t tile) const {
    RegTile<float, 16, A::dq_cols> dq;
    warpgroup::mma_AtB(dq, part<A::keys, 64>(smem.ds[buffer], 0, row),
                       part<A::keys, A::dq_cols>(smem.k, 0, col));
    warpgroup::mma_wait(dq);
    atomic_add(sums(dq_sums, tile), dq);
  }
};

/// dQ = scale * sums, rounded; one block per tile.
template <typename T, int d, typename A>
__global__ void __launch_bounds__(A::warps * 32)
    round_dq(const __grid_constant__ AttentionBackwardProblem p, float *dq_sums) {
  const int64_t query_head = int64_t(blockIdx.z) * p.heads + blockIdx.y;
  const DqPart<d, A> mine;
  RegTile<float, 16, A::dq_cols> dq;
  RegTile<T, 16, A::dq_cols> out;
  load(dq, mine.sums(dq_sums, query_head * gridDim.x + blockIdx.x));
  mul(dq, dq, p.scale);
  copy(out, dq);
  const int row = blockIdx.x * A::queries + mine.row + 16 * warpgroup::warp();
  store(ladder::BackwardHead<T, d>{p, query_head, 0}.dq(), out, row, mine.col);
}

template <typename T, int d> void launch_head_dim(const AttentionBackwardProblem &p, cudaStream_t stream) {
  using A = Arrangement<T, d>;
  RowStatistics statistics(p, kShift);
  const size_t rows = statistics.count(p);
  const ladder::Workspace<float> workspace((2 + d) * rows, stream, "b4_wgmma: workspace");
  float *dq_sums = workspace.data() + 2 * rows;
  ladder::compute_row_statistics<T, d>(p, statistics, workspace.data(), stream);
  ladder::check(cudaMemsetAsync(dq_sums, 0, rows * d * sizeof(float), stream), "b4_wgmma: workspace");

  constexpr auto kernel = differentiate<T, d, A>;
  constexpr int smem_bytes = sizeof(typename A::Shared);
  ladder::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem_bytes),
                "b4_wgmma: shared memory");
  kernel<<<ladder::key_grid(p, A::keys), A::threads, smem_bytes, stream>>>(p, statistics, dq_sums);
  ladder::check(cudaGetLastError(), "b4_wgmma: launch");
  const dim3 dq_grid = ladder::launch_grid((p.q_len + A::queries - 1) / A::queries, p.heads, p.batch);
  round_dq<T, d, A><<<dq_grid, A::warps * 32, 0, stream>>>(p, dq_sums);
  ladder::check(cudaGetLastError(), "b4_wgmma: launch");
}

} // namespace

void ladder::launch(const AttentionBackwardProblem &p, cudaStream_t stream) {
  require_alignment(p, 16);
  dispatch_16_bit(p, [&](auto element) {
    dispatch_head_dim<32, 64, 128>(p, [&](auto d) { launch_head_dim<decltype(element), d>(p, stream); });
  });
}
