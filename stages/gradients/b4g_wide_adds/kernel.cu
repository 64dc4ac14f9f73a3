// b4g_wide_adds: tiles in halves that overlap, and dQ is added 16 bytes per lane.
//
// P^T and dS^T are computed 64 queries at a time. dV of the first half is issued before the exponentials of
// the second half, and dS^T of the first half is computed under dP^T of the second. At d = 128 a tile has 64
// queries and stays whole. red.global.add.v4.f32, which sm_90 has, adds four values per lane, 512 bytes per
// instruction: four values of a lane are adjacent among the sums.
#include <cmath>

#include "ladder/backward_rows.h"
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
constexpr int kBuffers = 2;

/// The weights are 2^kShift * P, so that they are normal numbers in fp16 down to 2^-26. dP and delta are
/// scaled by the inverse.
constexpr int kShift = 12;
constexpr float kUnshift = 1.f / (1 << kShift);

/// A block's arrangement for elements T and head dimension d.
template <typename T, int d> struct Arrangement {
  // A producer warpgroup, consumer warpgroups of 64 keys each, and the queries of a tile. Per thread, dV and
  // dK take d registers, S^T and dP^T `queries` registers.
  static constexpr int consumers = 2, warps = 4 * consumers, keys = 64 * consumers;
  static constexpr int threads = 128 * (consumers + 1);
  static constexpr int producer_registers = 24, consumer_registers = 240; // 24 + 2 x 240 = 3 x 168
  static constexpr int queries = d == 128 ? 64 : 128, parts = queries / 64;

  using KTile = SharedTile<T, keys, d>;
  using QTile = SharedTile<T, queries, d>;
  struct Shared {
    Ring<KTile, 1> k, v;
    Ring<QTile, kBuffers> q, d_o;
    alignas(1024) SharedTile<T, keys, queries> ds[kBuffers]; // dS^T
    SharedVec<float, queries> lse[kBuffers], delta[kBuffers];
    Barrier ds_full[kBuffers];
  };
  struct Maps {
    tma::TensorMap<QTile> q, d_o;
    tma::TensorMap<KTile> k, v, dk, dv;
  };

  /// The consumers share a tile of dQ: each has 64 of 128 rows, or half of the columns of 64 rows.
  static constexpr int dq_cols = queries == 128 ? d : d / 2;
  using DqSums = GlobalFragments<16, dq_cols, 4>; // per warp
};

template <typename A>
__device__ void produce(typename A::Shared &smem, const typename A::Maps &maps,
                        const RowStatistics &statistics, const ladder::Steps<A::queries> &steps);
template <typename T, int d, typename A> struct Consumer;
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
    fence_barrier_init();
  }
  __syncthreads();

  if (warpgroup::index() == A::consumers) {
    decrease_registers<A::producer_registers>();
    if (warpgroup::warp() == 0 && elect_one())
      produce<A>(smem, maps, statistics, steps);
  } else {
    increase_registers<A::consumer_registers>();
    Consumer<T, d, A>{p, steps, smem, dq_sums}.run(maps);
  }
}

/// The producer, a single thread.
template <typename A>
__device__ void produce(typename A::Shared &smem, const typename A::Maps &maps,
                        const RowStatistics &statistics, const ladder::Steps<A::queries> &steps) {
  smem.k.load_async({}, maps.k, steps.key, steps.kv_head);
  smem.v.load_async({}, maps.v, steps.key, steps.kv_head);
  QueryTile tile = steps.first();
  Turn<kBuffers> loading;
  for (int step = 0; step < steps.count(); step++, tile = steps.after(tile), loading.advance()) {
    const int head = tile.head, query = steps.query(tile);
    smem.q.wait_empty(loading);
    smem.q.load_async(loading, smem.lse[loading.buffer], statistics.lse_of(head), query);
    smem.q.load_async(loading, maps.q, query, head);
    smem.d_o.wait_empty(loading);
    smem.d_o.load_async(loading, smem.delta[loading.buffer], statistics.delta_of(head), query);
    smem.d_o.load_async(loading, maps.d_o, query, head);
  }
}

