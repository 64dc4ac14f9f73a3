// b5g_sums_in_l2: the sums of dQ stay in the L2 cache.
//
// The sums of all heads need not exist at the same time. Those of a few groups of heads are in a ring: work
// items of later groups round them, set them to 0, and use them again. A kernel of its own rounds those of
// the last groups, as up to here it rounds all.
#include <cmath>

#include "ladder/backward_rows.h"
#include "ladder/counter.h"
#include "ladder/opaque_zero.h"
#include "ladder/turns.h"
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
/// The most bytes of the ring. The L2 cache of an H100 has 50 MB.
constexpr int64_t kMostBytes = 32 << 20;

/// The weights are 2^kShift * P, so that they are normal numbers in fp16 down to 2^-26. dP and delta are
/// scaled by the inverse.
constexpr int kShift = 12;
constexpr float kUnshift = 1.f / (1 << kShift);

/// A block's arrangement for elements T and head dimension d.
template <typename T, int d> struct Arrangement {
  // A producer warpgroup, consumer warpgroups of 64 keys each, and the queries of a tile. Registers per
  // thread at d = 128:
  //   dV and dK                                                      128
  //   under dS:               dP^T, P^T twice, delta         40 + 40 + 20
  //   under dV and dK:        S^T, P^T, dS^T, lse       40 + 20 + 20 + 12
  //   under the exponentials: S^T, dQ^T, lse                  40 + 40 + 8
  static constexpr int consumers = 2, warps = 4 * consumers, keys = 64 * consumers;
  static constexpr int threads = 128 * (consumers + 1);
  static constexpr int producer_registers = 24, consumer_registers = 240; // 24 + 2 x 240 = 3 x 168
  static constexpr int queries = d == 128 ? 80 : 128, first_queries = d == 128 ? 48 : 32,
                       last_queries = queries - first_queries;

  /// The consumers share a tile of dQ^T: each has 64 of 128 rows, or half of the columns of 64 rows.
  static constexpr int dq_cols = d == 128 ? queries : queries / 2;
  using DqSums = GlobalFragments<16, dq_cols, 4>; // per warp
  __device__ static int dq_row(int consumer) { return d == 128 ? 64 * consumer : 0; }
  __device__ static int dq_col(int consumer) { return d == 128 ? 0 : dq_cols * consumer; }

  using KTile = SharedTile<T, keys, d>;
  using QTile = SharedTile<T, queries, d>;
  /// The tiles take 224 of 227 KB, so all barriers follow them. A Ring's would be padded to 1 KB.
  struct Shared {
    alignas(1024) KTile k, v;
    alignas(1024) QTile q[kBuffers], d_o[kBuffers];
    alignas(1024) SharedTile<T, queries, keys> ds[kBuffers];
    SharedFragments<16, dq_cols> dq[consumers][warpgroup::warps]; // dQ^T
    SharedVec<float, queries> lse[kBuffers], delta[kBuffers];
    unsigned number; // of the work item, for K and V
    Barrier item_full, kv_full, kv_empty, share_rounded;
    Barrier q_full[kBuffers], q_empty[kBuffers], d_o_full[kBuffers], d_o_empty[kBuffers];
    Barrier ds_full[kBuffers], ds_empty[kBuffers]; // a wait for ds_empty always succeeds at once (b5e)
    Barrier dq_full[consumers], dq_empty[consumers];
  };
  struct Maps {
    tma::TensorMap<QTile> q, d_o, dq;
    tma::TensorMap<KTile> k, v, dk, dv;
  };
};

/// The work items, key tiles of key/value heads, in the order in which they are taken. Up to four heads are
/// together; in each group the first key tiles come first, which have the most steps with a causal mask.
struct WorkItems {
  int together, per_head;
  unsigned count;

  WorkItems(const AttentionBackwardProblem &p, int keys)
      : together(std::gcd(p.batch * p.kv_heads, 4)), per_head((p.kv_len + keys - 1) / keys),
        count(unsigned(p.batch) * p.kv_heads * per_head) {}

  template <typename A>
  __device__ ladder::Steps<A::queries> steps_of(const AttentionBackwardProblem &p, unsigned number) const {
    const unsigned per_group = together * per_head, group = number / per_group, among = number % per_group;
    return {p, int(group * together + among % together), int(among / together) * A::keys};
  }
};

