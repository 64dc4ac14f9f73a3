// b5d_80_queries: 80 queries per step.
//
// K and V are read once per 80 queries instead of 64.
//
// dK is issued before dQ, and both run under the exponentials: dK under those of the first 48 queries, dQ
// under those of the last 32. So dS^T in 16 bits and dQ^T are never in registers together.
#include <cmath>

#include "ladder/backward_rows.h"
#include "ladder/opaque_zero.h"
#include "tiles/fragments_shared.h"
#include "tiles/ring.h"
#include "tiles/roles.h"
#include "tiles/tensor_map.h"
#include "tiles/warpgroup.h"

namespace {

using ladder::AttentionBackwardProblem;
using ladder::QueryTile;
using ladder::RowStatistics;
using namespace tiles;

constexpr float kLog2E = 1.4426950408889634f;
constexpr int kBuffers = 2; // of Q, dO and dS

/// The weights are 2^kShift * P, so that they are normal numbers in fp16 down to 2^-26. dP and delta are
/// scaled by the inverse.
constexpr int kShift = 12;
constexpr float kUnshift = 1.f / (1 << kShift);

/// A block's arrangement for elements T and head dimension d.
template <typename T, int d> struct Arrangement {
  // A producer warpgroup, consumer warpgroups of 64 keys each, and the queries of a tile. Registers per
  // thread:
  //   dV and dK                        d                             128
  //   under dS:               dP^T, P^T twice                     40 + 40
  //   under dV and dK:        S^T, P^T, dS^T                 40 + 20 + 20
  //   under the exponentials: S^T, dQ^T                           40 + 40
  static constexpr int consumers = 2, warps = 4 * consumers, keys = 64 * consumers;
  static constexpr int threads = 128 * (consumers + 1);
  static constexpr int producer_registers = 24, consumer_registers = 240; // 24 + 2 x 240 = 3 x 168
  static constexpr int queries = 80, first_queries = 48, last_queries = queries - first_queries;

  /// The consumers share a tile of dQ^T: each has 64 of its d rows.
  static_assert(d == 64 * consumers);
  using DqSums = GlobalFragments<16, queries, 4>; // per warp

  using KTile = SharedTile<T, keys, d>;
  using QTile = SharedTile<T, queries, d>;
  /// The tiles take 224 of 227 KB, so all barriers follow them. A Ring's would be padded to 1 KB.
  struct Shared {
    alignas(1024) KTile k, v;
    alignas(1024) QTile q[kBuffers], d_o[kBuffers];
    alignas(1024) SharedTile<T, queries, keys> ds[kBuffers];
    SharedFragments<16, queries> dq[consumers][warpgroup::warps]; // dQ^T
    SharedVec<float, queries> lse[kBuffers], delta[kBuffers];
    Barrier kv_full, q_full[kBuffers], q_empty[kBuffers], d_o_full[kBuffers], d_o_empty[kBuffers];
    Barrier ds_full[kBuffers], ds_empty[kBuffers]; // a wait for ds_empty always succeeds at once (README)
    Barrier dq_full[consumers], dq_empty[consumers];
  };
  struct Maps {
    tma::TensorMap<QTile> q, d_o;
    tma::TensorMap<KTile> k, v, dk, dv;
  };
};

template <typename A>
__device__ void produce(typename A::Shared &smem, const typename A::Maps &maps,
                        const RowStatistics &statistics, const ladder::Steps<A::queries> &steps);
template <typename T, int d, typename A> struct Consumer;
template <typename A>
__device__ void add_dq(typename A::Shared &smem, const ladder::Steps<A::queries> &steps, int consumer,
                       float *dq_sums);

template <typename T, int d, typename A>
__global__ void __launch_bounds__(A::threads, 1)
    differentiate(const __grid_constant__ typename A::Maps maps,
                  const __grid_constant__ AttentionBackwardProblem p,
                  const __grid_constant__ RowStatistics statistics, float *dq_sums) {
  const ladder::Steps<A::queries> steps(p, ladder::block_kv_head(), blockIdx.y * A::keys);

  extern __shared__ __align__(1024) unsigned char bytes[];
  auto &smem = *reinterpret_cast<typename A::Shared *>(bytes);
  if (threadIdx.x == 0) {
    smem.kv_full.init(1);
    init(smem.q_full, 1);
    init(smem.d_o_full, 1);
    init(smem.q_empty, A::warps);
    init(smem.d_o_empty, A::warps);
    init(smem.ds_full, A::warps);
    init(smem.ds_empty, A::warps);
    init(smem.dq_full, warpgroup::warps);
    init(smem.dq_empty, 1);
    fence_barrier_init();
  }
  __syncthreads();

  if (warpgroup::index() == A::consumers) {
    decrease_registers<A::producer_registers>();
    const int warp = warpgroup::warp();
    if (warp == 0 && elect_one())
      produce<A>(smem, maps, statistics, steps);
    if (0 < warp && warp <= A::consumers && elect_one())
      add_dq<A>(smem, steps, warp - 1, dq_sums);
  } else {
    increase_registers<A::consumer_registers>();
    Consumer<T, d, A>{p, steps, smem}.run(maps);
  }
}

/// Issues the loads of a tile and of its vector.
template <typename Tile, int kLength>
__device__ inline void load_async(Tile &tile, const tma::TensorMap<Tile> &map, int row, int head,
                                  SharedVec<float, kLength> &vec, const GlobalVec<const float> &values,
                                  Barrier &full) {
  full.arrive_and_expect(sizeof(tile) + sizeof(vec));
  tma::load_async(vec, values, row, full);
  tma::load_async(tile, map, row, head, full);
}

/// The producer, a single thread.
template <typename A>
__device__ void produce(typename A::Shared &smem, const typename A::Maps &maps,
                        const RowStatistics &statistics, const ladder::Steps<A::queries> &steps) {
  smem.kv_full.arrive_and_expect(2 * sizeof(smem.k));
  tma::load_async(smem.k, maps.k, steps.key, steps.kv_head, smem.kv_full);
  tma::load_async(smem.v, maps.v, steps.key, steps.kv_head, smem.kv_full);
  QueryTile tile = steps.first();
  Turn<kBuffers> loading_q, loading;
  for (int step = 0; step < steps.count(); step++, tile = steps.after(tile)) {
    const int head = tile.head, query = steps.query(tile);
    smem.q_empty[loading_q.buffer].wait(loading_q.parity ^ 1);
    load_async(smem.q[loading_q.buffer], maps.q, query, head, smem.lse[loading_q.buffer],
               statistics.lse_of(head), smem.q_full[loading_q.buffer]);
    smem.d_o_empty[loading.buffer].wait(loading.parity ^ 1);
    load_async(smem.d_o[loading.buffer], maps.d_o, query, head, smem.delta[loading.buffer],
               statistics.delta_of(head), smem.d_o_full[loading.buffer]);
    loading_q.advance();
    loading.advance();
  }
}

/// A consumer: a warpgroup with 64 keys, and their gradients. S and dP are transposed (keys x queries), so
/// P^T and dS^T are already in the registers that the next products read as operand A.
template <typename T, int d, typename A> struct Consumer {
  using consumers = group<A::warps>;
  const AttentionBackwardProblem &p;
  const ladder::Steps<A::queries> &steps;
  typename A::Shared &smem;
  const int group_key = 64 * warpgroup::index(), key = group_key + 16 * warpgroup::warp(); // in the block
  RegTile<float, 16, A::queries> s; // S^T, then dP^T of the same tile
  RegTile<T, 16, A::queries> p_16, p_for_ds, ds_16;
  RegTile<float, 16, d> dv, dk;
  RegTile<float, 16, A::queries> dq; // dQ^T
  Turn<kBuffers> q_turn, turn;       // of Q and of dO: equal, but b5e is slower with one variable (README)
  Turn<kBuffers> ds_turn;            // of the last dS that was stored, until dQ is complete

  __device__ void run(const typename A::Maps &maps) {
    zero(dv);
    zero(dk);
    smem.kv_full.wait(0);
    if (steps.count() > 0) {
      QueryTile tile = steps.first();
      issue_s();
      warpgroup::mma_wait(s);
      compute_first_p(steps.query(tile));
      compute_last_p(steps.query(tile));
      for (int step = 1; step < steps.count(); step++) {
        compute_ds();
        const auto last_q_turn = q_turn;
        const auto last_turn = turn;
        tile = steps.after(tile);
        q_turn.advance();
        turn.advance();
        // S^T of this step first: dK and dQ of the previous step run under its exponentials.
        issue_s();
        issue_dk(last_q_turn);
        warpgroup::mma_wait<2>(dv);
        release(smem.d_o_empty[last_turn.buffer]);
        warpgroup::mma_wait<1>(s);
        // The wait depends on the exponentials, because ptxas would move them past it.
        smem.ds_full[ds_turn.buffer].wait(ds_turn.parity ^ compute_first_p(steps.query(tile)));
        warpgroup::mma_wait(dk);
        release(smem.q_empty[last_q_turn.buffer]);
        issue_dq();
        compute_last_p(steps.query(tile));
        store_dq(step - 1);
      }
      compute_ds();
      issue_dk(q_turn);
      smem.ds_full[ds_turn.buffer].wait(ds_turn.parity);
      warpgroup::mma_wait(dv, dk);
      issue_dq();
      store_dq(steps.count() - 1);
    }
    write(maps);
  }

  /// The consumer's rows of K or V.
  __device__ auto rows_of(typename A::KTile &tile) const { return part<64, d>(tile, group_key); }

  /// Called by a whole warp after its products of the buffer's tile are complete.
  __device__ static void release(Barrier &empty) {
    if (lane_id() == 0)
      empty.arrive();
  }

  /// S^T = K Q^T.
  __device__ void issue_s() {
    smem.q_full[q_turn.buffer].wait(q_turn.parity);
    warpgroup::mma_ABt(s, rows_of(smem.k), smem.q[q_turn.buffer]);
  }

  /// P^T = exp(scale S^T - lse), for a part of the queries of a tile.
  template <int kQueries> __device__ void compute_p(int tile_query, int first) {
    auto &x = columns<kQueries>(s, first);
    typename RegTile<float, 16, kQueries>::RowVec lse;
    load(lse, smem.lse[q_turn.buffer], first);
    mul(x, x, p.scale * kLog2E);
    sub_col(x, x, lse);
    lower_fill(x, x, p.kv_len - steps.key - key);
    if (p.is_causal)
      make_causal_t(x, x, steps.key + key, tile_query + first);
    exp2(x, x);
  }

  /// The first queries of a tile. Returns 0, computed from the exponentials.
  __device__ uint32_t compute_first_p(int tile_query) {
    compute_p<A::first_queries>(tile_query, 0);
    return ladder::opaque_zero(columns<A::first_queries>(s, 0));
  }

  /// The last queries of the tile.
  __device__ void compute_last_p(int tile_query) {
    compute_p<A::last_queries>(tile_query, A::first_queries);
    // Here, because ptxas would move the exponentials past later waits:
    smem.d_o_full[turn.buffer].wait(turn.parity);
  }

  /// dP^T = V dO^T and dV += P^T dO. While dV is in flight: dS^T = P^T (dP^T - delta), in registers, and in
  /// shared memory for both consumers.
  __device__ void compute_ds() {
    const auto &d_o = smem.d_o[turn.buffer];
    copy(p_16, s);
    copy_apart(p_for_ds, p_16); // dV reads p_16 while dS is computed
    warpgroup::mma_ABt(s, rows_of(smem.v), d_o);
    warpgroup::mma_AB(dv, p_16, d_o, dv);
    warpgroup::mma_wait<1>(s);
    mul(s, s, kUnshift);
    sub_col(s, s, smem.delta[turn.buffer]);
    mul(s, s, p_for_ds);
    copy(ds_16, s);
    smem.ds_empty[ds_turn.buffer].wait(ds_turn.parity ^ 1);
    auto ds = part<A::queries, 16>(smem.ds[ds_turn.buffer], 0, key);
    store(ds, transposed(ds_16));
    fence_async_proxy(); // makes the stores of dS visible to wgmma
    __syncwarp();
    if (lane_id() == 0)
      smem.ds_full[ds_turn.buffer].arrive();
  }

  /// dK += dS^T Q.
  __device__ void issue_dk(Turn<kBuffers> q_turn) { warpgroup::mma_AB(dk, ds_16, smem.q[q_turn.buffer], dk); }

  /// dQ^T = K^T dS^T, with the dS of both consumers.
  __device__ void issue_dq() {
    warpgroup::mma_AtBt(dq, part<A::keys, 64>(smem.k, 0, 64 * warpgroup::index()), smem.ds[ds_turn.buffer]);
  }

  /// Stores the consumer's part of a step's dQ^T, after TMA has read that of the step before.
  __device__ void store_dq(int step) {
    const int consumer = warpgroup::index();
    smem.dq_empty[consumer].wait(step % 2 ^ 1);
    warpgroup::mma_wait(dq);
    release(smem.ds_empty[ds_turn.buffer]);
    ds_turn.advance();
    store(smem.dq[consumer][warpgroup::warp()], dq);
    fence_async_proxy(); // makes the stores of dQ^T visible to TMA
    __syncwarp();
    if (lane_id() == 0)
      smem.dq_full[consumer].arrive();
  }

  /// dK and dV are stored through the shared memory of K and V, once both consumers are done with these.
  __device__ void write(const typename A::Maps &maps) {
    auto &dk_smem = smem.k, &dv_smem = smem.v;
    RegTile<T, 16, d> out;
    consumers::sync(1);
    mul(dk, dk, p.scale);
    copy(out, dk);
    store(dk_smem, out, key);
    mul(dv, dv, kUnshift);
    copy(out, dv);
    store(dv_smem, out, key);
    fence_async_proxy();
    consumers::sync(1);
    if (threadIdx.x == 0) {
      tma::store_async(maps.dk, dk_smem, steps.key, steps.kv_head);
      tma::store_async(maps.dv, dv_smem, steps.key, steps.kv_head);
      tma::store_commit();
      tma::store_wait_read(); // the block must not end before TMA has read its shared memory
    }
  }
};

/// A warp's part of dQ^T among the sums of all (batch, query head), tiles and warps.
template <typename A> __device__ typename A::DqSums dq_sums_of(float *dq_sums, int64_t tile, int warp) {
  return {dq_sums + (tile * A::warps + warp) * A::DqSums::size};
}

/// A store warp, a single thread: issues the additions of its consumer's part of dQ, step by step.
template <typename A>
__device__ void add_dq(typename A::Shared &smem, const ladder::Steps<A::queries> &steps, int consumer,
                       float *dq_sums) {
  QueryTile tile = steps.first();
  for (int step = 0; step < steps.count(); step++, tile = steps.after(tile)) {
    smem.dq_full[consumer].wait(step % 2);
    const int first_warp = warpgroup::warps * consumer;
    tma::add_async(dq_sums_of<A>(dq_sums, steps.dq_tile(tile), first_warp), smem.dq[consumer]);
    tma::store_commit();
    tma::store_wait_read();
    smem.dq_empty[consumer].arrive();
  }
}

/// dQ = scale * sums, rounded; one block per tile. Each warp transposes its 16 columns through shared memory,
/// from where TMA stores the rows in bounds.
template <typename T, int d, typename A>
__global__ void __launch_bounds__(A::warps * 32)
    round_dq(const __grid_constant__ tma::TensorMap<typename A::QTile> dq_map, float scale, float *dq_sums) {
  __shared__ alignas(1024) typename A::QTile tile;
  const int64_t head = int64_t(blockIdx.z) * gridDim.y + blockIdx.y;
  const int warp = group<A::warps>::warp();
  RegTile<float, 16, A::queries> dq;
  RegTile<T, 16, A::queries> out;
  load(dq, dq_sums_of<A>(dq_sums, head * gridDim.x + blockIdx.x, warp));
  mul(dq, dq, scale);
  copy(out, dq);
  auto columns = part<A::queries, 16>(tile, 0, 16 * warp);
  store(columns, transposed(out));
  fence_async_proxy();
  __syncthreads();
  if (threadIdx.x == 0) {
    tma::store_async(dq_map, tile, blockIdx.x * A::queries, head);
    tma::store_commit();
    tma::store_wait_read(); // the block must not end before TMA has read its shared memory
  }
}

template <typename T, int d> void launch_head_dim(const AttentionBackwardProblem &p, cudaStream_t stream) {
  using A = Arrangement<T, d>;
  const int tiles = (p.q_len + A::queries - 1) / A::queries;
  RowStatistics statistics(p, kShift);
  statistics.padded_len = tiles * A::queries;
  const size_t rows = statistics.count(p);
  const ladder::Workspace<float> workspace((2 + d) * rows, stream, "b5d_80_queries: workspace");
  float *dq_sums = workspace.data() + 2 * rows;
  ladder::compute_row_statistics<T, d>(p, statistics, workspace.data(), stream);
  ladder::check(cudaMemsetAsync(dq_sums, 0, rows * d * sizeof(float), stream), "b5d_80_queries: workspace");

  constexpr auto kernel = differentiate<T, d, A>;
  constexpr int smem_bytes = sizeof(typename A::Shared);
  ladder::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem_bytes),
                "b5d_80_queries: shared memory");
  const typename A::Maps maps{
      .q = tma::tensor_map<typename A::QTile>(p.q, p.q_strides, p.q_len, p.heads, p.batch),
      .d_o = tma::tensor_map<typename A::QTile>(p.d_o, p.d_o_strides, p.q_len, p.heads, p.batch),
      .k = tma::tensor_map<typename A::KTile>(p.k, p.k_strides, p.kv_len, p.kv_heads, p.batch),
      .v = tma::tensor_map<typename A::KTile>(p.v, p.v_strides, p.kv_len, p.kv_heads, p.batch),
      .dk = tma::tensor_map<typename A::KTile>(p.dk, p.kv_len, p.batch * p.kv_heads),
      .dv = tma::tensor_map<typename A::KTile>(p.dv, p.kv_len, p.batch * p.kv_heads),
  };
  kernel<<<ladder::key_grid(p, A::keys), A::threads, smem_bytes, stream>>>(maps, p, statistics, dq_sums);
  ladder::check(cudaGetLastError(), "b5d_80_queries: launch");
  const dim3 dq_grid = ladder::launch_grid(tiles, p.heads, p.batch);
  round_dq<T, d, A><<<dq_grid, A::warps * 32, 0, stream>>>(
      tma::tensor_map<typename A::QTile>(p.dq, p.q_len, p.batch * p.heads), p.scale, dq_sums);
  ladder::check(cudaGetLastError(), "b5d_80_queries: launch");
}

} // namespace

void ladder::launch(const AttentionBackwardProblem &p, cudaStream_t stream) {
  require_alignment(p, 16);
  dispatch_16_bit(p, [&](auto element) {
    dispatch_head_dim<128>(p, [&](auto d) { launch_head_dim<decltype(element), d>(p, stream); });
  });
}
