// b5b_store_warps: store warps issue the addition of dQ by TMA.
//
// A consumer stores its part of dQ to shared memory and continues with dP. Its store warp, in the producer's
// warpgroup, issues the addition (cp.reduce.async.bulk) and waits until the buffer has been read.
#include <cmath>

#include "ladder/backward_rows.h"
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
constexpr int kBuffers = 2, kQBuffers = 3;

/// The weights are 2^kShift * P, so that they are normal numbers in fp16 down to 2^-26. dP and delta are
/// scaled by the inverse.
constexpr int kShift = 12;
constexpr float kUnshift = 1.f / (1 << kShift);

/// A block's arrangement for elements T and head dimension d.
template <typename T, int d> struct Arrangement {
  // A producer warpgroup, consumer warpgroups of 64 keys each, and the queries of a tile. Per thread, dV and
  // dK take d registers, S^T and then dP^T `queries` / 2 registers.
  static constexpr int consumers = 2, warps = 4 * consumers, keys = 64 * consumers;
  static constexpr int threads = 128 * (consumers + 1);
  static constexpr int producer_registers = 24, consumer_registers = 240; // 24 + 2 x 240 = 3 x 168
  static constexpr int queries = 64;

  /// The consumers share a tile of dQ: each has half of its columns.
  static constexpr int dq_cols = d / consumers;
  using DqSums = GlobalFragments<16, dq_cols, 4>; // per warp

  using KTile = SharedTile<T, keys, d>;
  using QTile = SharedTile<T, queries, d>;
  struct Shared {
    Ring<KTile, 1> k, v;
    Ring<QTile, kQBuffers> q;
    Ring<QTile, kBuffers> d_o;
    alignas(1024) SharedTile<T, keys, queries> ds[kBuffers]; // dS^T
    SharedVec<float, queries> lse[kQBuffers], delta[kBuffers];
    Barrier ds_full[kBuffers];
    SharedFragments<16, dq_cols> dq[consumers][warpgroup::warps];
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
template <int d, typename A>
__device__ void add_dq(typename A::Shared &smem, const ladder::Steps<A::queries> &steps, int consumer,
                       float *dq_sums);
template <int d, typename A> struct DqPart;

template <typename T, int d, typename A>
__global__ void __launch_bounds__(A::threads, 1)
    differentiate(const __grid_constant__ typename A::Maps maps,
                  const __grid_constant__ AttentionBackwardProblem p,
                  const __grid_constant__ RowStatistics statistics, float *dq_sums) {
  const ladder::Steps<A::queries> steps(p, ladder::block_kv_head(), blockIdx.y * A::keys);

  extern __shared__ __align__(1024) unsigned char bytes[];
  auto &smem = *reinterpret_cast<typename A::Shared *>(bytes);
  if (threadIdx.x == 0) {
    smem.k.init(1);
    smem.v.init(1);
    smem.q.init(A::warps);
    smem.d_o.init(A::warps);
    for (Barrier &full : smem.ds_full)
      full.init(A::warps);
    for (int consumer = 0; consumer < A::consumers; consumer++) {
      smem.dq_full[consumer].init(warpgroup::warps);
      smem.dq_empty[consumer].init(1);
    }
    fence_barrier_init();
  }
  __syncthreads();

  if (warpgroup::index() == A::consumers) {
    decrease_registers<A::producer_registers>();
    const int warp = warpgroup::warp();
    if (warp == 0 && elect_one())
      produce<A>(smem, maps, statistics, steps);
    if (0 < warp && warp <= A::consumers && elect_one())
      add_dq<d, A>(smem, steps, warp - 1, dq_sums);
  } else {
    increase_registers<A::consumer_registers>();
    Consumer<T, d, A>{p, steps, smem}.run(maps);
  }
}

/// The producer, a single thread.
template <typename A>
__device__ void produce(typename A::Shared &smem, const typename A::Maps &maps,
                        const RowStatistics &statistics, const ladder::Steps<A::queries> &steps) {
  smem.k.load_async({}, maps.k, steps.key, steps.kv_head);
  smem.v.load_async({}, maps.v, steps.key, steps.kv_head);
  QueryTile tile = steps.first();
  Turn<kQBuffers> loading_q;
  Turn<kBuffers> loading;
  for (int step = 0; step < steps.count(); step++, tile = steps.after(tile)) {
    const int head = tile.head, query = steps.query(tile);
    smem.q.wait_empty(loading_q);
    smem.q.load_async(loading_q, smem.lse[loading_q.buffer], statistics.lse_of(head), query);
    smem.q.load_async(loading_q, maps.q, query, head);
    smem.d_o.wait_empty(loading);
    smem.d_o.load_async(loading, smem.delta[loading.buffer], statistics.delta_of(head), query);
    smem.d_o.load_async(loading, maps.d_o, query, head);
    loading_q.advance();
    loading.advance();
  }
}

/// A consumer: a warpgroup with 64 keys, and their gradients. All products except dQ are transposed (keys x
/// queries), so P^T and dS^T are already in the registers that the next products read as operand A.
template <typename T, int d, typename A> struct Consumer {
  using consumers = group<A::warps>;
  const AttentionBackwardProblem &p;
  const ladder::Steps<A::queries> &steps;
  typename A::Shared &smem;
  const int group_key = 64 * warpgroup::index(), key = group_key + 16 * warpgroup::warp(); // in the block
  const DqPart<d, A> dq_part;
  RegTile<float, 16, A::queries> s; // S^T, then dP^T of the same tile
  RegTile<T, 16, A::queries> p_16, p_for_ds, ds_16;
  RegTile<float, 16, d> dv, dk;
  RegTile<float, 16, A::dq_cols> dq;
  Turn<kQBuffers> q_turn;
  Turn<kBuffers> turn; // of dO and dS

  __device__ void run(const typename A::Maps &maps) {
    zero(dv);
    zero(dk);
    smem.k.wait_full({});
    smem.v.wait_full({});
    if (steps.count() > 0) {
      QueryTile tile = steps.first();
      warpgroup::mma_ABt(s, rows_of(smem.k), smem.q.wait_full(q_turn));
      warpgroup::mma_wait(s);
      compute_p(steps.query(tile));
      for (int step = 1; step < steps.count(); step++) {
        compute_ds();
        const auto last_q_turn = q_turn;
        const auto last_turn = turn;
        tile = steps.after(tile);
        q_turn.advance();
        turn.advance();
        // S^T of this step first: dQ and dK of the previous step run under its exponentials.
        warpgroup::mma_ABt(s, rows_of(smem.k), smem.q.wait_full(q_turn));
        warpgroup::mma_wait<1>(dv);
        smem.d_o.release(last_turn);
        issue_dq_and_dk(last_turn, last_q_turn);
        warpgroup::mma_wait<2>(s);
        compute_p(steps.query(tile));
        store_dq(step - 1);
        warpgroup::mma_wait(dk);
        smem.q.release(last_q_turn);
      }
      compute_ds();
      warpgroup::mma_wait(dv);
      issue_dq_and_dk(turn, q_turn);
      store_dq(steps.count() - 1);
      warpgroup::mma_wait(dk);
    }
    write(maps);
  }

  /// The consumer's rows of K or V.
  __device__ auto rows_of(auto &ring) const { return part<64, d>(ring.tiles[0][0], group_key); }

  /// P^T = exp(scale S^T - lse), for the queries from `tile_query` on of a head.
  __device__ void compute_p(int tile_query) {
    mul(s, s, p.scale * kLog2E);
    sub_col(s, s, smem.lse[q_turn.buffer]);
    lower_fill(s, s, p.kv_len - steps.key - key);
    if (p.is_causal)
      make_causal_t(s, s, steps.key + key, tile_query);
    exp2(s, s);
    smem.d_o.wait_full(turn); // here, so that ptxas does not move the exponentials past later waits
  }

  /// dP^T = V dO^T and dV += P^T dO. While dV is in flight: dS^T = P^T (dP^T - delta), in registers, and in
  /// shared memory for both consumers.
  __device__ void compute_ds() {
    const auto &d_o = smem.d_o.tiles[turn.buffer][0];
    copy(p_16, s);
    copy_apart(p_for_ds, p_16); // dV reads p_16 while dS is computed
    warpgroup::mma_ABt(s, rows_of(smem.v), d_o);
    warpgroup::mma_AB(dv, p_16, d_o, dv);
    warpgroup::mma_wait<1>(s);
    mul(s, s, kUnshift);
    sub_col(s, s, smem.delta[turn.buffer]);
    mul(s, s, p_for_ds);
    copy(ds_16, s);
    store(smem.ds[turn.buffer], ds_16, key);
    fence_async_proxy(); // makes the stores of dS^T visible to wgmma
    __syncwarp();
    if (lane_id() == 0)
      smem.ds_full[turn.buffer].arrive();
  }

  /// dQ = dS K, with the dS^T of both consumers, and dK += dS^T Q.
  __device__ void issue_dq_and_dk(Turn<kBuffers> turn, Turn<kQBuffers> q_turn) {
    smem.ds_full[turn.buffer].wait(turn.parity);
    warpgroup::mma_AtB(dq, smem.ds[turn.buffer],
                       part<A::keys, A::dq_cols>(smem.k.tiles[0][0], 0, dq_part.col));
    warpgroup::mma_AB(dk, ds_16, smem.q.tiles[q_turn.buffer][0], dk);
  }

  /// Stores the consumer's part of a step's dQ, after TMA has read that of the step before.
  __device__ void store_dq(int step) {
    const int consumer = warpgroup::index();
    smem.dq_empty[consumer].wait(step % 2 ^ 1);
    warpgroup::mma_wait<1>(dq); // dK is in flight
    store(smem.dq[consumer][warpgroup::warp()], dq);
    fence_async_proxy(); // makes the stores of dQ visible to TMA
    __syncwarp();
    if (lane_id() == 0)
      smem.dq_full[consumer].arrive();
  }

  /// dK and dV are stored through the shared memory of K and V, once both consumers are done with these.
  __device__ void write(const typename A::Maps &maps) {
    auto &dk_smem = smem.k.tiles[0][0], &dv_smem = smem.v.tiles[0][0];
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

/// The calling consumer's part of a tile of dQ.
template <int d, typename A> struct DqPart {
  int col = A::dq_cols * warpgroup::index();

  /// A warp's place among the sums of all (batch, query head), tiles and warps.
  __device__ static typename A::DqSums sums(float *dq_sums, int64_t tile, int warp) {
    return {dq_sums + (tile * A::warps + warp) * A::DqSums::size};
  }
};

/// A store warp, a single thread: issues the additions of its consumer's part of dQ, step by step.
template <int d, typename A>
__device__ void add_dq(typename A::Shared &smem, const ladder::Steps<A::queries> &steps, int consumer,
                       float *dq_sums) {
  QueryTile tile = steps.first();
  for (int step = 0; step < steps.count(); step++, tile = steps.after(tile)) {
    smem.dq_full[consumer].wait(step % 2);
    const int first_warp = warpgroup::warps * consumer;
    tma::add_async(DqPart<d, A>::sums(dq_sums, steps.dq_tile(tile), first_warp), smem.dq[consumer]);
    tma::store_commit();
    tma::store_wait_read();
    smem.dq_empty[consumer].arrive();
  }
}

/// dQ = scale * sums, rounded; one block per tile.
template <typename T, int d, typename A>
__global__ void __launch_bounds__(A::warps * 32)
    round_dq(const __grid_constant__ AttentionBackwardProblem p, float *dq_sums) {
  const int64_t query_head = int64_t(blockIdx.z) * p.heads + blockIdx.y;
  const DqPart<d, A> mine;
  RegTile<float, 16, A::dq_cols> dq;
  RegTile<T, 16, A::dq_cols> out;
  load(dq, mine.sums(dq_sums, query_head * gridDim.x + blockIdx.x, group<A::warps>::warp()));
  mul(dq, dq, p.scale);
  copy(out, dq);
  const int row = blockIdx.x * A::queries + 16 * warpgroup::warp();
  store(ladder::BackwardHead<T, d>{p, query_head, 0}.dq(), out, row, mine.col);
}

template <typename T, int d> void launch_head_dim(const AttentionBackwardProblem &p, cudaStream_t stream) {
  using A = Arrangement<T, d>;
  RowStatistics statistics(p, kShift);
  const size_t rows = statistics.count(p);
  const ladder::Workspace<float> workspace((2 + d) * rows, stream, "b5b_store_warps: workspace");
  float *dq_sums = workspace.data() + 2 * rows;
  ladder::compute_row_statistics<T, d>(p, statistics, workspace.data(), stream);
  ladder::check(cudaMemsetAsync(dq_sums, 0, rows * d * sizeof(float), stream), "b5b_store_warps: workspace");

  constexpr auto kernel = differentiate<T, d, A>;
  constexpr int smem_bytes = sizeof(typename A::Shared);
  ladder::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem_bytes),
                "b5b_store_warps: shared memory");
  const typename A::Maps maps{
      .q = tma::tensor_map<typename A::QTile>(p.q, p.q_strides, p.q_len, p.heads, p.batch),
      .d_o = tma::tensor_map<typename A::QTile>(p.d_o, p.d_o_strides, p.q_len, p.heads, p.batch),
      .k = tma::tensor_map<typename A::KTile>(p.k, p.k_strides, p.kv_len, p.kv_heads, p.batch),
      .v = tma::tensor_map<typename A::KTile>(p.v, p.v_strides, p.kv_len, p.kv_heads, p.batch),
      .dk = tma::tensor_map<typename A::KTile>(p.dk, p.kv_len, p.batch * p.kv_heads),
      .dv = tma::tensor_map<typename A::KTile>(p.dv, p.kv_len, p.batch * p.kv_heads),
  };
  kernel<<<ladder::key_grid(p, A::keys), A::threads, smem_bytes, stream>>>(maps, p, statistics, dq_sums);
  ladder::check(cudaGetLastError(), "b5b_store_warps: launch");
  const dim3 dq_grid = ladder::launch_grid((p.q_len + A::queries - 1) / A::queries, p.heads, p.batch);
  round_dq<T, d, A><<<dq_grid, A::warps * 32, 0, stream>>>(p, dq_sums);
  ladder::check(cudaGetLastError(), "b5b_store_warps: launch");
}

} // namespace

void ladder::launch(const AttentionBackwardProblem &p, cudaStream_t stream) {
  require_alignment(p, 16);
  dispatch_16_bit(p, [&](auto element) {
    dispatch_head_dim<128>(p, [&](auto d) { launch_head_dim<decltype(element), d>(p, stream); });
  });
}
