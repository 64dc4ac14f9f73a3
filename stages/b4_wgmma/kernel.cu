// b4_wgmma: the five products of b2_one_pass on Hopper's tensor cores, each begun long before it is needed.
//
// A producer has K and V brought by TMA once, and Q and dO tile by tile. Two consumers, warpgroups with 64
// keys each, make S^T and dP^T from shared memory; P^T and dS^T stay in registers, where they are first
// factors of dV and dK. dS^T is stored to shared memory, too, for dQ = dS K, which sums over the keys of
// both. dK and dQ of a step run under the exponentials of the next one. What a warp has of dQ it adds to the
// sums of all blocks from its registers, 16 bytes a lane.
#include <climits>
#include <cmath>

#include "ladder/backward_rows.h"
#include "tiles/ring.h"
#include "tiles/roles.h"
#include "tiles/tensor_map.h"
#include "tiles/tiles.h"
#include "tiles/warpgroup.h"

// Options of stage.toml, set when building; 0 leaves them to Arrangement.
#ifndef QUERIES
#define QUERIES 0
#endif
#ifndef BUFFERS
#define BUFFERS 0
#endif

namespace {

using ladder::AttentionBackwardProblem;
using ladder::QueryTile;
using ladder::RowStatistics;
using namespace tiles;

constexpr float kLog2E = 1.4426950408889634f;

/// Weights are 2^kShift * P, as in b2_one_pass, so that they are normal numbers in fp16 down to 2^-26; delta
/// and dP come with the inverse.
constexpr int kShift = 12;
constexpr float kUnshift = 1.f / (1 << kShift);

/// A block's arrangement for elements T and head dimension d.
template <typename T, int d> struct Arrangement {
  // Warpgroups that compute, each with 64 keys, beside the one that has tiles brought. dK and dV take d of a
  // thread's registers, S^T and dP^T queries; dQ and dS^T are there when dP^T is not.
  static constexpr int consumers = 2, threads = 128 * (consumers + 1), keys = 64 * consumers;
  static constexpr int producer_registers = 24, consumer_registers = 240; // 24 + 2 x 240 = 3 x 168
  static constexpr int queries = QUERIES ? QUERIES : d == 128 ? 64 : 128; // of a tile
  static constexpr int parts = queries / 64; // one after the other, where something can run meanwhile
  static constexpr int buffers = BUFFERS ? BUFFERS : 2;

  /// The consumers share a tile of dQ, 64 rows each if there are enough of them.
  static constexpr int dq_cols = queries / 64 == consumers ? d : d / consumers;
  using DqSums = GlobalFragments<16, dq_cols, 4>; // a warp's

  using KTile = SharedTile<T, keys, d>;
  using QTile = SharedTile<T, queries, d>;
  struct Shared {
    Ring<KTile, 1> k, v;
    Ring<QTile, buffers> q, d_o;
    alignas(1024) SharedTile<T, keys, queries> ds[2];       // dS^T
    SharedVec<float, queries> lse[buffers], delta[buffers]; // they come with q and d_o
    Barrier ds_full[2];
  };
  struct Maps {
    tma::TensorMap<QTile> q, d_o;
    tma::TensorMap<KTile> k, v, dk, dv;
  };

  static constexpr bool fits =
      d + queries + 32 <= consumer_registers && dq_cols >= 32 && sizeof(Shared) <= 227 * 1024;
};

template <typename A> using Steps = ladder::Steps<A::queries>;

/// The calling warp's place among the sums of all (batch, query head), tiles and warps.
template <typename A>
__device__ inline typename A::DqSums share_of_dq(float *dq_sums, int64_t tile, int consumer) {
  const int64_t share = (tile * A::consumers + consumer) * warpgroup::warps + warpgroup::warp();
  return {dq_sums + share * A::DqSums::size};
}

/// The producer, a single thread.
template <typename A>
__device__ inline void produce(typename A::Shared &smem, const typename A::Maps &maps,
                               const RowStatistics &statistics, const Steps<A> &steps) {
  smem.k.load_async({}, maps.k, steps.key, steps.kv_head);
  smem.v.load_async({}, maps.v, steps.key, steps.kv_head);
  Turn<A::buffers> turn;
  QueryTile tile = steps.first();
  for (int step = 0; step < steps.count(); step++, tile = steps.after(tile), turn.advance()) {
    const int head = tile.head, query = steps.query(tile);
    smem.q.wait_empty(turn);
    smem.q.load_async(turn, smem.lse[turn.buffer], statistics.lse_of(head), query);
    smem.q.load_async(turn, maps.q, query, head);
    smem.d_o.wait_empty(turn);
    smem.d_o.load_async(turn, smem.delta[turn.buffer], statistics.delta_of(head), query);
    smem.d_o.load_async(turn, maps.d_o, query, head);
  }
}

/// dK and dV, of each warp the rows from `row` on, leave through the shared memory of K and V, which all
/// consumers must be done with.
template <typename T, int d, typename A>
__device__ inline void store_gradients(typename A::Shared &smem, const typename A::Maps &maps,
                                       const Steps<A> &steps, const RegTile<float, 16, d> &dk,
                                       const RegTile<float, 16, d> &dv, int row) {
  using consumers = group<A::consumers * warpgroup::warps>;
  auto &dk_smem = smem.k.tiles[0][0], &dv_smem = smem.v.tiles[0][0];
  RegTile<T, 16, d> rounded;
  consumers::sync(1);
  copy(rounded, dk);
  store(dk_smem, rounded, row);
  copy(rounded, dv);
  store(dv_smem, rounded, row);
  fence_async_proxy();
  consumers::sync(1);
  if (threadIdx.x == 0) {
    tma::store_async(maps.dk, dk_smem, steps.key, steps.kv_head);
    tma::store_async(maps.dv, dv_smem, steps.key, steps.kv_head);
    tma::store_commit();
    tma::store_wait_read(); // shared memory is the block's until it ends
  }
}

/// A consumer, a warpgroup with 64 keys. S^T and what follows from it are keys by queries.
template <typename T, int d, typename A>
__device__ inline void consume(typename A::Shared &smem, const typename A::Maps &maps,
                               const AttentionBackwardProblem &p, float *dq_sums, const Steps<A> &steps,
                               int consumer) {
  const int warp = warpgroup::warp(), row = 64 * consumer + 16 * warp, key = steps.key + row;
  RegTile<float, 16, A::queries> s, dp;
  RegTile<T, 16, A::queries> p_16, ds_16;
  RegTile<float, 16, d> dv, dk;
  RegTile<float, 16, A::dq_cols> dq;
  zero(dv);
  zero(dk);
  const auto k = part<64, d>(smem.k.wait_full({}), 64 * consumer);
  const auto v = part<64, d>(smem.v.wait_full({}), 64 * consumer);
  // The consumer's share of dQ: its queries of the tile, or its columns.
  const auto k_cols = part<A::keys, A::dq_cols>(k.tile, 0, A::dq_cols == d ? 0 : A::dq_cols * consumer);
  const int dq_query = A::dq_cols == d ? 64 * consumer : 0;
  Turn<A::buffers> turn;
  Turn<2> ds_turn;
  const auto part_of_d_o = [&](int first) { return part<64, d>(smem.d_o.tiles[turn.buffer][0], first); };

  const auto begin_dv = [&](int first) {
    copy(columns<64>(p_16, first), columns<64>(s, first));
    warpgroup::mma_AB(dv, columns<64>(p_16, first), part_of_d_o(first), dv);
  };
  // P^T = exp(scale S^T - lse), 64 queries after the other. Of two such parts the first one's dV is begun.
  const auto make_weights = [&](QueryTile tile) {
#pragma unroll
    for (int part = 0; part < A::parts; part++) {
      auto &x = columns<64>(s, 64 * part);
      mul(x, x, p.scale * kLog2E);
      sub_col(x, x, smem.lse[turn.buffer], 64 * part);
      lower_fill(x, x, p.kv_len - key);
      if (p.is_causal)
        make_causal_t(x, x, key, steps.query(tile) + 64 * part);
      exp2(x, x);
      // for dV; and ptxas moves fewer exponentials past this wait than past one for products
      if (part == 0)
        smem.d_o.wait_full(turn);
      if (part + 1 < A::parts)
        begin_dv(64 * part);
    }
  };
  // dP^T, and of it dS^T = P^T (dP^T - delta), in registers and in shared memory. Begins the last part's dV.
  const auto make_ds = [&] {
#pragma unroll
    for (int part = 0; part < A::parts; part++)
      warpgroup::mma_ABt(columns<64>(dp, 64 * part), v, part_of_d_o(64 * part));
#pragma unroll
    for (int part = 0; part < A::parts; part++) {
      auto &x = columns<64>(dp, 64 * part);
      warpgroup::mma_wait<(A::parts > 1)>(x); // all but the next part's, or the dV begun since
      mul(x, x, kUnshift);
      sub_col(x, x, smem.delta[turn.buffer], 64 * part);
      mul(x, x, columns<64>(s, 64 * part));
      copy(columns<64>(ds_16, 64 * part), x);
      auto ds_smem = tiles::part<16, 64>(smem.ds[ds_turn.buffer], row, 64 * part);
      store(ds_smem, columns<64>(ds_16, 64 * part));
      if (part == 0)
        begin_dv(A::queries - 64);
    }
    fence_async_proxy();
    __syncwarp();
    if (lane_id() == 0)
      smem.ds_full[ds_turn.buffer].arrive();
  };
  const auto begin_dq_and_dk = [&](Turn<A::buffers> turn) {
    smem.ds_full[ds_turn.buffer].wait(ds_turn.parity); // the other consumer's dS^T
    warpgroup::mma_AtB(dq, part<A::keys, 64>(smem.ds[ds_turn.buffer], 0, dq_query), k_cols);
    warpgroup::mma_AB(dk, ds_16, smem.q.tiles[turn.buffer][0], dk);
    ds_turn.advance();
  };
  const auto add_dq = [&](QueryTile tile) {
    atomic_add(share_of_dq<A>(dq_sums, steps.dq_tile(tile), consumer), dq);
  };

  if (steps.count() > 0) {
    QueryTile tile = steps.first();
    warpgroup::mma_ABt(s, k, smem.q.wait_full(turn));
    warpgroup::mma_wait(s);
    make_weights(tile);
    warpgroup::mma_wait(dv);
    for (int step = 1; step < steps.count(); step++) {
      make_ds();
      const auto last_turn = turn;
      const auto last_tile = tile;
      turn.advance();
      tile = steps.after(tile);
      // This step's S^T is wanted first; dQ and dK of the last step run under its exponentials.
      warpgroup::mma_ABt(s, k, smem.q.wait_full(turn));
      warpgroup::mma_wait<1>(dv);
      smem.d_o.release(last_turn);
      begin_dq_and_dk(last_turn);
      warpgroup::mma_wait<2>(s);
      make_weights(tile);
      warpgroup::mma_wait<A::parts>(dq);
      add_dq(last_tile);
      warpgroup::mma_wait(dk, dv);
      smem.q.release(last_turn);
    }
    make_ds();
    warpgroup::mma_wait(dv);
    begin_dq_and_dk(turn);
    warpgroup::mma_wait(dq, dk);
    add_dq(tile);
  }

  mul(dk, dk, p.scale);
  mul(dv, dv, kUnshift);
  store_gradients<T, d, A>(smem, maps, steps, dk, dv, row);
}

template <typename T, int d, typename A>
__global__ void __launch_bounds__(A::threads, 1)
    differentiate(const __grid_constant__ typename A::Maps maps,
                  const __grid_constant__ AttentionBackwardProblem p,
                  const __grid_constant__ RowStatistics statistics, float *dq_sums) {
  const Steps<A> steps(p, ladder::block_kv_head(), blockIdx.y * A::keys);
  const int role = warpgroup::index();

  extern __shared__ __align__(1024) unsigned char bytes[];
  auto &smem = *reinterpret_cast<typename A::Shared *>(bytes);
  if (threadIdx.x == 0) {
    smem.k.init(1);
    smem.v.init(1);
    smem.q.init(A::consumers * warpgroup::warps);
    smem.d_o.init(A::consumers * warpgroup::warps);
    for (Barrier &full : smem.ds_full)
      full.init(A::consumers * warpgroup::warps);
    fence_barrier_init();
  }
  __syncthreads();

  if (role == A::consumers) {
    decrease_registers<A::producer_registers>();
    if (warpgroup::warp() == 0 && elect_one())
      produce<A>(smem, maps, statistics, steps);
  } else {
    increase_registers<A::consumer_registers>();
    consume<T, d, A>(smem, maps, p, dq_sums, steps, role);
  }
}

/// dQ = scale * its sums, rounded; one block a tile.
template <typename T, int d, typename A>
__global__ void __launch_bounds__(128 * A::consumers)
    round_dq(const __grid_constant__ AttentionBackwardProblem p, float *dq_sums) {
  const int64_t head = int64_t(blockIdx.z) * p.heads + blockIdx.y;
  const int consumer = warpgroup::index(), warp = warpgroup::warp();
  const int row = (A::dq_cols == d ? 64 * consumer : 0) + 16 * warp,
            col = A::dq_cols == d ? 0 : A::dq_cols * consumer;
  RegTile<float, 16, A::dq_cols> dq;
  RegTile<T, 16, A::dq_cols> out;
  load(dq, share_of_dq<A>(dq_sums, head * gridDim.x + blockIdx.x, consumer));
  mul(dq, dq, p.scale);
  copy(out, dq);
  store(ladder::BackwardHead<T, d>{p, head, 0}.dq(), out, blockIdx.x * A::queries + row, col);
}

template <typename T, int d> void launch_head_dim(const AttentionBackwardProblem &p, cudaStream_t stream) {
  using A = Arrangement<T, d>;
  if constexpr (!A::fits) {
    throw std::invalid_argument(
        "b4_wgmma: at this head_dim the options chosen do not fit into registers or shared memory");
  } else {
    RowStatistics statistics(p, kShift);
    const size_t rows = size_t(p.batch) * p.heads * statistics.padded_len;
    const ladder::Workspace<float> workspace((2 + d) * rows, stream, "b4_wgmma: workspace");
    float *dq_sums = workspace.data();
    statistics.lse_log2 = dq_sums + rows * d;
    statistics.delta = statistics.lse_log2 + rows;
    ladder::check(cudaMemsetAsync(dq_sums, 0, rows * d * sizeof(float), stream), "b4_wgmma: workspace");
    ladder::row_statistics<T, d>
        <<<ladder::row_grid<T, d>(rows), ladder::kRowThreads, 0, stream>>>(p, statistics);
    ladder::check(cudaGetLastError(), "b4_wgmma: launch");

    constexpr auto kernel = differentiate<T, d, A>;
    constexpr int smem_bytes = sizeof(typename A::Shared);
    ladder::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem_bytes),
                  "b4_wgmma: shared memory");
    const typename A::Maps maps{
        .q = tma::tensor_map<typename A::QTile>(p.q, p.q_len, p.batch * p.heads),
        .d_o = tma::tensor_map<typename A::QTile>(p.d_o, p.q_len, p.batch * p.heads),
        .k = tma::tensor_map<typename A::KTile>(p.k, p.kv_len, p.batch * p.kv_heads),
        .v = tma::tensor_map<typename A::KTile>(p.v, p.kv_len, p.batch * p.kv_heads),
        .dk = tma::tensor_map<typename A::KTile>(p.dk, p.kv_len, p.batch * p.kv_heads),
        .dv = tma::tensor_map<typename A::KTile>(p.dv, p.kv_len, p.batch * p.kv_heads),
    };
    kernel<<<ladder::key_grid(p, A::keys), A::threads, smem_bytes, stream>>>(maps, p, statistics, dq_sums);
    ladder::check(cudaGetLastError(), "b4_wgmma: launch");
    const dim3 dq_grid = ladder::launch_grid((p.q_len + A::queries - 1) / A::queries, p.heads, p.batch);
    round_dq<T, d, A><<<dq_grid, 128 * A::consumers, 0, stream>>>(p, dq_sums);
    ladder::check(cudaGetLastError(), "b4_wgmma: launch");
  }
}

} // namespace

void ladder::launch(const AttentionBackwardProblem &p, cudaStream_t stream) {
  require_alignment(p, 16);
  dispatch_16_bit(p, [&](auto element) {
    dispatch_head_dim<32, 64, 128>(p, [&](auto d) { launch_head_dim<decltype(element), d>(p, stream); });
  });
}
