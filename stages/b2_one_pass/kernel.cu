// b2_one_pass: P and dP are made once, five products instead of b1_two_kernels' seven.
//
// A block of keys has all that their share of dQ needs, too: dS and K. So b1's kernel with the keys outside
// adds that share, in fp32, to those of other blocks, and the other kernel goes. Each warp computes dS^T for
// all queries of a tile and some keys, while dQ sums over the keys: dS^T passes through shared memory once,
// and is read transposed.
//
// The five products wait for shared memory, so each fragment loaded from it should serve as often as
// registers allow. Two warps, a pair, have the same keys, twice as many as one warp could: one computes S^T,
// P^T and dV, the other dP^T, dS^T and dK.
#include <cmath>

#include "ladder/backward_rows.h"

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

/// A block's arrangement for elements T and head dimension d. The large form takes the shared memory of an
/// sm_80 or sm_90, the small one no more than the 99 KB of an sm_86 or sm_89.
template <typename T, int d, bool kLarge> struct Arrangement {
  // dV or dK of a pair's keys takes half of a warp's registers, S^T or dP^T of part of a query tile a
  // quarter.
  static constexpr int rows = d == 64 ? 64 : 32, warps = d == 64 || (d == 128 && !kLarge) ? 4 : 8;
  static constexpr int keys = warps / 2 * rows; // of a block
  static constexpr int queries = kLarge || d < 128 ? 64 : 32, part_queries = rows == 64 ? 32 : queries;
  struct Resident {
    SharedTile<T, keys, d> k, v;
  };
  struct Buffer {
    SharedTile<T, queries, d> q, d_o;
    SharedVec<float, queries> lse, delta;
  };
  union Exchanged {
    SharedTile<__half, keys, queries> weights; // P^T
    SharedTile<T, keys, queries> gradients;    // dS^T, a part in the place of the weights that it is made of
  };
  static constexpr int smem_bytes = SharedAllocator::bytes<Resident> +
                                    SharedAllocator::bytes<Buffer, kBuffers> +
                                    SharedAllocator::bytes<Exchanged, kBuffers>;

  /// The warps share a tile of dQ: the nearer to a square each part is, the fewer fragments a warp loads.
  static constexpr int dq_size = queries * d / warps;
  static constexpr int dq_cols = dq_size >= 32 * 32 ? 32 : 16, dq_rows = dq_size / dq_cols;
  using DqSums = GlobalFragments<dq_rows, dq_cols>;
};

/// The calling warp's part of a tile of dQ.
template <int d, typename A> struct DqPart {
  static constexpr int across = d / A::dq_cols;
  int row = group<A::warps>::warp() / across * A::dq_rows,
      col = group<A::warps>::warp() % across * A::dq_cols;

  /// Its place among the sums of all (batch, query head), tiles and warps.
  __device__ static typename A::DqSums sums(float *dq_sums, int64_t tile) {
    return {dq_sums + (tile * A::warps + group<A::warps>::warp()) * A::DqSums::size};
  }
};

