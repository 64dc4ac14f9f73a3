// h3e_pairs: at d = 128 two warps share their keys, and blocks are larger where shared memory allows.
//
// As in b2b_pairs. The first warp of a pair computes S^T, P^T and dV and passes silu's slopes to the second,
// which computes dP^T, dS^T and dK. Each has registers for the gradients of twice as many keys, and uses each
// fragment twice. A large block has twice the keys and twice the queries per step: Q and dO are loaded half
// as often, and dQ is added half as often.

#include "ladder/device.h"
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

/// A block's arrangement for elements T and head dimension d, with a bias or without. The large form needs
/// the shared memory of an sm_90, without a bias that of an sm_80; the small form fits into 99 KB.
template <typename T, int d, bool kBias, bool kLarge> struct Arrangement {
  static constexpr bool bias = kBias;
  static constexpr bool in_pairs = d == 128;
  static constexpr int rows = 32, warps = kLarge ? 8 : 4; // keys per warp or pair, warps per block
  static constexpr int keys = (in_pairs ? warps / 2 : warps) * rows;
  // Of a tile of queries, a warp computes S^T and dP^T for part_queries at a time: as many as fit into its
  // registers beside dK and dV.
  static constexpr int queries = (d == 128 && !kLarge) || (kBias && d == 64) ? 32 : 64,
                       part_queries = d == 32 ? 64 : 32;

  struct Plain {
    SharedTile<T, keys, d> k, v;
    SharedTile<T, queries, d> q[kBuffers], d_o[kBuffers];
    union {
      SharedTile<__half, keys, queries> slopes[kBuffers]; // from the first warp of a pair
      SharedTile<T, keys, queries> ds[kBuffers];          // dS^T: each part replaces its slopes
    };
  };
  struct Biased : Plain {
    SharedTile<T, queries, keys> rab[kBuffers];
  };
  using Shared = std::conditional_t<kBias, Biased, Plain>;

  /// The warps share a tile of dQ: the nearer to a square each part is, the fewer fragments a warp loads.
  static constexpr int dq_size = queries * d / warps;
  static constexpr int dq_cols = dq_size < 16 * 32 ? 16 : 32, dq_rows = dq_size / dq_cols;
  using DqSums = GlobalFragments<dq_rows, dq_cols>;
};

template <typename T, int d, typename A, bool kIntervals> struct KeyGradients;
template <int d, typename A> struct DqPart;

/// Clears rows `first` to `end` - 1 of the columns of the key tile at `key`. Called by the whole block.
template <typename A>
__device__ inline void clear_rows(const WideMatrix<float> &d_rab, int first, int end, int key) {
  constexpr int quads = A::keys / 4, step = A::warps * 32 / quads;
  const int col = key + threadIdx.x % quads * 4;
  for (int row = first + threadIdx.x / quads; row < end && col < d_rab.stride; row += step)
    *reinterpret_cast<float4 *>(d_rab.at(row, col)) = {};
}

template <typename T, int d, typename A, bool kIntervals>
__global__ void __launch_bounds__(A::warps * 32)
    differentiate(const __grid_constant__ HstuBackwardProblem problem, float *dq_sums) {
  using block = group<A::warps>;
  const SequenceGradients<T, d, ladder::BlockOfKeys> sequence(problem);
  const int block_key = sequence.where().z * A::keys;
  // Unless heads share the bias, the block stores its columns of the gradient: 0 in rows without a query.
  const bool owns_d_rab = A::bias && sequence.owns_d_rab();
  const int rab_rows = problem.forward.max_k_len;
  if (owns_d_rab)
    clear_rows<A>(sequence.d_rab(), sequence.k_len, rab_rows, block_key);
  if (block_key >= sequence.k_len) {
    if (owns_d_rab)
      clear_rows<A>(sequence.d_rab(), 0, sequence.k_len, block_key);
    return;
  }
  const auto mask = sequence.template mask<kIntervals>();
  const int shift = sequence.shift(), last = sequence.q_len - 1;
  if (owns_d_rab)
    clear_rows<A>(sequence.d_rab(), 0, shift, block_key);

  extern __shared__ __align__(128) unsigned char bytes[];
  auto &smem = *reinterpret_cast<typename A::Shared *>(bytes);
  const auto load_tile = [&](int buffer, int tile) {
    if (tile >= 0) {
      block::load_async(smem.q[buffer], sequence.q(), tile * A::queries);
      block::load_async(smem.d_o[buffer], sequence.d_o(), tile * A::queries);
      if constexpr (A::bias)
        block::load_async(smem.rab[buffer], sequence.rab(), tile * A::queries + shift, block_key);
    }
    async_commit();
  };
  const SeeingTiles<A, kIntervals> seeing{mask, shift, last, block_key};
  // The last tile up to `tile` that sees a key. The rows of the tiles skipped on the way become 0.
  const auto next_tile = [&](int tile) {
    const int next = seeing.up_to(tile);
    if (owns_d_rab)
      clear_rows<A>(sequence.d_rab(), (next + 1) * A::queries + shift,
                    min(last + 1, (tile + 1) * A::queries) + shift, block_key);
    return next;
  };
  KeyGradients<T, d, A, kIntervals> gradients{mask, shift, last, block_key};
  const DqPart<d, A> dq_part;

  block::load_async(smem.k, sequence.k(), block_key);
  block::load_async(smem.v, sequence.v(), block_key);
  int tile = next_tile(last / A::queries), before = -1;
  load_tile(0, tile);
  // The dQ of a tile is computed with the next tile, so that one barrier serves both.
  for (int now = 0; tile >= 0 || before >= 0; now = 1 - now) {
    const int next = next_tile(tile - 1);
    block::async_wait();
    load_tile(1 - now, next);
#pragma unroll 1
    for (int query = 0; tile >= 0 && query < A::queries; query += A::part_queries)
      gradients.add(smem, now, query, tile * A::queries + query, sequence);
    if (before >= 0)
      dq_part.add(smem, 1 - now, dq_sums, sequence.dq_tile(before, A::queries));
    before = tile;
    tile = next;
  }
  gradients.write(sequence, problem.forward);
}

