// h8_wgmma_gradients: h8a_silu_gradients with the masks of h2.
//
// As in h6_wgmma the producer warp reads the mask: it loads only tiles of queries that see one of the block's
// keys, and marks for which consumers the mask cuts a tile. The consumers read the mask again in these tiles.
// The blocks of up to 16 heads run at a time, so the L2 cache keeps what they share.
#include <numeric>

#include "ladder/dispatch.h"
#include "ladder/hstu_gradients.h"
#include "ladder/opaque_zero.h"
#include "ladder/workspace.h"
#include "tiles/fragments_shared.h"
#include "tiles/ring.h"
#include "tiles/roles.h"
#include "tiles/tensor_map.h"
#include "tiles/warpgroup.h"

namespace {

using ladder::HstuBackwardProblem;
using ladder::HstuKeys;
using ladder::HstuProblem;
using namespace tiles;

constexpr int kBuffers = 2; // of Q, dO and dS

/// Half a hidden logit: there silu and its slope are 0.
constexpr float kHidden = -128.f;

/// At most so many heads of a sequence run at a time.
constexpr int kHeads = 16;

/// A step of a block, written by the producer: a tile of queries that sees one of the block's keys.
struct alignas(8) Visit {
  int tile;     ///< -1 if no tile sees one
  uint16_t cut; ///< bit c: whether a query of the tile does not see a key of consumer c
  uint16_t last;

  __device__ bool is_tile() const { return tile >= 0; }
  __device__ bool is_cut_for(int consumer) const { return cut >> consumer & 1; }
};

/// A block's arrangement for elements T and head dimension d.
template <typename T, int d> struct Arrangement {
  static constexpr bool intervals = false; // whether intervals define the mask
  // A producer warpgroup, consumer warpgroups of 64 keys each, and the queries of a tile. Registers per
  // thread at d = 128:
  //   dV and dK                                     128
  //   under dS:            dP^T, P^T, slope^T       32 + 16 + 16
  //   under dV and dK:     S^T, P^T, dS^T           32 + 16 + 16
  //   under the sigmoids:  S^T or (P^T, slope^T)    32
  //                        dQ^T                     32
  // ptxas does not place P^T and the slopes in the registers of S^T, so with 80 queries it spills.
  static constexpr int consumers = 2, warps = 4 * consumers, keys = 64 * consumers;
  static constexpr int threads = 128 * (consumers + 1);
  static constexpr int producer_registers = 24, consumer_registers = 240; // 24 + 2 x 240 = 3 x 168
  /// Of a tile's queries, the silu of the first ones is computed before dQ of the previous step is issued.
  static constexpr int queries = d == 128 ? 64 : 128, first_queries = 32,
                       last_queries = queries - first_queries;

  /// The consumers share a tile of dQ^T: each has 64 of 128 rows, or half of the columns of 64 rows.
  static constexpr int dq_cols = d == 128 ? queries : queries / 2;
  using DqSums = GlobalFragments<16, dq_cols, 4>; // per warp
  __device__ static int dq_row(int consumer) { return d == 128 ? 64 * consumer : 0; }
  __device__ static int dq_col(int consumer) { return d == 128 ? 0 : dq_cols * consumer; }

  using KTile = SharedTile<T, keys, d>;
  using QTile = SharedTile<T, queries, d>;
  /// The tiles take 192 KB. Visits and barriers follow them. The first visit is complete with K and V.
  struct Shared {
    alignas(1024) KTile k, v;
    alignas(1024) QTile q[kBuffers], d_o[kBuffers];
    alignas(1024) SharedTile<T, queries, keys> ds[kBuffers];
    SharedFragments<16, dq_cols> dq[consumers][warpgroup::warps]; // dQ^T
    /// Of four steps: the store warps may be two steps behind the loads of Q.
    Visit visits[2 * kBuffers];
    Barrier kv_full, q_full[kBuffers], q_empty[kBuffers], d_o_full[kBuffers], d_o_empty[kBuffers];
    Barrier ds_full[kBuffers], ds_empty[kBuffers]; // a wait for ds_empty always succeeds at once (b5e)
    Barrier dq_full[consumers], dq_empty[consumers];

    __device__ Visit &visit(Turn<kBuffers> turn) { return visits[kBuffers * turn.parity + turn.buffer]; }
  };
  struct Maps {
    tma::JaggedMap<QTile> q, d_o;
    tma::JaggedMap<KTile> k, v, dk, dv;
  };
};

/// The arrangement for masks that intervals define.
template <typename A> struct WithIntervals : A {
  static constexpr bool intervals = true;
};

/// A block's head, sequence and key tile. Up to kHeads heads run at a time. The first
/// key tiles, which have the most steps under a causal mask, start first.
struct BlockOfKeys {
  int key_tiles;