/// A consumer: a warpgroup with 64 keys, and their gradients. All products except dQ are transposed (keys x
/// queries), so P^T and dS^T are already in the registers that the next products read as operand A.
template <typename T, int d, typename A> struct Consumer {
  using consumers = group<A::warps>;
  const AttentionBackwardProblem &p;
  const ladder::Steps<A::queries> &steps;
  typename A::Shared &smem;
  float *dq_sums;
  const int group_key = 64 * warpgroup::index(), key = group_key + 16 * warpgroup::warp(); // in the block
  const DqPart<d, A> dq_part;
  RegTile<float, 16, A::queries> s;
  RegTile<T, 16, A::queries> p_16, ds_16;
  RegTile<float, 16, d> dv, dk;
  RegTile<float, 16, A::dq_cols> dq;
  Turn<kBuffers> turn;

  __device__ void run(const typename A::Maps &maps) {
    zero(dv);
    zero(dk);
    smem.k.wait_full({});
    smem.v.wait_full({});
    if (steps.count() > 0) {
      QueryTile tile = steps.first();
      warpgroup::mma_ABt(s, rows_of(smem.k), smem.q.wait_full(turn));
      warpgroup::mma_wait(s);
      compute_p(steps.query(tile));
      warpgroup::mma_wait(dv);
      for (int step = 1; step < steps.count(); step++) {
        compute_ds();
        const auto last_tile = tile;
        const auto last_turn = turn;
        tile = steps.after(tile);
        turn.advance();
        // S^T of this step first: dQ and dK of the previous step run under its exponentials.
        warpgroup::mma_ABt(s, rows_of(smem.k), smem.q.wait_full(turn));
        warpgroup::mma_wait<1>(dv);
        smem.d_o.release(last_turn);
        issue_dq_and_dk(last_turn);
        warpgroup::mma_wait<2>(s);
        compute_p(steps.query(tile));
        warpgroup::mma_wait<A::parts>(dq);
        atomic_add(dq_part.sums(dq_sums, steps.dq_tile(last_tile)), dq);
        warpgroup::mma_wait(dk, dv);
        smem.q.release(last_turn);
      }
      compute_ds();
      warpgroup::mma_wait(dv);
      issue_dq_and_dk(turn);
      warpgroup::mma_wait(dq, dk);
      atomic_add(dq_part.sums(dq_sums, steps.dq_tile(tile)), dq);
    }
    write(maps);
  }

  /// The consumer's rows of K or V.
  __device__ auto rows_of(auto &ring) const { return part<64, d>(ring.tiles[0][0], group_key); }

  __device__ auto part_of_d_o(int query) const { return part<64, d>(smem.d_o.tiles[turn.buffer][0], query); }

  /// P^T = exp(scale S^T - lse), for the queries from `tile_query` on of a head. Issues dV of each part
  /// except the last.
  __device__ void compute_p(int tile_query) {
#pragma unroll
    for (int query = 0; query < A::queries; query += 64) {
      auto &x = columns<64>(s, query);
      mul(x, x, p.scale * kLog2E);
      sub_col(x, x, smem.lse[turn.buffer], query);
      lower_fill(x, x, p.kv_len - steps.key - key);
      if (p.is_causal)
        make_causal_t(x, x, steps.key + key, tile_query + query);
      exp2(x, x);
      if (query == 0)
        smem.d_o.wait_full(turn); // here, so that ptxas does not move the exponentials past later waits
      if (query + 64 < A::queries)
        issue_dv(query);
    }
  }

  /// dV += P^T dO, for 64 queries.
  __device__ void issue_dv(int query) {
    copy(columns<64>(p_16, query), columns<64>(s, query));
    warpgroup::mma_AB(dv, columns<64>(p_16, query), part_of_d_o(query), dv);
  }

  /// dP^T = V dO^T, dS^T = P^T (dP^T - delta), in registers and for both consumers in shared memory. Issues
  /// dV of the last part.
  __device__ void compute_ds() {
    RegTile<float, 16, A::queries> dp;
#pragma unroll
    for (int query = 0; query < A::queries; query += 64)
      warpgroup::mma_ABt(columns<64>(dp, query), rows_of(smem.v), part_of_d_o(query));
#pragma unroll
    for (int query = 0; query < A::queries; query += 64) {
      auto &x = columns<64>(dp, query);
      warpgroup::mma_wait<A::parts - 1>(x); // with two parts, all except the product issued last
      mul(x, x, kUnshift);
      sub_col(x, x, smem.delta[turn.buffer], query);
      mul(x, x, columns<64>(s, query));
      copy(columns<64>(ds_16, query), x);
      auto ds_smem = part<16, 64>(smem.ds[turn.buffer], key, query);
      store(ds_smem, columns<64>(ds_16, query));
      if (query == 0)
        issue_dv(A::queries - 64);
    }
    fence_async_proxy(); // makes the stores of dS^T visible to wgmma
    __syncwarp();
    if (lane_id() == 0)
      smem.ds_full[turn.buffer].arrive();
  }

  /// dQ = dS K, with the dS^T of both consumers, and dK += dS^T Q.
  __device__ void issue_dq_and_dk(Turn<kBuffers> turn) {
    smem.ds_full[turn.buffer].wait(turn.parity);
    warpgroup::mma_AtB(dq, part<A::keys, 64>(smem.ds[turn.buffer], 0, dq_part.row),
                       part<A::keys, A::dq_cols>(smem.k.tiles[0][0], 0, dq_part.col));
    warpgroup::mma_AB(dk, ds_16, smem.q.tiles[turn.buffer][0], dk);
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
  int row = A::dq_cols == d ? 64 * warpgroup::index() : 0,
      col = A::dq_cols == d ? 0 : A::dq_cols * warpgroup::index();

  /// The calling warp's place among the sums of all (batch, query head), tiles and warps.
  __device__ static typename A::DqSums sums(float *dq_sums, int64_t tile) {
    return {dq_sums + (tile * A::warps + group<A::warps>::warp()) * A::DqSums::size};
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
  const ladder::Workspace<float> workspace((2 + d) * rows, stream, "b4g_wide_adds: workspace");
  float *dq_sums = workspace.data() + 2 * rows;
  ladder::compute_row_statistics<T, d>(p, statistics, workspace.data(), stream);
  ladder::check(cudaMemsetAsync(dq_sums, 0, rows * d * sizeof(float), stream), "b4g_wide_adds: workspace");

  constexpr auto kernel = differentiate<T, d, A>;
  constexpr int smem_bytes = sizeof(typename A::Shared);
  ladder::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem_bytes),
                "b4g_wide_adds: shared memory");
  const typename A::Maps maps{
      .q = tma::tensor_map<typename A::QTile>(p.q, p.q_strides, p.q_len, p.heads, p.batch),
      .d_o = tma::tensor_map<typename A::QTile>(p.d_o, p.d_o_strides, p.q_len, p.heads, p.batch),
      .k = tma::tensor_map<typename A::KTile>(p.k, p.k_strides, p.kv_len, p.kv_heads, p.batch),
      .v = tma::tensor_map<typename A::KTile>(p.v, p.v_strides, p.kv_len, p.kv_heads, p.batch),
      .dk = tma::tensor_map<typename A::KTile>(p.dk, p.kv_len, p.batch * p.kv_heads),
      .dv = tma::tensor_map<typename A::KTile>(p.dv, p.kv_len, p.batch * p.kv_heads),
  };
  kernel<<<ladder::key_grid(p, A::keys), A::threads, smem_bytes, stream>>>(maps, p, statistics, dq_sums);
  ladder::check(cudaGetLastError(), "b4g_wide_adds: launch");
  const dim3 dq_grid = ladder::launch_grid((p.q_len + A::queries - 1) / A::queries, p.heads, p.batch);
  round_dq<T, d, A><<<dq_grid, A::warps * 32, 0, stream>>>(p, dq_sums);
  ladder::check(cudaGetLastError(), "b4g_wide_adds: launch");
}

} // namespace

void ladder::launch(const AttentionBackwardProblem &p, cudaStream_t stream) {
  require_alignment(p, 16);
  dispatch_16_bit(p, [&](auto element) {
    dispatch_head_dim<32, 64, 128>(p, [&](auto d) { launch_head_dim<decltype(element), d>(p, stream); });
  });
}
