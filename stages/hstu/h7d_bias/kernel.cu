// h7d_bias: h7_tile_scheduler with a bias, whose tiles TMA loads.
//
// As in h3_rab, the accumulator of Q K^T starts with the bias. A tile has 64 keys, so that a row of a bias
// tile has 128 bytes, the most that one swizzled box takes. Bias tiles have a ring of their own, whose
// buffers are free before the product begins.
#include "ladder/counter.h"
#include "ladder/dispatch.h"
#include "ladder/hstu_sequence.h"
#include "tiles/ring.h"
#include "tiles/roles.h"
#include "tiles/tensor_map.h"
#include "tiles/tiles.h"
#include "tiles/warpgroup.h"

namespace {

using ladder::HstuKeys;
using ladder::HstuMask;
using ladder::HstuProblem;
using namespace tiles;

/// What the consumers must know about a tile, written by the producer: its first key, and two bits per
/// consumer. After the last tile of a work item comes kNoTile.
struct alignas(8) Visit {
  int key;
  uint16_t seen; ///< whether one of the consumer's rows sees one of the keys
  uint16_t cut;  ///< whether one of its rows does not see one of the keys

  __device__ bool is_tile() const { return key >= 0; }
  __device__ bool is_seen_by(int consumer) const { return seen >> consumer & 1; }
  __device__ bool is_cut_for(int consumer) const { return cut >> consumer & 1; }
};
constexpr Visit kNoTile{-1, 0, 0};

/// At most so many heads are together, and at most so many bytes of their K and V, which the blocks read at
/// the same time.
constexpr int64_t kMostHeads = 16, kMostBytes = 32 << 20;

/// A work item: up to block_rows queries of one head and sequence, from `row` on. A sequence's first one may
/// begin before row 0, by a multiple of a consumer's 64 rows. After a block's last item comes kNoItem.
struct alignas(16) WorkItem {
  int head, sequence, block, row; ///< `block`: its number among the sequence's blocks of rows

  __device__ uint3 operator()() const { return {unsigned(head), unsigned(sequence), unsigned(block)}; }
  __device__ bool is_one() const { return head >= 0; }
  /// The first consumers have no rows.
  __device__ int idle_consumers() const { return max(-row, 0) / 64; }
};
constexpr WorkItem kNoItem{-1, 0, 0, 0};

template <typename T, int d> using Sequence = ladder::Sequence<T, d, WorkItem>;

/// A block's arrangement for elements T and head dimension d.
template <typename T, int d> struct Arrangement {
  // Consumer warpgroups with 64 rows each, and a producer warpgroup. Per thread, O takes d / 2 registers, S
  // half of a tile's keys, and P a quarter. 512 threads start with 128 registers each: 32 + 3 x 160 = 4 x
  // 128.
  static constexpr int consumers = 3, producer_registers = 32, consumer_registers = 160;
  static constexpr int threads = 128 * (consumers + 1), block_rows = 64 * consumers;
  static constexpr int keys = 64; // per tile
  static constexpr int buffers = 3, q_buffers = d == 128 ? 1 : 2;
  // With one more than V has, the producer never waits for an empty one: it has waited for V of the tile
  // before, so the consumers have released V, and therefore the bias, of four tiles before. At d = 128 no
  // fourth fits.
  static constexpr int bias_buffers = d == 128 ? buffers : buffers + 1;

  using QTile = SharedTile<T, 64, d>;
  using KTile = SharedTile<T, keys, d>;
  using BiasTile = SharedTile<T, 64, keys>; // of a consumer
  struct Shared {
    Ring<QTile, q_buffers, consumers> q; // and O
    Ring<KTile, buffers> k, v;
    Ring<BiasTile, bias_buffers, consumers> bias;
    Visit visits[buffers]; // of the tiles in k
    Barrier o_full[q_buffers][consumers];
    WorkItem items[q_buffers]; // for each Q
  };
  struct Maps {
    tma::JaggedMap<QTile> q, o;
    tma::JaggedMap<KTile> k, v;
    tma::WideMap<BiasTile> bias;
  };
};

/// The heads of all sequences are numbered, and follow each other in groups of `group_heads`. Each has
/// `per_head` work items, those without queries included.
struct Order {
  int heads, group_heads, per_head;