  __device__ uint3 operator()() const {
    const uint3 block = block_index();
    const unsigned section = block.y / key_tiles;
    return {section * gridDim.x + block.x, block.z, block.y - section * key_tiles};
  }
};

template <typename T, int d> using Sequence = ladder::SequenceGradients<T, d, BlockOfKeys>;
template <typename T, int d, typename A> struct Producer;
template <typename T, int d, typename A> struct Consumer;
template <typename T, int d, typename A>
__device__ void add_dq(typename A::Shared &smem, const Sequence<T, d> &sequence, int consumer,
                       float *dq_sums);

template <typename T, int d, typename A>
__global__ void __launch_bounds__(A::threads, 1)
    differentiate(const __grid_constant__ typename A::Maps maps,
                  const __grid_constant__ HstuBackwardProblem problem, const BlockOfKeys where,
                  float *dq_sums, uint32_t nothing) {
  const Sequence<T, d> sequence(problem, where);
  if (int(where().z) * A::keys >= sequence.k_len)
    return;

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
    if (warp == 0)
      Producer<T, d, A>{smem, maps, sequence}.run();
    else if (warp <= A::consumers && elect_one())
      add_dq<T, d, A>(smem, sequence, warp - 1, dq_sums);
  } else {
    increase_registers<A::consumer_registers>();
    Consumer<T, d, A>{problem, where, nothing, smem}.run(maps);
  }
}

/// The producer, a warp: finds the tiles of queries that see one of the block's keys, from the last one down,
/// and loads them.
template <typename T, int d, typename A> struct Producer {
  typename A::Shared &smem;
  const typename A::Maps &maps;
  const Sequence<T, d> &sequence;
  const ladder::HstuMask<A::intervals> mask = sequence.template mask<A::intervals>();
  const int block_key = sequence.where().z * A::keys;
  const bool issues = elect_one();

  __device__ void run() {
    const int head = sequence.where().x;
    const tma::Segment q{sequence.q_begin, sequence.q_len, head};
    if (issues) {
      const tma::Segment kv{sequence.k_begin, sequence.k_len, head};
      smem.kv_full.expect(2 * sizeof(smem.k));
      tma::load_async(smem.k, maps.k, block_key, kv, smem.kv_full);
      tma::load_async(smem.v, maps.v, block_key, kv, smem.kv_full);
    }
    Visit visit = seen_up_to((sequence.q_len + A::queries - 1) / A::queries - 1), next;
    Turn<kBuffers> turn;
    for (bool is_first = true;; is_first = false, visit = next, turn.advance()) {
      next = seen_up_to(visit.tile - 1);
      visit.last = !next.is_tile();
      smem.q_empty[turn.buffer].wait(turn.parity ^ 1);
      if (issues) {
        smem.visit(turn) = visit;
        if (is_first)
          smem.kv_full.arrive();
        if (visit.is_tile())
          load_async(smem.q[turn.buffer], maps.q, visit.tile, q, smem.q_full[turn.buffer]);
      }
      if (!visit.is_tile())
        return;
      smem.d_o_empty[turn.buffer].wait(turn.parity ^ 1);
      if (issues)
        load_async(smem.d_o[turn.buffer], maps.d_o, visit.tile, q, smem.d_o_full[turn.buffer]);
      if (visit.last)
        return;
      __syncwarp(); // a lane two phases of a barrier behind would wait for the wrong one
    }
  }

  __device__ static void load_async(typename A::QTile &dst, const tma::JaggedMap<typename A::QTile> &map,
                                    int tile, const tma::Segment &segment, Barrier &full) {
    full.arrive_and_expect(sizeof(dst));
    tma::load_async(dst, map, tile * A::queries, segment, full);
  }

  /// The last tile up to `tile` that sees one of the block's keys. Called by the whole warp.
  __device__ Visit seen_up_to(int tile) const {
    for (; tile >= 0; tile--) {
      const int first = tile * A::queries + sequence.shift(),
                last = min(first + A::queries, sequence.k_len) - 1;
      if constexpr (A::intervals) {
        if (ladder::warp_sees_any(mask, first, last, block_key, min(block_key + A::keys, sequence.k_len)))
          return {tile, (1 << A::consumers) - 1, 0}; // bounds are data: any tile may be cut
      } else {
        const HstuKeys rows(mask, first, last);
        if (!rows.any_in(block_key, A::keys))
          continue;
        Visit visit{tile, 0, 0};
#pragma unroll
        for (int consumer = 0; consumer < A::consumers; consumer++) {
          const int key = block_key + 64 * consumer, keys = min(64, sequence.k_len - key);
          visit.cut |= (keys > 0 && !rows.all_in(key, keys)) << consumer;
        }
        return visit;
      }
    }
    return {-1, 0, 0};
  }
};