/// The gradients of a warp's keys, dV and dK, as sums over the queries. A warp of a pair has one of the two.
/// All products are transposed (keys x queries), so P^T and dS^T are already in the registers that the next
/// products read as operand A.
template <typename T, int d, typename A, bool kIntervals> struct KeyGradients {
  const HstuMask<kIntervals> &mask;
  const int shift, last, block_key;
  const bool has_dk = !A::in_pairs || group<A::warps>::warp() % 2, has_dv = !A::in_pairs || !has_dk;
  const int key = threadIdx.x / (A::in_pairs ? 64 : 32) * A::rows; // the warp's first key in the block
  RegTile<float, A::rows, d> dv, dk;                               // a pair's second warp sums dK in dv

  /// Adds the contributions of a buffer's queries from `query` on. In the sequence that query has the number
  /// `first`.
  template <typename Sequence>
  __device__ void add(typename A::Shared &smem, int buffer, int query, int first, const Sequence &sequence) {
    const HstuProblem &p = sequence.p;
    const auto q = part<A::part_queries, d>(smem.q[buffer], query);
    const auto d_o = part<A::part_queries, d>(smem.d_o[buffer], query);
    auto ds = part<A::rows, A::part_queries>(smem.ds[buffer], key, query);
    RegTile<float, A::rows, A::part_queries> slope, dp_of_one;
    auto &dp = choose<A::in_pairs>(slope, dp_of_one); // in a pair, a warp needs only one of the two
    RegTile<T, A::rows, A::part_queries> p_16, ds_16;
    const HstuKeys seen(mask, min(first, last) + shift, min(first + A::part_queries - 1, last) + shift);
    if (first > last || !(kIntervals || seen.any_in(block_key + key, A::rows))) {
      zero(ds_16); // the other warps read it for dQ
      if (has_dk)
        store(ds, ds_16);
      if (has_dk && A::bias && sequence.owns_d_rab()) {
        zero(dp);
        store(sequence.d_rab(), transposed(dp), first + shift, block_key + key);
      }
      return;
    }

    // S^T = K Q^T + rab^T, P^T = silu(alpha S^T) with its slope, dV += P^T dO
    if (has_dv) {
      zero(slope);
      if constexpr (A::bias) {
        load(transposed(p_16), part<A::part_queries, A::rows>(smem.rab[buffer], query, key));
        copy(slope, p_16);
      }
      mma_ABt(slope, part<A::rows, d>(smem.k, key), q, slope);
      silu_and_slope(p_16, slope, p.alpha);
      if (kIntervals || !seen.all_in(block_key + key, A::rows)) {
        const auto bits = [&](int c) {
          return mask.row_bits(min(first + c, last) + shift, block_key + key, A::rows);
        };
        keep_bits_t(p_16, p_16, bits);
        keep_bits_t(slope, slope, bits);
      }
      if constexpr (!A::in_pairs)
        mma_AB(dv, p_16, d_o, dv);
    }

    // dP^T = V dO^T, dS^T = slope * dP^T, dK += dS^T Q
    if (has_dk) {
      zero(dp);
      mma_ABt(dp, part<A::rows, d>(smem.v, key), d_o, dp);
    }
    if constexpr (A::in_pairs) {
      auto slopes = part<A::rows, A::part_queries>(smem.slopes[buffer], key, query);
      ladder::multiply_by_slopes<A::warps>(dp, slopes, has_dv);
      if (has_dv)
        mma_AB(dv, p_16, d_o, dv);
    }
    if (has_dk) {
      if constexpr (!A::in_pairs)
        mul(dp, dp, slope);
      copy(ds_16, dp);
      store(ds, ds_16);
      auto &sum = choose<A::in_pairs>(dv, dk);
      mma_AB(sum, ds_16, q, sum);
      if (A::bias && sequence.gradients.d_rab) {
        mul(dp, dp, p.alpha * p.inv_length);
        if (p.rab_heads == 1)
          atomic_add(sequence.d_rab(), transposed(dp), first + shift, block_key + key);
        else
          store(sequence.d_rab(), transposed(dp), first + shift, block_key + key);
      }
    }
  }

  /// The factors are applied last. P and dS are rounded without 1 / length, which would make some of them
  /// subnormal in fp16.
  template <typename Sequence> __device__ void write(const Sequence &sequence, const HstuProblem &p) {
    RegTile<T, A::rows, d> out;
    if (has_dv) {
      mul(dv, dv, p.inv_length);
      copy(out, dv);
      store(sequence.dv(), out, block_key + key);
    }
    if (has_dk) {
      auto &sum = choose<A::in_pairs>(dv, dk);
      mul(sum, sum, p.alpha * p.inv_length);
      copy(out, sum);
      store(sequence.dk(), out, block_key + key);
    }
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

/// The gradient of a bias that heads share is a sum, which starts from 0.
__global__ void clear_d_rab(float4 *d_rab, int64_t quads) {
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < quads; i += step)
    d_rab[i] = {};
}

template <typename T, int d, typename A>
void launch_arrangement(const HstuBackwardProblem &problem, cudaStream_t stream) {
  const HstuProblem &p = problem.forward;
  const dim3 grid = ladder::launch_grid(p.heads, (p.max_k_len + A::keys - 1) / A::keys, p.batch);
  const size_t sums = SequenceGradients<T, d, ladder::ThisBlock>::dq_tiles(p, A::queries) * A::queries * d;
  const ladder::Workspace<float> dq_sums(sums, stream, "h3e_pairs: workspace");
  ladder::check(cudaMemsetAsync(dq_sums.data(), 0, sums * sizeof(float), stream), "h3e_pairs: workspace");
  if (problem.d_rab && p.rab_heads == 1) {
    const int64_t quads = int64_t(p.batch) * p.max_k_len * p.rab_stride / 4;
    clear_d_rab<<<unsigned(min((quads + 255) / 256, int64_t(4096))), 256, 0, stream>>>(
        reinterpret_cast<float4 *>(problem.d_rab), quads);
    ladder::check(cudaGetLastError(), "h3e_pairs: launch");
  }

  const auto kernel = p.intervals ? differentiate<T, d, A, true> : differentiate<T, d, A, false>;
  constexpr int smem_bytes = sizeof(typename A::Shared);
  ladder::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem_bytes),
                "h3e_pairs: shared memory");
  kernel<<<grid, A::warps * 32, smem_bytes, stream>>>(problem, dq_sums.data());
  ladder::check(cudaGetLastError(), "h3e_pairs: launch");
  const dim3 dq_grid = ladder::launch_grid(p.heads, p.batch, (p.max_q_len + A::queries - 1) / A::queries);
  round_dq<T, d, A><<<dq_grid, A::warps * 32, 0, stream>>>(problem, dq_sums.data());
  ladder::check(cudaGetLastError(), "h3e_pairs: launch");
}

template <typename T, int d, bool kBias>
void launch_head_dim(const HstuBackwardProblem &problem, cudaStream_t stream) {
  using Large = Arrangement<T, d, kBias, d == 128>;
  using Small = Arrangement<T, d, kBias, false>;
  static_assert(sizeof(typename Small::Shared) <= 99 * 1024);
  const bool is_large = sizeof(typename Large::Shared) <= ladder::max_block_smem_bytes();
  is_large ? launch_arrangement<T, d, Large>(problem, stream)
           : launch_arrangement<T, d, Small>(problem, stream);
}

} // namespace

void ladder::launch(const HstuBackwardProblem &p, cudaStream_t stream) {
  dispatch_16_bit(p.forward, [&](auto element) {
    dispatch_head_dim<32, 64, 128>(p.forward, [&](auto d) {
      if (p.forward.rab)
        launch_head_dim<decltype(element), d, true>(p, stream);
      else
        launch_head_dim<decltype(element), d, false>(p, stream);
    });
  });
}