template <typename T, int d, typename A>
__global__ void __launch_bounds__(A::warps * 32)
    differentiate(const __grid_constant__ AttentionBackwardProblem p, const RowStatistics statistics,
                  float *dq_sums) {
  using block = group<A::warps>;
  using pair = group<2>;
  const int block_key = blockIdx.y * A::keys, pair_key = block::warp() / 2 * A::rows;
  const bool has_dv = block::warp() % 2 == 0; // the other one of the pair has dK
  const int kv_head = ladder::block_kv_head();
  const ladder::Steps<A::queries> steps(p, kv_head, block_key);
  const DqPart<d, A> mine;

  extern __shared__ __align__(128) unsigned char smem[];
  SharedAllocator allocator(smem);
  auto &resident = allocator.allocate<typename A::Resident>();
  auto &buffers = allocator.allocate<typename A::Buffer, kBuffers>();
  auto &exchanged = allocator.allocate<typename A::Exchanged, kBuffers>();
  const auto fetch = [&](int step, QueryTile tile) {
    if (step < steps.count()) {
      const ladder::BackwardHead<T, d> gmem{p, tile.head, kv_head};
      const int query = steps.query(tile);
      auto &buffer = buffers[step % kBuffers];
      block::load_async(buffer.q, gmem.q(), query);
      block::load_async(buffer.d_o, gmem.d_o(), query);
      block::load_async(buffer.lse, statistics.lse_of(tile.head), query);
      block::load_async(buffer.delta, statistics.delta_of(tile.head), query);
    }
    async_commit();
  };

  // S^T and P^T, or dP^T and dS^T. Transposed, keys by queries, they leave their products as first factors of
  // the next ones.
  RegTile<float, A::rows, A::part_queries> x;
  RegTile<T, A::rows, A::part_queries> x_16;
  RegTile<__half, A::rows, A::part_queries> weights;
  typename RegTile<float, A::rows, A::part_queries>::RowVec lse_or_delta;
  RegTile<float, A::rows, d> dv_or_dk;
  RegTile<float, A::dq_rows, A::dq_cols> dq;
  RegTile<T, A::rows, d> out;
  zero(dv_or_dk);

  block::load_async(resident.k, ladder::BackwardHead<T, d>{p, 0, kv_head}.k(), block_key);
  block::load_async(resident.v, ladder::BackwardHead<T, d>{p, 0, kv_head}.v(), block_key);
  QueryTile tile = steps.first(), before = tile;
  fetch(0, tile);
  // A step's share of dQ waits for the next step, so that one barrier serves both.
  for (int step = 0; step <= steps.count(); step++) {
    block::async_wait();
    const QueryTile after = steps.after(tile);
    fetch(step + 1, after);
    if (step < steps.count()) {
      const auto &buffer = buffers[step % kBuffers];
#pragma unroll 1
      for (int query = 0; query < A::queries; query += A::part_queries) {
        const auto keys = part<A::rows, d>(has_dv ? resident.k : resident.v, pair_key);
        const auto made_of = part<A::part_queries, d>(has_dv ? buffer.q : buffer.d_o, query);
        const auto summed_with = part<A::part_queries, d>(has_dv ? buffer.d_o : buffer.q, query);
        auto p_smem = part<A::rows, A::part_queries>(exchanged[step % kBuffers].weights, pair_key, query);
        auto ds_smem = part<A::rows, A::part_queries>(exchanged[step % kBuffers].gradients, pair_key, query);
        zero(x);
        mma_ABt(x, keys, made_of, x);
        load(lse_or_delta, has_dv ? buffer.lse : buffer.delta, query);
        mul(x, x, has_dv ? p.scale * kLog2E : kUnshift);
        sub_col(x, x, lse_or_delta);
        if (has_dv) {
          lower_fill(x, x, p.kv_len - block_key - pair_key);
          if (p.is_causal)
            make_causal_t(x, x, block_key + pair_key, steps.query(tile) + query);
          exp2(x, x);
          copy(weights, x);
          store(p_smem, weights);
        }
        pair::sync(1 + block::warp() / 2);
        if (!has_dv) {
          load(weights, p_smem);
          mul(x, x, weights);
        }
        copy(x_16, x);
        if (!has_dv) {
          __syncwarp();
          store(ds_smem, x_16);
        }
        mma_AB(dv_or_dk, x_16, summed_with, dv_or_dk);
      }
    }
    if (step > 0) {
      const auto &ds_smem = exchanged[(step - 1) % kBuffers].gradients;
      zero(dq);
      mma_AtB(dq, part<A::keys, A::dq_rows>(ds_smem, 0, mine.row),
              part<A::keys, A::dq_cols>(resident.k, 0, mine.col), dq);
      atomic_add(mine.sums(dq_sums, steps.dq_tile(before)), dq);
    }
    before = tile;
    tile = after;
  }
  const ladder::BackwardHead<T, d> gmem{p, 0, kv_head};
  mul(dv_or_dk, dv_or_dk, has_dv ? kUnshift : p.scale);
  copy(out, dv_or_dk);
  store(has_dv ? gmem.dv() : gmem.dk(), out, block_key + pair_key);
}