  template <typename A> static Order of(const HstuProblem &p) {
    const int64_t head_bytes = 2 * int64_t(p.max_k_len) * (sizeof(typename A::KTile) / A::keys);
    return {p.heads * p.batch,
            int(max(min(kMostBytes / max(head_bytes, int64_t(1)), kMostHeads), int64_t(1))),
            (p.max_q_len + A::block_rows - 1) / A::block_rows};
  }
  __host__ __device__ int count() const { return heads * per_head; }
};

template <typename T, int d, typename A, bool kIntervals> struct Producer;
template <typename T, int d, typename A> struct StoreWarp;
template <typename T, int d, typename A, bool kIntervals> struct Consumer;

template <typename T, int d, typename A, bool kIntervals>
__global__ void __launch_bounds__(A::threads, 1)
    attend(const __grid_constant__ typename A::Maps maps, const __grid_constant__ HstuProblem problem,
           const __grid_constant__ Order order, unsigned *counter) {
  const int role = warpgroup::index();

  extern __shared__ __align__(1024) unsigned char bytes[];
  auto &smem = *reinterpret_cast<typename A::Shared *>(bytes);
  if (threadIdx.x == 0) {
    smem.q.init(A::consumers); // released by the store warps
    smem.k.init(A::consumers * warpgroup::warps);
    smem.v.init(A::consumers * warpgroup::warps);
    smem.bias.init(A::consumers * warpgroup::warps);
    for (auto &buffer : smem.o_full)
      init(buffer, warpgroup::warps);
    fence_barrier_init();
  }
  __syncthreads();

  if (role == A::consumers) {
    decrease_registers<A::producer_registers>();
    if (warpgroup::warp() == 0)
      Producer<T, d, A, kIntervals>{smem, maps, problem, order, counter}.run();
    else if (warpgroup::warp() <= A::consumers)
      StoreWarp<T, d, A>{smem, maps, problem, warpgroup::warp() - 1}.run();
  } else {
    increase_registers<A::consumer_registers>();
    Consumer<T, d, A, kIntervals>{smem, problem, role}.run();
  }
}

/// The producer, a warp: loads the tiles that a row of the block's work items sees.
template <typename T, int d, typename A, bool kIntervals> struct Producer {
  typename A::Shared &smem;
  const typename A::Maps &maps;
  const HstuProblem &problem;
  const Order &order;
  unsigned *const counter;
  const bool issues = elect_one();
  Turn<A::q_buffers> q_turn;
  Turn<A::buffers> k_turn, v_turn;
  Turn<A::bias_buffers> bias_turn;

  /// In a group of heads the items with the most keys have the lowest numbers, those without queries the
  /// highest ones.
  __device__ void run() {
    for (int number = blockIdx.x; number < order.count(); number = next())
      load_item(number);
    smem.q.wait_empty(q_turn);
    if (issues) {
      smem.items[q_turn.buffer] = kNoItem;
      smem.q.full[q_turn.buffer].arrive();
    }
  }

  /// Loads the tiles of item `number`, if it has queries. The heads of all sequences are numbered, and follow
  /// each other in groups.
  __device__ void load_item(int number) {
    const int per_group = order.group_heads * order.per_head, first = number / per_group * order.group_heads;
    const int group_heads = min(order.group_heads, order.heads - first), index = number % per_group;
    const int head = first + index % group_heads; // fewer in the last group
    WorkItem item{head % problem.heads, head / problem.heads, index / group_heads, 0};
    const Sequence<T, d> sequence(problem, item);
    item.row = sequence.block_row(A::block_rows, first_row(sequence.q_len));
    if (item.row < sequence.q_len)
      load(item, sequence);
  }

  /// The first row of a sequence's first item, if the last one ends with the last query.
  __device__ static int first_row(int q_len) {
    const int end = (q_len + 63) / 64 * 64;
    return end - (end + A::block_rows - 1) / A::block_rows * A::block_rows;
  }

  /// The next work item. All blocks together increment the counter count() times, once after each
  /// item, skipped ones included. The last increment wraps it to 0.
  __device__ int next() const {
    int number = 0;
    if (lane_id() == 0)
      number = gridDim.x + atomicInc(counter, order.count() - 1);
    return uniform(number);
  }

  __device__ void load(const WorkItem &item, const Sequence<T, d> &sequence) {
    const auto mask = sequence.template mask<kIntervals>();
    const int first = item.row + sequence.shift(), last = sequence.k_len - 1;
    const HstuKeys block_keys(mask, max(first, sequence.shift()), min(last, first + A::block_rows - 1));
    const tma::Segment kv{sequence.k_begin, sequence.k_len, item.head};
    const int matrix = item.sequence * problem.rab_heads + (problem.rab_heads == 1 ? 0 : item.head);

    smem.q.wait_empty(q_turn);
    if (issues) {
      smem.items[q_turn.buffer] = item;
      load_q(item, {sequence.q_begin, sequence.q_len, item.head});
    }
    q_turn.advance();
    for (int key = block_keys.begin / A::keys * A::keys; key < block_keys.end; key += A::keys) {
      const Visit visit = look_at(mask, first, last, key, item.idle_consumers());
      if (visit.seen == 0)
        continue;
      smem.bias.wait_empty(bias_turn);
      if (issues)
        smem.bias.load_async(bias_turn, maps.bias, first, tma::MatrixColumn{key, matrix});
      bias_turn.advance();
      smem.k.wait_empty(k_turn);
      if (issues) {
        smem.visits[k_turn.buffer] = visit;
        smem.k.load_async(k_turn, maps.k, key, kv);
      }
      k_turn.advance();
      smem.v.wait_empty(v_turn);
      if (issues)
        smem.v.load_async(v_turn, maps.v, key, kv);
      v_turn.advance();
    }
    smem.k.wait_empty(k_turn);
    if (issues) {
      smem.visits[k_turn.buffer] = kNoTile;
      smem.k.full[k_turn.buffer].arrive();
    }
    k_turn.advance();
  }

  /// Issues the loads of the consumers' parts of Q. Before a sequence's row 0 are the rows of the previous
  /// one, or none: nothing is loaded for idle consumers.
  __device__ void load_q(const WorkItem &item, const tma::Segment &queries) {
    const int idle = item.idle_consumers();
    Barrier &full = smem.q.full[q_turn.buffer];
    full.arrive_and_expect((A::consumers - idle) * sizeof(typename A::QTile));
    for (int c = idle; c < A::consumers; c++)
      tma::load_async(smem.q.tiles[q_turn.buffer][c], maps.q, item.row + 64 * c, queries, full);
  }

  /// Which consumers need the tile at `key`, and for which the mask cuts it. The work item's rows begin at
  /// position `first`; `last` is the sequence's last position. The first `idle` consumers have no rows.
  /// Without intervals lane c checks the rows of consumer c: the first and the last determine the others.
  /// With intervals the lanes share the rows of each consumer.
  __device__ static Visit look_at(const HstuMask<kIntervals> &mask, int first, int last, int key, int idle) {
    Visit visit{key, 0, 0};
    if constexpr (!kIntervals) {
      const int row = first + 64 * lane_id();
      const bool has_rows = lane_id() >= idle && lane_id() < A::consumers && row <= last;
      const HstuKeys keys(mask, row, min(last, row + 63));
      visit.seen = __ballot_sync(0xffffffffu, has_rows && keys.any_in(key, A::keys));
      visit.cut = __ballot_sync(0xffffffffu, !keys.all_in(key, A::keys));
    } else {
      for (int consumer = idle; consumer < A::consumers; consumer++) {
        bool any = false;
        for (int r = first + 64 * consumer + lane_id(); r <= min(last, first + 64 * consumer + 63); r += 32)
          for (int col = 0; col < A::keys; col += 64)
            any |= mask.row_bits(r, key + col, min(64, A::keys - col)) != 0;
        visit.seen |= unsigned(__any_sync(0xffffffffu, any)) << consumer;
      }
      visit.cut = visit.seen; // bounds are data: any tile may be cut
    }
    return visit;
  }
};

/// The warp that stores a consumer's O, if the consumer has rows.
template <typename T, int d, typename A> struct StoreWarp {
  typename A::Shared &smem;
  const typename A::Maps &maps;
  const HstuProblem &problem;
  const int consumer;

  __device__ void run() {
    for (Turn<A::q_buffers> turn;; turn.advance()) {
      const auto &o_smem = smem.q.wait_full(turn, consumer);
      const WorkItem item = smem.items[turn.buffer];
      if (!item.is_one())
        return;
      const Sequence<T, d> sequence(problem, item);
      smem.o_full[turn.buffer][consumer].wait(turn.parity);
      if (lane_id() == 0 && consumer >= item.idle_consumers()) {
        tma::store_async(maps.o, o_smem, item.row + 64 * consumer,
                         {sequence.q_begin, sequence.q_len, item.head});
        tma::store_commit();
        tma::store_wait_read(); // only this thread waits until TMA has read the buffer
      }
      __syncwarp(); // all lanes have read the item
      smem.q.release(turn);
    }
  }
};

/// A consumer: a warpgroup with 64 rows of each work item.
template <typename T, int d, typename A, bool kIntervals> struct Consumer {
  typename A::Shared &smem;
  const HstuProblem &problem;
  const int consumer;
  const InTurn<A::consumers, 1> in_turn{consumer};
  RegTile<float, 16, A::keys> s;
  RegTile<T, 16, A::keys> p_16;
  RegTile<float, 16, d> o;
  Turn<A::q_buffers> q_turn;
  Turn<A::buffers> k_turn, v_turn;
  Turn<A::bias_buffers> bias_turn;

  __device__ void run() {
    in_turn.start();
    while (true) {
      auto &q_smem = smem.q.wait_full(q_turn, consumer);
      if (!smem.items[q_turn.buffer].is_one())
        break;
      zero(o);
      for (Visit visit = next_seen(); visit.is_tile(); visit = next_seen())
        attend_run(visit, q_smem);
      release_k(); // kNoTile's
      write(q_smem);
      q_turn.advance();
    }
    in_turn.stop();
  }

  /// O += P V, for the tile of `visit` and the tiles directly after it that these rows see.
  __device__ void attend_run(Visit visit, const typename A::QTile &q_smem) {
    // S = bias + Q K^T and P = silu(alpha S) of the first tile
    load_bias();
    in_turn.wait();
    warpgroup::mma_ABt(s, q_smem, smem.k.wait_full(k_turn), s);
    in_turn.pass();
    warpgroup::mma_wait(s);
    release_k();
    compute_p(visit);
    copy(p_16, s);

    while ((visit = next_tile()).is_seen_by(consumer)) {
      // S = bias + Q K^T, and O += P V with the P of the tile before
      load_bias();
      in_turn.wait();
      warpgroup::mma_ABt(s, q_smem, smem.k.wait_full(k_turn), s);
      warpgroup::mma_AB(o, p_16, smem.v.wait_full(v_turn), o);
      in_turn.pass();
      warpgroup::mma_wait<1>(s);
      release_k();

      // P = silu(alpha S)
      compute_p(visit);
      warpgroup::mma_wait(o);
      release_v();
      copy(p_16, s);
    }

    // O += P V of the last tile
    warpgroup::mma_AB(o, p_16, smem.v.wait_full(v_turn), o);
    warpgroup::mma_wait(o);
    release_v();
  }

  /// S starts with the bias. 16 columns at a time, so that it takes 4 registers before it is converted.
  __device__ void load_bias() {
    auto &bias = smem.bias.wait_full(bias_turn, consumer);
#pragma unroll
    for (int col = 0; col < A::keys; col += 16) {
      RegTile<T, 16, 16> part_16;
      load(part_16, part<16, 16>(bias, warp_row() % 64, col));
      copy(columns<16>(s, col), part_16);
    }
    // ldmatrix reads through another proxy than TMA writes: the mbarrier alone does not order the two.
    fence_async_proxy();
    __syncwarp(); // all lanes have read the bias
    release_bias();
  }

  /// S becomes P = silu(alpha S), 0 where the mask hides a key.
  __device__ void compute_p(const Visit &visit) {
    silu(s, s, problem.alpha);
    if (!visit.is_cut_for(consumer))
      return;
    // Recomputed here, in the few tiles that the mask cuts: the main loop needs the registers.
    const WorkItem item = smem.items[q_turn.buffer];
    const Sequence<T, d> sequence(problem, item);
    const auto mask = sequence.template mask<kIntervals>();
    const int first = uniform(item.row) + warp_row() + sequence.shift(), last = sequence.k_len - 1;
    // Most often the mask cuts only the end of rows: the diagonal.
    if (mask.all_before_end(first + 15, visit.key, A::keys)) {
      keep_before(s, s, [&](int r) { return mask.end(first + r) - visit.key; });
      return;
    }
    keep_bits(s, s, [&](int r) {
      return [=, row = mask.row(min(first + r, last))](int col) {
        return row.bits(visit.key + col, min(64, A::keys - col));
      };
    });
  }

  /// The calling warp's first row in a work item.
  __device__ static int warp_row() { return uniform(thread_index() / 32 * 16); }

  /// Writes O to Q's buffer, for the store warp.
  __device__ void write(typename A::QTile &q_smem) {
    RegTile<T, 16, d> o_16;
    mul(o, o, problem.inv_length);
    copy(o_16, o);
    warpgroup::sync(8 + consumer); // all warps have finished reading Q
    warpgroup::store(q_smem, o_16);
    fence_async_proxy(); // makes O visible to TMA
    __syncwarp();
    if (lane_id() == 0)
      smem.o_full[q_turn.buffer][consumer].arrive();
  }

  __device__ Visit next_tile() {
    smem.k.wait_full(k_turn);
    const Visit visit = smem.visits[k_turn.buffer];
    __syncwarp();
    return visit;
  }

  /// The next tile that these rows see, or kNoTile. Those before it are released.
  __device__ Visit next_seen() {
    Visit visit = next_tile();
    for (; visit.is_tile() && !visit.is_seen_by(consumer); visit = next_tile()) {
      in_turn.wait();
      in_turn.pass();
      release_k();
      smem.bias.wait_full(bias_turn);
      release_bias();
      smem.v.wait_full(v_turn);
      release_v();
    }
    return visit;
  }

  __device__ void release_k() {
    smem.k.release(k_turn);
    k_turn.advance();
  }
  __device__ void release_bias() {
    smem.bias.release(bias_turn);
    bias_turn.advance();
  }
  __device__ void release_v() {
    smem.v.release(v_turn);
    v_turn.advance();
  }
};

template <typename T, int d> void launch_head_dim(const HstuProblem &p, cudaStream_t stream) {
  using A = Arrangement<T, d>;
  const auto kernel = p.intervals ? attend<T, d, A, true> : attend<T, d, A, false>;
  constexpr int smem_bytes = sizeof(typename A::Shared);
  ladder::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem_bytes),
                "h7d_bias: shared memory");
  const typename A::Maps maps{
      .q = tma::jagged_map<typename A::QTile>(p.q, p.total_q, p.heads, p.q_stride),
      .o = tma::jagged_map<typename A::QTile>(p.o, p.total_q, p.heads, p.heads * d),
      .k = tma::jagged_map<typename A::KTile>(p.k, p.total_k, p.heads, p.k_stride),
      .v = tma::jagged_map<typename A::KTile>(p.v, p.total_k, p.heads, p.v_stride),
      .bias = tma::wide_map<typename A::BiasTile>(p.rab, p.batch * p.rab_heads, p.max_k_len, p.max_k_len,
                                                  p.rab_stride),
  };
  const Order order = Order::of<A>(p);
  const int blocks = min(ladder::multiprocessors(), order.count());
  const ladder::LaunchCounter counter(stream, "h7d_bias: counter");
  kernel<<<blocks, A::threads, smem_bytes, stream>>>(maps, p, order, counter.data());
  ladder::check(cudaGetLastError(), "h7d_bias: launch");
}

} // namespace

void ladder::launch(const HstuProblem &p, cudaStream_t stream) {
  dispatch_16_bit(p, [&](auto element) {
    dispatch_head_dim<32, 64, 128>(p, [&](auto d) { launch_head_dim<decltype(element), d>(p, stream); });
  });
}