/// A consumer: a warpgroup with 64 keys, and their gradients. S and dP are transposed (keys x queries), so
/// P^T and dS^T are already in the registers that the next products read as operand A. dS is twice its value.
template <typename T, int d, typename A> struct Consumer {
  using consumers = group<A::warps>;
  const HstuBackwardProblem &problem;
  const BlockOfKeys &where;
  const uint32_t nothing; ///< 0, which the compiler cannot know
  typename A::Shared &smem;
  const int group_key = 64 * warpgroup::index(), key = group_key + 16 * warpgroup::warp(); // in the block
  RegTile<float, 16, A::queries> s; // S^T, then dP^T of the same tile
  RegTile<T, 16, A::queries> p_16, ds_16;
  RegTile<__half, 16, A::queries> slope;
  RegTile<float, 16, d> dv, dk;
  RegTile<float, 16, A::dq_cols> dq; // dQ^T
  Turn<kBuffers> q_turn, turn;       // of Q and of dO: equal, but b5e is slower with one variable
  Turn<kBuffers> ds_turn;            // of the last dS that was stored, until dQ is complete

  __device__ void run(const typename A::Maps &maps) {
    zero(dv);
    zero(dk);
    smem.kv_full.wait(0);
    if (smem.visits[0].is_tile()) {
      issue_s();
      warpgroup::mma_wait(s);
      compute_first_p();
      compute_last_p();
      int step = 1;
      for (; !smem.visit(q_turn).last; step++) {
        compute_ds();
        const auto last_q_turn = q_turn;
        const auto last_turn = turn;
        q_turn.advance();
        turn.advance();
        // S^T of this step first: dK and dQ of the previous step run under its sigmoids.
        issue_s();
        issue_dk(last_q_turn);
        warpgroup::mma_wait<2>(dv);
        release(smem.d_o_empty[last_turn.buffer]);
        warpgroup::mma_wait<1>(s);
        // The wait depends on the sigmoids, because ptxas would move them past it.
        smem.ds_full[ds_turn.buffer].wait(ds_turn.parity ^ compute_first_p());
        warpgroup::mma_wait(dk);
        release(smem.q_empty[last_q_turn.buffer]);
        issue_dq();
        compute_last_p();
        store_dq(step - 1);
      }
      compute_ds();
      issue_dk(q_turn);
      smem.ds_full[ds_turn.buffer].wait(ds_turn.parity);
      warpgroup::mma_wait(dv, dk);
      issue_dq();
      store_dq(step - 1);
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

  /// x = kHidden where a query of the tile, from `query` on, does not see a key. The mask is read again here,
  /// in the few tiles that it cuts: the main loop needs the registers.
  template <RegisterTile X> __device__ void hide(X &x, int query) {
    const Sequence<T, d> sequence(problem, where);
    const auto mask = sequence.template mask<A::intervals>();
    const int first = query + sequence.shift(), last = sequence.k_len - 1,
              first_key = int(where().z) * A::keys + key;
    // Most often the mask cuts only the ends of rows: the diagonal, and a window.
    const bool only_ends = !A::intervals && first >= mask.contexts &&
                           (first_key + 16 <= mask.history || first + X::cols <= mask.history);
    if (only_ends) {
      if (mask.right >= 0)
        triu(x, x, first_key - first - mask.right, kHidden);
      if (mask.left >= 0)
        tril(x, x, first_key - first + mask.left, kHidden);
    } else {
      keep_bits_t(x, x, [&](int c) { return mask.row_bits(min(first + c, last), first_key, 16); }, kHidden);
    }
  }

  /// P^T = silu(alpha S^T) and its slope, for the queries of the tile from `query` on.
  template <int kQueries> __device__ void compute_p(int query) {
    auto &x = columns<kQueries>(s, query);
    mul(x, x, 0.5f * problem.forward.alpha);
    const Visit visit = smem.visit(q_turn);
    if (visit.is_cut_for(warpgroup::index()))
      hide(x, visit.tile * A::queries + query);
    ladder::silu_and_double_slope(columns<kQueries>(p_16, query), columns<kQueries>(slope, query), x);
  }

  /// The first queries of a tile. Returns 0, computed from P and the slopes.
  __device__ uint32_t compute_first_p() {
    compute_p<A::first_queries>(0);
    return ladder::opaque_zero(nothing, columns<A::first_queries>(p_16, 0),
                               columns<A::first_queries>(slope, 0));
  }

  /// The last queries of the tile.
  __device__ void compute_last_p() {
    compute_p<A::last_queries>(A::first_queries);
    // Here, because ptxas would move the sigmoids past later waits:
    smem.d_o_full[turn.buffer].wait(turn.parity);
  }

  /// dP^T = V dO^T and dV += P^T dO. While dV is in flight: dS^T = slope^T dP^T, in registers, and in shared
  /// memory for both consumers.
  __device__ void compute_ds() {
    const auto &d_o = smem.d_o[turn.buffer];
    warpgroup::mma_ABt(s, rows_of(smem.v), d_o);
    warpgroup::mma_AB(dv, p_16, d_o, dv);
    warpgroup::mma_wait<1>(s);
    mul(s, s, slope);
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
    const int consumer = warpgroup::index();
    warpgroup::mma_AtBt(dq, part<A::keys, 64>(smem.k, 0, A::dq_row(consumer)),
                        part<A::dq_cols, A::keys>(smem.ds[ds_turn.buffer], A::dq_col(consumer)));
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

  /// dK and dV are stored through the shared memory of K and V, once both consumers are done with these. The
  /// factors are applied last: with 1 / length some values of P and dS would be subnormal in fp16.
  __device__ void write(const typename A::Maps &maps) {
    auto &dk_smem = smem.k, &dv_smem = smem.v;
    const HstuProblem &p = problem.forward;
    RegTile<T, 16, d> out;
    consumers::sync(1);
    mul(dk, dk, 0.5f * p.alpha * p.inv_length);
    copy(out, dk);
    store(dk_smem, out, key);
    mul(dv, dv, p.inv_length);
    copy(out, dv);
    store(dv_smem, out, key);
    fence_async_proxy();
    consumers::sync(1);
    if (threadIdx.x == 0) {
      const Sequence<T, d> sequence(problem, where);
      const uint3 block = where();
      const tma::Segment kv{sequence.k_begin, sequence.k_len, int(block.x)};
      tma::store_async(maps.dk, dk_smem, block.z * A::keys, kv);
      tma::store_async(maps.dv, dv_smem, block.z * A::keys, kv);
      tma::store_commit();
      tma::store_wait_read(); // the block must not end before TMA has read its shared memory
    }
  }
};

/// A warp's part of dQ^T among the sums of all sequences, heads, tiles and warps.
template <typename A> __device__ typename A::DqSums dq_sums_of(float *dq_sums, int64_t tile, int warp) {
  return {dq_sums + (tile * A::warps + warp) * A::DqSums::size};
}

/// A store warp, a single thread: issues the additions of its consumer's part of dQ, step by step.
template <typename T, int d, typename A>
__device__ void add_dq(typename A::Shared &smem, const Sequence<T, d> &sequence, int consumer,
                       float *dq_sums) {
  const int64_t first = sequence.dq_tile(0, A::queries);
  smem.kv_full.wait(0);
  if (!smem.visits[0].is_tile())
    return;
  for (Turn<kBuffers> turn;; turn.advance()) {
    smem.dq_full[consumer].wait(turn.buffer);
    const Visit visit = smem.visit(turn);
    tma::add_async(dq_sums_of<A>(dq_sums, first + visit.tile, warpgroup::warps * consumer),
                   smem.dq[consumer]);
    tma::store_commit();
    tma::store_wait_read();
    smem.dq_empty[consumer].arrive();
    if (visit.last)
      return;
  }
}

/// dQ = alpha / (2 length) * sums, rounded; one block per tile. Each warp transposes its 16 columns through
/// shared memory, from where TMA stores the rows in bounds.
template <typename T, int d, typename A>
__global__ void __launch_bounds__(A::warps * 32)
    round_dq(const __grid_constant__ tma::JaggedMap<typename A::QTile> dq_map,
             const __grid_constant__ HstuBackwardProblem problem, float *dq_sums) {
  const ladder::SequenceGradients<T, d, ladder::ThisBlock> sequence(problem);
  const HstuProblem &p = problem.forward;
  const int row = blockIdx.z * A::queries, warp = group<A::warps>::warp();
  if (row >= sequence.q_len)
    return;
  __shared__ alignas(1024) typename A::QTile tile;
  RegTile<float, 16, A::dq_cols> dq;
  RegTile<T, 16, A::dq_cols> out;
  load(dq, dq_sums_of<A>(dq_sums, sequence.dq_tile(blockIdx.z, A::queries), warp));
  mul(dq, dq, 0.5f * p.alpha * p.inv_length);
  copy(out, dq);
  const int consumer = warp / warpgroup::warps;
  auto columns =
      part<A::dq_cols, 16>(tile, A::dq_col(consumer), A::dq_row(consumer) + 16 * (warp % warpgroup::warps));
  store(columns, transposed(out));
  fence_async_proxy();
  __syncthreads();
  if (threadIdx.x == 0) {
    tma::store_async(dq_map, tile, row, {sequence.q_begin, sequence.q_len, int(blockIdx.x)});
    tma::store_commit();
    tma::store_wait_read(); // the block must not end before TMA has read its shared memory
  }
}

template <typename T, int d> void launch_head_dim(const HstuBackwardProblem &problem, cudaStream_t stream) {
  using A = Arrangement<T, d>;
  const HstuProblem &p = problem.forward;
  const size_t words = ladder::SequenceGradients<T, d, ladder::ThisBlock>::dq_tiles(p, A::queries) *
                       A::warps * A::DqSums::size;
  const ladder::Workspace<float> dq_sums(words, stream, "h8_wgmma_gradients: workspace");
  ladder::check(cudaMemsetAsync(dq_sums.data(), 0, words * sizeof(float), stream),
                "h8_wgmma_gradients: workspace");

  const auto kernel = p.intervals ? differentiate<T, d, WithIntervals<A>> : differentiate<T, d, A>;
  constexpr int smem_bytes = sizeof(typename A::Shared);
  ladder::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem_bytes),
                "h8_wgmma_gradients: shared memory");
  const typename A::Maps maps{
      .q = tma::jagged_map<typename A::QTile>(p.q, p.total_q, p.heads, p.q_stride),
      .d_o = tma::jagged_map<typename A::QTile>(problem.d_o, p.total_q, p.heads, p.heads * d),
      .k = tma::jagged_map<typename A::KTile>(p.k, p.total_k, p.heads, p.k_stride),
      .v = tma::jagged_map<typename A::KTile>(p.v, p.total_k, p.heads, p.v_stride),
      .dk = tma::jagged_map<typename A::KTile>(problem.dk, p.total_k, p.heads, p.heads * d),
      .dv = tma::jagged_map<typename A::KTile>(problem.dv, p.total_k, p.heads, p.heads * d),
  };
  const int section = std::gcd(p.heads, kHeads), key_tiles = (p.max_k_len + A::keys - 1) / A::keys;
  const dim3 grid = ladder::launch_grid(section, p.heads / section * key_tiles, p.batch);
  kernel<<<grid, A::threads, smem_bytes, stream>>>(maps, problem, BlockOfKeys{key_tiles}, dq_sums.data(), 0);
  ladder::check(cudaGetLastError(), "h8_wgmma_gradients: launch");
  const dim3 dq_grid = ladder::launch_grid(p.heads, p.batch, (p.max_q_len + A::queries - 1) / A::queries);
  round_dq<T, d, A><<<dq_grid, A::warps * 32, 0, stream>>>(
      tma::jagged_map<typename A::QTile>(problem.dq, p.total_q, p.heads, p.heads * d), problem,
      dq_sums.data());
  ladder::check(cudaGetLastError(), "h8_wgmma_gradients: launch");
}

} // namespace

void ladder::launch(const HstuBackwardProblem &p, cudaStream_t stream) {
  dispatch_16_bit(p.forward, [&](auto element) {
    dispatch_head_dim<64, 128>(p.forward, [&](auto d) { launch_head_dim<decltype(element), d>(p, stream); });
  });
}
