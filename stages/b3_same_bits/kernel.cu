// b3_same_bits: b2_one_pass with the same bits in every run.
//
// Floating-point addition is not associative, and in b2 the shares of a tile of dQ arrive in whatever order
// the blocks run. Here they take turns: the block of the first keys adds first, then that of the next ones.
// All blocks go through the queries in the same direction, last ones first, so that they fall in line once,
// at the beginning, and from then on a block's predecessor is mostly ahead of it.
#include <cmath>

#include "ladder/backward_rows.h"

namespace {

using ladder::AttentionBackwardProblem;
using ladder::QueryTile;
using ladder::RowStatistics;
using namespace tiles;

constexpr float kLog2E = 1.4426950408889634f;
constexpr int kBuffers = 2;
constexpr int64_t kNoTile = -1ll << 32; // a number that no tile has

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

/// Who may add to which part of dQ. All counters begin at 0.
struct Turns {
  int *started; ///< how many blocks have
  int *next;    ///< of each tile of dQ: the number of the key tile that adds next

  /// The calling block's number, in the order in which blocks start: a block that waits only for lower
  /// numbers waits for blocks that run or have run.
  __device__ int take_number() const {
    __shared__ int number;
    if (threadIdx.x == 0)
      number = atomicAdd(started, 1);
    __syncthreads();
    return number;
  }

  /// Waits until key tile `key_tile` may add, and sees what those before it have added.
  __device__ void wait(int64_t tile, int key_tile) const {
    while (ladder::ptx::load_acquire(next + tile) != key_tile)
      ;
    __syncwarp();
  }

  /// Lets the next one add to what all warps have added before the last barrier.
  __device__ void pass_on(int64_t tile, int key_tile) const {
    if (threadIdx.x == 0)
      ladder::ptx::store_release(next + tile, key_tile + 1);
  }
};

template <typename T, int d, typename A>
__global__ void __launch_bounds__(A::warps * 32)
    differentiate(const __grid_constant__ AttentionBackwardProblem p, const RowStatistics statistics,
                  float *dq_sums, const Turns turns) {
  using block = group<A::warps>;
  using pair = group<2>;
  const int number = turns.take_number(), key_tiles = (p.kv_len + A::keys - 1) / A::keys;
  const int key_tile = number % key_tiles, kv_head = number / key_tiles;
  const int block_key = key_tile * A::keys, pair_key = block::warp() / 2 * A::rows;
  const bool has_dv = block::warp() % 2 == 0; // the other one of the pair has dK
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
  int64_t added = kNoTile; // the tile of dQ that the block added to last
  fetch(0, tile);
  // A step's share of dQ waits for the next step, so that one barrier serves both.
  for (int step = 0; step <= steps.count(); step++) {
    block::async_wait();
    if (step > 1)
      turns.pass_on(added, key_tile);
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
      added = steps.dq_tile(before);
      turns.wait(added, key_tile);
      atomic_add(mine.sums(dq_sums, added), dq);
    }
    before = tile;
    tile = after;
  }
  if (steps.count() > 0) {
    block::sync();
    turns.pass_on(added, key_tile);
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
  const ladder::Workspace<float> workspace((2 + d) * rows, stream, "b3_same_bits: workspace");
  statistics.lse_log2 = workspace.data();
  statistics.delta = workspace.data() + rows;
  float *dq_sums = workspace.data() + 2 * rows;
  ladder::check(cudaMemsetAsync(dq_sums, 0, rows * d * sizeof(float), stream), "b3_same_bits: workspace");
  ladder::row_statistics<T, d>
      <<<ladder::row_grid<T, d>(rows), ladder::kRowThreads, 0, stream>>>(p, statistics);
  ladder::check(cudaGetLastError(), "b3_same_bits: launch");

  constexpr auto kernel = differentiate<T, d, A>;
  ladder::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, A::smem_bytes),
                "b3_same_bits: shared memory");
  const int64_t key_tiles = (p.kv_len + A::keys - 1) / A::keys,
                query_tiles = (p.q_len + A::queries - 1) / A::queries;
  const size_t counters = 1 + p.batch * p.heads * query_tiles;
  const ladder::Workspace<int> turns(counters, stream, "b3_same_bits: workspace");
  ladder::check(cudaMemsetAsync(turns.data(), 0, counters * sizeof(int), stream), "b3_same_bits: workspace");
  const dim3 grid = ladder::launch_grid(key_tiles * p.kv_heads * p.batch, 1);
  kernel<<<grid, A::warps * 32, A::smem_bytes, stream>>>(p, statistics, dq_sums,
                                                         Turns{turns.data(), turns.data() + 1});
  ladder::check(cudaGetLastError(), "b3_same_bits: launch");
  const dim3 dq_grid = ladder::launch_grid((p.q_len + A::queries - 1) / A::queries, p.heads, p.batch);
  round_dq<T, d, A><<<dq_grid, A::warps * 32, 0, stream>>>(p, dq_sums);
  ladder::check(cudaGetLastError(), "b3_same_bits: launch");
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