/// The sums of dQ. Those of group g are in slot g % slots, tile by tile. Before a work item begins, it rounds
/// its share of the sums of the group `lag` groups before its own, and sets them to 0. Sums and counters
/// begin at 0.
///
/// An item waits only for items with lower numbers. These have been taken by blocks that run, because a block
/// takes its first number from the counter, too. So there is no deadlock.
struct SumRing {
  float *sums;
  int *complete; ///< per group: how many store warps of its items have made all additions
  int *rounded;  ///< per group: how many items have rounded their shares of its sums
  int lag, slots;
  int tiles, items; ///< of a group

  __device__ int group_of(unsigned number) const { return number / items; }
};

template <typename A>
__device__ void produce(typename A::Shared &smem, const typename A::Maps &maps,
                        const AttentionBackwardProblem &p, const RowStatistics &statistics,
                        const WorkItems &items, unsigned *counter, const SumRing &ring);
template <typename T, int d, typename A> struct Consumer;
template <typename A>
__device__ void add_dq(typename A::Shared &smem, const AttentionBackwardProblem &p, const WorkItems &items,
                       int consumer, const SumRing &ring);

template <typename T, int d, typename A>
__global__ void __launch_bounds__(A::threads, 1)
    differentiate(const __grid_constant__ typename A::Maps maps,
                  const __grid_constant__ AttentionBackwardProblem p,
                  const __grid_constant__ RowStatistics statistics, const __grid_constant__ WorkItems items,
                  unsigned *counter, const __grid_constant__ SumRing ring) {
  extern __shared__ __align__(1024) unsigned char bytes[];
  auto &smem = *reinterpret_cast<typename A::Shared *>(bytes);
  if (threadIdx.x == 0) {
    smem.kv_full.init(1);
    smem.item_full.init(1);
    smem.share_rounded.init(A::warps);
    smem.kv_empty.init(1 + A::consumers);
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
    // With else, the warp's number needs no register in produce(), which would spill otherwise.
    if (warp == 0) {
      if (elect_one())
        produce<A>(smem, maps, p, statistics, items, counter, ring);
    } else if (warp <= A::consumers) {
      if (elect_one())
        add_dq<A>(smem, p, items, warp - 1, ring);
    }
  } else {
    increase_registers<A::consumer_registers>();
    Turn<kBuffers> turn, ds_turn;
    Turn<1> kv_turn;
    // A consumer per item, since the tiles of a single one would keep their registers from item to item.
    while (true) {
      smem.item_full.wait(kv_turn.parity);
      const unsigned number = uniform(smem.number);
      if (number >= items.count)
        break;
      Consumer<T, d, A> consumer{p, smem, items.steps_of<A>(p, number), turn, turn, ds_turn};
      if (ring.group_of(number) >= ring.lag)
        consumer.round_share(maps, ring, number);
      smem.kv_full.wait(kv_turn.parity);
      kv_turn.advance();
      consumer.run(maps);
      turn = consumer.turn;
      ds_turn = consumer.ds_turn;
    }
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

/// Issues the loads of a step's Q and lse, dO and delta.
template <typename A>
__device__ inline void load_step(typename A::Shared &smem, const typename A::Maps &maps,
                                 const RowStatistics &statistics, int head, int query, Turn<kBuffers> &turn) {
  const int buffer = turn.buffer;
  smem.q_empty[buffer].wait(turn.parity ^ 1);
  load_async(smem.q[buffer], maps.q, query, head, smem.lse[buffer], statistics.lse_of(head),
             smem.q_full[buffer]);
  smem.d_o_empty[buffer].wait(turn.parity ^ 1);
  load_async(smem.d_o[buffer], maps.d_o, query, head, smem.delta[buffer], statistics.delta_of(head),
             smem.d_o_full[buffer]);
  turn.advance();
}

/// The producer, a single thread.
template <typename A>
__device__ void produce(typename A::Shared &smem, const typename A::Maps &maps,
                        const AttentionBackwardProblem &p, const RowStatistics &statistics,
                        const WorkItems &items, unsigned *counter, const SumRing &ring) {
  Turn<kBuffers> turn;
  Turn<1> kv_turn;
  // All blocks together increment the counter once per item, and once each to learn that there are no more.
  // The last increment wraps it to 0.
  const auto next = [&] { return atomicInc(counter, items.count + gridDim.x - 1); };
  unsigned number = next();
  for (; number < items.count; number = next()) {
    const auto steps = items.steps_of<A>(p, number);
    QueryTile tile = steps.first();
    // Before K and V, whose shared memory is in use for longer.
    if (steps.count() > 0)
      load_step<A>(smem, maps, statistics, tile.head, steps.query(tile), turn);
    if (const int group = ring.group_of(number) - ring.lag; group >= 0)
      ladder::wait_for_count(ring.complete + group, ring.items * A::consumers);
    smem.kv_empty.wait(kv_turn.parity ^ 1);
    kv_turn.advance();
    smem.number = number;
    smem.item_full.arrive();
    smem.kv_full.arrive_and_expect(2 * sizeof(smem.k));
    tma::load_async(smem.k, maps.k, steps.key, steps.kv_head, smem.kv_full);
    tma::load_async(smem.v, maps.v, steps.key, steps.kv_head, smem.kv_full);
    for (int step = 1; step < steps.count(); step++) {
      tile = steps.after(tile);
      load_step<A>(smem, maps, statistics, tile.head, steps.query(tile), turn);
    }
  }
  // A number past the last item, without K and V, tells the others to stop.
  smem.kv_empty.wait(kv_turn.parity ^ 1);
  smem.number = number;
  smem.item_full.arrive();
}

/// A warp's part of a tile of dQ^T, given by its number in its group.
template <typename A>
__device__ typename A::DqSums sums_of(const SumRing &ring, int group, int tile, int warp) {
  const int64_t number = int64_t(group % ring.slots) * ring.tiles + tile;
  return {ring.sums + (number * A::warps + warp) * A::DqSums::size};
}

/// A warp's part of dQ = scale * sums, rounded, into the shared memory of a tile. The warp transposes its 16
/// columns.
template <typename A, RegisterTile S>
__device__ void round_part(typename A::QTile &tile, S &sums, float scale, int warp) {
  RegTile<typename A::QTile::Elem, 16, S::cols> out;
  mul(sums, sums, scale);
  copy(out, sums);
  const int consumer = warp / warpgroup::warps;
  auto columns =
      part<A::dq_cols, 16>(tile, A::dq_col(consumer), A::dq_row(consumer) + 16 * (warp % warpgroup::warps));
  store(columns, transposed(out));
}

/// A consumer: a warpgroup with 64 keys, and their gradients. S and dP are transposed (keys x queries), so
/// P^T and dS^T are already in the registers that the next products read as operand A.
template <typename T, int d, typename A> struct Consumer {
  using consumers = group<A::warps>;
  const AttentionBackwardProblem &p;
  typename A::Shared &smem;
  const ladder::Steps<A::queries> steps;
  Turn<kBuffers> q_turn, turn; // of Q and of dO: equal, but b5e is slower with one variable (its README)
  Turn<kBuffers> ds_turn;      // of the last dS that was stored, until dQ is complete
  const int group_key = 64 * warpgroup::index(), key = group_key + 16 * warpgroup::warp(); // in the block
  RegTile<float, 16, A::queries> s; // S^T, then dP^T of the same tile
  RegTile<T, 16, A::queries> p_16, p_for_ds, ds_16;
  RegTile<float, 16, d> dv, dk;
  RegTile<float, 16, A::dq_cols> dq; // dQ^T
  RegTile<float, 16, A::first_queries>::RowVec first_lse;
  RegTile<float, 16, A::last_queries>::RowVec last_lse;
  RegTile<float, 16, A::queries>::RowVec delta;

  /// Rounds the item's share of the sums of an earlier group, and sets them to 0. Two tiles at a time are in
  /// the registers of dV and dK, and in the buffers of dS.
  __device__ void round_share(const typename A::Maps &maps, const SumRing &ring, unsigned number) {
    static_assert(kBuffers == 2 && sizeof(typename A::QTile) <= sizeof(smem.ds[0]));
    const int group = ring.group_of(number) - ring.lag, share = number % ring.items;
    const int end = int64_t(ring.tiles) * (share + 1) / ring.items;
    for (int tile = int64_t(ring.tiles) * share / ring.items; tile < end; tile += 2) {
      const bool is_pair = tile + 1 < end;
      auto &first = columns<A::dq_cols>(dv, 0), &second = columns<A::dq_cols>(dk, 0);
      const auto first_sums = sums_of<A>(ring, group, tile, consumers::warp()),
                 second_sums = sums_of<A>(ring, group, tile + 1, consumers::warp());
      load(first, first_sums);
      if (is_pair)
        load(second, second_sums);
      wait_for_reads(); // of the tiles before
      round_part<A>(dq_tile(0), first, p.scale, consumers::warp());
      if (is_pair)
        round_part<A>(dq_tile(1), second, p.scale, consumers::warp());
      fence_async_proxy();
      consumers::sync(1);
      if (threadIdx.x == 0)
        for (int i = 0; i <= is_pair; i++)
          store_rounded(maps, ring, group, tile + i, dq_tile(i));
      // Only now, because the fence would wait for these stores.
      zero(first_sums);
      if (is_pair)
        zero(second_sums);
    }
    __syncwarp();
    release(smem.share_rounded);
    wait_for_reads(); // before dS is stored
  }

  __device__ auto &dq_tile(int buffer) { return reinterpret_cast<typename A::QTile &>(smem.ds[buffer]); }

  __device__ void store_rounded(const typename A::Maps &maps, const SumRing &ring, int group, int tile,
                                const typename A::QTile &src) {
    const int per_head = (p.q_len + A::queries - 1) / A::queries, head = tile / per_head;
    tma::store_async(maps.dq, src, (tile - head * per_head) * A::queries,
                     group * (ring.tiles / per_head) + head);
    tma::store_commit();
  }

  /// Waits until TMA has read the tiles of dQ.
  __device__ static void wait_for_reads() {
    if (threadIdx.x == 0)
      tma::store_wait_read();
    consumers::sync(1);
  }

  /// The gradients of an item's K and V.
  __device__ void run(const typename A::Maps &maps) {
    zero(dv);
    zero(dk);
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
        store_dq();
      }
      compute_ds();
      issue_dk(q_turn);
      smem.ds_full[ds_turn.buffer].wait(ds_turn.parity);
      warpgroup::mma_wait(dv, dk);
      release(smem.d_o_empty[turn.buffer]);
      release(smem.q_empty[q_turn.buffer]);
      q_turn.advance();
      turn.advance();
      issue_dq();
      store_dq();
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

  /// S^T = K Q^T, after the load of a part of lse.
  __device__ void issue_s() {
    smem.q_full[q_turn.buffer].wait(q_turn.parity);
    load(first_lse, smem.lse[q_turn.buffer]);
    warpgroup::mma_ABt(s, rows_of(smem.k), smem.q[q_turn.buffer]);
  }

  /// P^T = exp(scale S^T - lse), for a part of the queries, from `query` on.
  template <RegisterTile X, RegisterVector V> __device__ void compute_p(X &x, const V &lse, int query) {
    mul(x, x, p.scale * kLog2E);
    sub_col(x, x, lse);
    lower_fill(x, x, p.kv_len - steps.key - key);
    if (p.is_causal)
      make_causal_t(x, x, steps.key + key, query);
    exp2(x, x);
  }

  /// The first queries of a tile. Returns 0, computed from the exponentials.
  __device__ uint32_t compute_first_p(int tile_query) {
    auto &x = columns<A::first_queries>(s, 0);
    compute_p(x, first_lse, tile_query);
    load(last_lse, smem.lse[q_turn.buffer], A::first_queries);
    return ladder::opaque_zero(x);
  }

  /// The last queries of the tile.
  __device__ void compute_last_p(int tile_query) {
    compute_p(columns<A::last_queries>(s, A::first_queries), last_lse, tile_query + A::first_queries);
    // Here, because ptxas would move the exponentials past later waits:
    smem.d_o_full[turn.buffer].wait(turn.parity);
  }

  /// dP^T = V dO^T and dV += P^T dO. While dV is in flight: dS^T = P^T (dP^T - delta), in registers, and in
  /// shared memory for both consumers.
  __device__ void compute_ds() {
    const auto &d_o = smem.d_o[turn.buffer];
    copy(p_16, s);
    copy_apart(p_for_ds, p_16); // dV reads p_16 while dS is computed
    load(delta, smem.delta[turn.buffer]);
    warpgroup::mma_ABt(s, rows_of(smem.v), d_o);
    warpgroup::mma_AB(dv, p_16, d_o, dv);
    warpgroup::mma_wait<1>(s);
    mul(s, s, kUnshift);
    sub_col(s, s, delta);
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
    const int consumer = warpgroup::index();
    warpgroup::mma_AtBt(dq, part<A::keys, 64>(smem.k, 0, A::dq_row(consumer)),
                        part<A::dq_cols, A::keys>(smem.ds[ds_turn.buffer], A::dq_col(consumer)));
  }

  /// Stores the consumer's part of a step's dQ^T, after TMA has read that of the step before.
  __device__ void store_dq() {
    const int consumer = warpgroup::index();
    static_assert(kBuffers == 2); // so that a buffer's number is the parity of the steps
    smem.dq_empty[consumer].wait(ds_turn.buffer ^ 1);
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
      tma::store_wait_read();
      smem.kv_empty.arrive();
    }
  }
};

/// A store warp, a single thread: issues the additions of its consumer's part of dQ, step by step.
template <typename A>
__device__ void add_dq(typename A::Shared &smem, const AttentionBackwardProblem &p, const WorkItems &items,
                       int consumer, const SumRing &ring) {
  const int first_warp = warpgroup::warps * consumer;
  Turn<1> item_turn, dq_turn, share_turn;
  while (true) {
    smem.item_full.wait(item_turn.parity);
    item_turn.advance();
    const unsigned number = smem.number;
    if (number >= items.count)
      break;
    const int group = ring.group_of(number);
    if (consumer == 0 && group >= ring.lag) {
      smem.share_rounded.wait(share_turn.parity);
      share_turn.advance();
      ladder::count_up(ring.rounded + group - ring.lag);
    }
    // After the wait: otherwise the next item's share could complete a second phase of share_rounded, whose
    // parity would be as before, and the wait would miss both.
    smem.kv_empty.arrive();
    if (group >= ring.slots) {
      ladder::wait_for_count(ring.rounded + group - ring.slots, ring.items);
      tma::fence_additions(); // after the zeros
    }
    const auto steps = items.steps_of<A>(p, number);
    QueryTile tile = steps.first();
    for (int step = 0; step < steps.count(); step++, tile = steps.after(tile)) {
      smem.dq_full[consumer].wait(dq_turn.parity);
      dq_turn.advance();
      const int tile_number = steps.dq_tile(tile) - int64_t(group) * ring.tiles;
      tma::add_async(sums_of<A>(ring, group, tile_number, first_warp), smem.dq[consumer]);
      tma::store_commit();
      tma::store_wait_read();
      smem.dq_empty[consumer].arrive();
    }
    tma::add_wait();
    ladder::count_up(ring.complete + group);
  }
}

/// Rounds the sums of the last `lag` groups; one block per tile, query head of a group, and group.
template <typename T, int d, typename A>
__global__ void __launch_bounds__(A::warps * 32)
    round_dq(const __grid_constant__ tma::TensorMap<typename A::QTile> dq_map, float scale,
             const __grid_constant__ SumRing ring, int first_group) {
  __shared__ alignas(1024) typename A::QTile tile;
  const int group = first_group + blockIdx.z, warp = tiles::group<A::warps>::warp();
  RegTile<float, 16, A::dq_cols> sums;
  load(sums, sums_of<A>(ring, group, blockIdx.y * gridDim.x + blockIdx.x, warp));
  round_part<A>(tile, sums, scale, warp);
  fence_async_proxy();
  __syncthreads();
  if (threadIdx.x == 0) {
    tma::store_async(dq_map, tile, blockIdx.x * A::queries, group * gridDim.y + blockIdx.y);
    tma::store_commit();
    tma::store_wait_read(); // the block must not end before TMA has read its shared memory
  }
}

/// The ring for groups of `tiles` tiles and `bytes` bytes, without its memory. When a group's first items are
/// taken, about one item per block is still being computed. With this lag the group that is rounded is mostly
/// complete, so items rarely wait. If the ring would be too large, each group has a slot.
inline SumRing ring_of(const WorkItems &items, int tiles, int64_t bytes) {
  const int per_group = items.together * items.per_head, groups = items.count / per_group;
  SumRing ring{
      .lag = int(2 + 5 * ladder::multiprocessors() / (4 * per_group)), .tiles = tiles, .items = per_group};
  ring.slots = ring.lag + 1;
  if (ring.slots >= groups || ring.slots * bytes > kMostBytes)
    ring.lag = ring.slots = groups;
  return ring;
}

template <typename T, int d> void launch_head_dim(const AttentionBackwardProblem &p, cudaStream_t stream) {
  using A = Arrangement<T, d>;
  const int tiles = (p.q_len + A::queries - 1) / A::queries;
  RowStatistics statistics(p, kShift);
  statistics.padded_len = tiles * A::queries;
  const size_t rows = statistics.count(p);
  const WorkItems items(p, A::keys);
  const int heads = items.together * (p.heads / p.kv_heads); // query heads of a group
  const int64_t size = int64_t(heads) * tiles * A::queries * d;
  const int groups = p.batch * p.kv_heads / items.together;
  SumRing ring = ring_of(items, heads * tiles, size * sizeof(float));
  const size_t zeros = ring.slots * size + 2 * groups;
  const ladder::Workspace<float> workspace(2 * rows + zeros, stream, "b5g_sums_in_l2: workspace");
  ring.sums = workspace.data() + 2 * rows;
  ring.complete = reinterpret_cast<int *>(ring.sums + ring.slots * size);
  ring.rounded = ring.complete + groups;
  ladder::compute_row_statistics<T, d>(p, statistics, workspace.data(), stream);
  ladder::check(cudaMemsetAsync(ring.sums, 0, zeros * sizeof(float), stream), "b5g_sums_in_l2: workspace");

  constexpr auto kernel = differentiate<T, d, A>;
  constexpr int smem_bytes = sizeof(typename A::Shared);
  ladder::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem_bytes),
                "b5g_sums_in_l2: shared memory");
  const typename A::Maps maps{
      .q = tma::tensor_map<typename A::QTile>(p.q, p.q_strides, p.q_len, p.heads, p.batch),
      .d_o = tma::tensor_map<typename A::QTile>(p.d_o, p.d_o_strides, p.q_len, p.heads, p.batch),
      .dq = tma::tensor_map<typename A::QTile>(p.dq, p.q_len, p.batch * p.heads),
      .k = tma::tensor_map<typename A::KTile>(p.k, p.k_strides, p.kv_len, p.kv_heads, p.batch),
      .v = tma::tensor_map<typename A::KTile>(p.v, p.v_strides, p.kv_len, p.kv_heads, p.batch),
      .dk = tma::tensor_map<typename A::KTile>(p.dk, p.kv_len, p.batch * p.kv_heads),
      .dv = tma::tensor_map<typename A::KTile>(p.dv, p.kv_len, p.batch * p.kv_heads),
  };
  const ladder::LaunchCounter counter(stream, "b5g_sums_in_l2: counter");
  kernel<<<min(ladder::multiprocessors(), items.count), A::threads, smem_bytes, stream>>>(
      maps, p, statistics, items, counter.data(), ring);
  ladder::check(cudaGetLastError(), "b5g_sums_in_l2: launch");
  round_dq<T, d, A><<<ladder::launch_grid(tiles, heads, ring.lag), A::warps * 32, 0, stream>>>(
      maps.dq, p.scale, ring, groups - ring.lag);
  ladder::check(cudaGetLastError(), "b5g_sums_in_l2: launch");
}

} // namespace

void ladder::launch(const AttentionBackwardProblem &p, cudaStream_t stream) {
  require_alignment(p, 16);
  dispatch_16_bit(p, [&](auto element) {
    dispatch_head_dim<64, 128>(p, [&](auto d) { launch_head_dim<decltype(element), d>(p, stream); });
  });
}
