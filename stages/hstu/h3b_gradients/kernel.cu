// h3b_gradients: HSTU attention's gradients: b2_one_pass without a softmax, over a jagged batch with masks.
//
// There is no lse and no delta: silu's slope takes the place of P, dS = slope * dP. A block of keys goes
// through the tiles of queries that see one of its keys, the rule of h2_masks with keys and queries
// exchanged.
#include "ladder/dispatch.h"
#include "ladder/hstu_gradients.h"
#include "ladder/workspace.h"
#include "tiles/tiles.h"

namespace {

using ladder::HstuBackwardProblem;
using ladder::HstuKeys;
using ladder::HstuMask;
using ladder::HstuProblem;
using ladder::SeeingTiles;
using ladder::SequenceGradients;
using namespace tiles;

constexpr int kBuffers = 2;

/// A block's arrangement for elements T and head dimension d.
template <typename T, int d> struct Arrangement {
  static constexpr int rows = d == 128 ? 16 : 32, warps = 4, keys = warps * rows; // keys per warp, per block
  // Of a tile of queries, a warp computes S^T and dP^T for part_queries at a time: as many as fit into its
  // registers beside dK and dV.
  static constexpr int queries = d == 128 ? 32 : 64, part_queries = d == 32 ? 64 : 32;

  struct Shared {
    SharedTile<T, keys, d> k, v;
    SharedTile<T, queries, d> q[kBuffers], d_o[kBuffers];
    SharedTile<T, keys, queries> ds[kBuffers]; // dS^T
  };

  /// The warps share a tile of dQ: the nearer to a square each part is, the fewer fragments a warp loads.
  static constexpr int dq_size = queries * d / warps;
  static constexpr int dq_cols = dq_size < 16 * 32 ? 16 : 32, dq_rows = dq_size / dq_cols;
  using DqSums = GlobalFragments<dq_rows, dq_cols>;
};

template <typename T, int d, typename A, bool kIntervals> struct KeyGradients;
template <int d, typename A> struct DqPart;

template <typename T, int d, typename A, bool kIntervals>
__global__ void __launch_bounds__(A::warps * 32)
    differentiate(const __grid_constant__ HstuBackwardProblem problem, float *dq_sums) {
  using block = group<A::warps>;
  const SequenceGradients<T, d, ladder::BlockOfKeys> sequence(problem);
  const int block_key = sequence.where().z * A::keys;
  if (block_key >= sequence.k_len)
    return;
  const auto mask = sequence.template mask<kIntervals>();
  const int shift = sequence.shift(), last = sequence.q_len - 1;

  extern __shared__ __align__(128) unsigned char bytes[];
  auto &smem = *reinterpret_cast<typename A::Shared *>(bytes);
  const auto load_tile = [&](int buffer, int tile) {
    if (tile >= 0) {
      block::load_async(smem.q[buffer], sequence.q(), tile * A::queries);
      block::load_async(smem.d_o[buffer], sequence.d_o(), tile * A::queries);
    }
    async_commit();
  };
  const SeeingTiles<A, kIntervals> seeing{mask, shift, last, block_key};
  KeyGradients<T, d, A, kIntervals> gradients{mask, shift, last, block_key};
  const DqPart<d, A> dq_part;

  block::load_async(smem.k, sequence.k(), block_key);
  block::load_async(smem.v, sequence.v(), block_key);
  int tile = seeing.up_to(last / A::queries), before = -1;
  load_tile(0, tile);
  // The dQ of a tile is computed with the next tile, so that one barrier serves both.
  for (int now = 0; tile >= 0 || before >= 0; now = 1 - now) {
    const int next = seeing.up_to(tile - 1);
    block::async_wait();
    load_tile(1 - now, next);
#pragma unroll 1
    for (int query = 0; tile >= 0 && query < A::queries; query += A::part_queries)
      gradients.add(smem, now, query, tile * A::queries + query, problem.forward.alpha);
    if (before >= 0)
      dq_part.add(smem, 1 - now, dq_sums, sequence.dq_tile(before, A::queries));
    before = tile;
    tile = next;
  }
  gradients.write(sequence, problem.forward);
}

/// The gradients of a warp's keys, dV and dK, as sums over the queries. All products are transposed (keys x
/// queries), so P^T and dS^T are already in the registers that the next products read as operand A.
template <typename T, int d, typename A, bool kIntervals> struct KeyGradients {
  const HstuMask<kIntervals> &mask;
  const int shift, last, block_key;
  const int key = threadIdx.x / 32 * A::rows; // the first of the warp's keys in the block
  RegTile<float, A::rows, d> dv, dk;

  /// Adds the contributions of a buffer's queries from `query` on. In the sequence that query has the number
  /// `first`.
  __device__ void add(typename A::Shared &smem, int buffer, int query, int first, float alpha) {
    const auto q = part<A::part_queries, d>(smem.q[buffer], query);
    const auto d_o = part<A::part_queries, d>(smem.d_o[buffer], query);
    auto ds = part<A::rows, A::part_queries>(smem.ds[buffer], key, query);
    RegTile<float, A::rows, A::part_queries> slope, dp;
    RegTile<T, A::rows, A::part_queries> p_16, ds_16;
    const HstuKeys seen(mask, min(first, last) + shift, min(first + A::part_queries - 1, last) + shift);
    if (first > last || !(kIntervals || seen.any_in(block_key + key, A::rows))) {
      zero(ds_16); // the other warps read it for dQ
      store(ds, ds_16);
      return;
    }

    // S^T = K Q^T, P^T = silu(alpha S^T) with its slope, dV += P^T dO
    zero(slope);
    mma_ABt(slope, part<A::rows, d>(smem.k, key), q, slope);
    silu_and_slope(p_16, slope, alpha);
    if (kIntervals || !seen.all_in(block_key + key, A::rows)) {
      const auto bits = [&](int c) {
        return mask.row_bits(min(first + c, last) + shift, block_key + key, A::rows);
      };
      keep_bits_t(p_16, p_16, bits);
      keep_bits_t(slope, slope, bits);
    }
    mma_AB(dv, p_16, d_o, dv);

    // dP^T = V dO^T, dS^T = slope * dP^T, dK += dS^T Q
    zero(dp);
    mma_ABt(dp, part<A::rows, d>(smem.v, key), d_o, dp);
    mul(dp, dp, slope);
    copy(ds_16, dp);
    store(ds, ds_16);
    mma_AB(dk, ds_16, q, dk);
  }

  /// The factors are applied last. P and dS are rounded without 1 / length, which would make some of them
  /// subnormal in fp16.
  template <typename Sequence> __device__ void write(const Sequence &sequence, const HstuProblem &p) {
    RegTile<T, A::rows, d> out;
    mul(dv, dv, p.inv_length);
    copy(out, dv);
    store(sequence.dv(), out, block_key + key);
    mul(dk, dk, p.alpha * p.inv_length);
    copy(out, dk);
    store(sequence.dk(), out, block_key + key);
  }
};

/// The calling warp's part of a tile of dQ.
template <int d, typename A> struct DqPart {
  static constexpr int across = d / A::dq_cols;
  int row = group<A::warps>::warp() / across * A::dq_rows,
      col = group<A::warps>::warp() % across * A::dq_cols;

  /// The calling warp's place among the sums of all sequences, heads, tiles and warps.
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

/// dQ = alpha * inv_length * sums, rounded; one block per tile.
template <typename T, int d, typename A>
__global__ void __launch_bounds__(A::warps * 32)
    round_dq(const __grid_constant__ HstuBackwardProblem problem, float *dq_sums) {
  const SequenceGradients<T, d, ladder::ThisBlock> sequence(problem);
  const int tile = blockIdx.z;
  if (tile * A::queries >= sequence.q_len)
    return;
  const DqPart<d, A> mine;
  RegTile<float, A::dq_rows, A::dq_cols> dq;
  RegTile<T, A::dq_rows, A::dq_cols> out;
  load(dq, mine.sums(dq_sums, sequence.dq_tile(tile, A::queries)));
  mul(dq, dq, problem.forward.alpha * problem.forward.inv_length);
  copy(out, dq);
  store(sequence.dq(), out, tile * A::queries + mine.row, mine.col);
}

template <typename T, int d> void launch_head_dim(const HstuBackwardProblem &problem, cudaStream_t stream) {
  using A = Arrangement<T, d>;
  const HstuProblem &p = problem.forward;
  const dim3 grid = ladder::launch_grid(p.heads, (p.max_k_len + A::keys - 1) / A::keys, p.batch);
  const size_t sums = SequenceGradients<T, d, ladder::ThisBlock>::dq_tiles(p, A::queries) * A::queries * d;
  const ladder::Workspace<float> dq_sums(sums, stream, "h3b_gradients: workspace");
  ladder::check(cudaMemsetAsync(dq_sums.data(), 0, sums * sizeof(float), stream), "h3b_gradients: workspace");

  const auto kernel = p.intervals ? differentiate<T, d, A, true> : differentiate<T, d, A, false>;
  constexpr int smem_bytes = sizeof(typename A::Shared);
  static_assert(smem_bytes <= 99 * 1024);
  ladder::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem_bytes),
                "h3b_gradients: shared memory");
  kernel<<<grid, A::warps * 32, smem_bytes, stream>>>(problem, dq_sums.data());
  ladder::check(cudaGetLastError(), "h3b_gradients: launch");
  const dim3 dq_grid = ladder::launch_grid(p.heads, p.batch, (p.max_q_len + A::queries - 1) / A::queries);
  round_dq<T, d, A><<<dq_grid, A::warps * 32, 0, stream>>>(problem, dq_sums.data());
  ladder::check(cudaGetLastError(), "h3b_gradients: launch");
}

} // namespace

void ladder::launch(const HstuBackwardProblem &p, cudaStream_t stream) {
  dispatch_16_bit(p.forward, [&](auto element) {
    dispatch_head_dim<32, 64, 128>(p.forward,
                                   [&](auto d) { launch_head_dim<decltype(element), d>(p, stream); });
  });
}