/// dQ = scale * its sums, rounded; one block a tile.
template <typename T, int d, typename A>
__global__ void __launch_bounds__(A::warps * 32)
    round_dq(const __grid_constant__ AttentionBackwardProblem p, float *dq_sums) {
  const int64_t head = int64_t(blockIdx.z) * p.heads + blockIdx.y;
  const DqPart<d, A> mine;
  RegTile<float, A::dq_rows, A::dq_cols> dq;
  RegTile<T, A::dq_rows, A::dq_cols> out;
  load(dq, mine.sums(dq_sums, head * gridDim.x + blockIdx.x));
  mul(dq, dq, p.scale);
  copy(out, dq);
  store(ladder::BackwardHead<T, d>{p, head, 0}.dq(), out, blockIdx.x * A::queries + mine.row, mine.col);
}

template <typename T, int d, bool kLarge>
void launch_tiles(const AttentionBackwardProblem &p, cudaStream_t stream) {
  using A = Arrangement<T, d, kLarge>;
  RowStatistics statistics(p, kShift);
  const size_t rows = size_t(p.batch) * p.heads * statistics.padded_len;
  const ladder::Workspace<float> workspace((2 + d) * rows, stream, "b2_one_pass: workspace");
  statistics.lse_log2 = workspace.data();
  statistics.delta = workspace.data() + rows;
  float *dq_sums = workspace.data() + 2 * rows;
  ladder::check(cudaMemsetAsync(dq_sums, 0, rows * d * sizeof(float), stream), "b2_one_pass: workspace");
  ladder::row_statistics<T, d>
      <<<ladder::row_grid<T, d>(rows), ladder::kRowThreads, 0, stream>>>(p, statistics);
  ladder::check(cudaGetLastError(), "b2_one_pass: launch");

  constexpr auto kernel = differentiate<T, d, A>;
  ladder::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, A::smem_bytes),
                "b2_one_pass: shared memory");
  kernel<<<ladder::key_grid(p, A::keys), A::warps * 32, A::smem_bytes, stream>>>(p, statistics, dq_sums);
  ladder::check(cudaGetLastError(), "b2_one_pass: launch");
  const dim3 dq_grid = ladder::launch_grid((p.q_len + A::queries - 1) / A::queries, p.heads, p.batch);
  round_dq<T, d, A><<<dq_grid, A::warps * 32, 0, stream>>>(p, dq_sums);
  ladder::check(cudaGetLastError(), "b2_one_pass: launch");
}

template <typename T, int d>
void launch_large_or_small(const AttentionBackwardProblem &p, cudaStream_t stream) {
  int device = 0, most_bytes = 0;
  ladder::check(cudaGetDevice(&device), "cudaGetDevice");
  ladder::check(cudaDeviceGetAttribute(&most_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
                "cudaDeviceGetAttribute");
  static_assert(Arrangement<T, d, false>::smem_bytes <= 99 * 1024);
  if (Arrangement<T, d, true>::smem_bytes <= most_bytes)
    launch_tiles<T, d, true>(p, stream);
  else
    launch_tiles<T, d, false>(p, stream);
}

} // namespace

void ladder::launch(const AttentionBackwardProblem &p, cudaStream_t stream) {
  require_alignment(p, 16);
  dispatch_16_bit(p, [&](auto element) {
    dispatch_head_dim<32, 64, 128>(p,
                                   [&](auto d) { launch_large_or_small<decltype(element), d>(p, stream); });
  });
}
