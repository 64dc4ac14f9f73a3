// h6b_store: h6_wgmma with store warps, which store O by TMA from the shared memory of Q.
//
// A consumer writes O to the buffer of its Q and begins the next item. Each consumer has a store warp, which
// issues the store, and releases the buffer once the store has read it. Rows beyond the sequence's last query
// are not stored, although the next sequence follows there: the tensor map is a JaggedMap.

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

/// A block's arrangement for elements T and head dimension d.
template <typename T, int d> struct Arrangement {
  // Consumer warpgroups with 64 rows each, and a producer warpgroup. Per thread, O takes d / 2 registers, S
  // half of a tile's keys, and P a quarter. 512 threads start with 128 registers each: 32 + 3 x 160 = 4 x
  // 128. 384 threads start with 168: 40 + 2 x 232 = 3 x 168.
  static constexpr int consumers = d <= 128 ? 3 : 2, threads = 128 * (consumers + 1);
  static constexpr int block_rows = 64 * consumers;
  static constexpr int producer_registers = consumers == 3 ? 32 : 40;
  static constexpr int consumer_registers = consumers == 3 ? 160 : 232;
  static constexpr int keys = d <= 64 ? 128 : d == 128 ? 80 : 64; // per tile
  static constexpr int q_buffers = d == 256 ? 1 : 2, buffers = d == 256 ? 2 : 3;

  using QTile = SharedTile<T, 64, d>;
  using KTile = SharedTile<T, keys, d>;
  struct Shared {
    Ring<QTile, q_buffers, consumers> q; // and O
    Ring<KTile, buffers> k, v;
    Visit visits[buffers]; // of the tiles in k
    Barrier o_full[q_buffers][consumers];
  };
  struct Maps {
    tma::JaggedMap<QTile> q, o;
    tma::JaggedMap<KTile> k, v;
  };
};

template <typename A> struct WorkItem;
template <typename T, int d, typename A> using Sequence = ladder::Sequence<T, d, WorkItem<A>>;
template <typename T, int d, typename A, bool kIntervals> struct Producer;
template <typename T, int d, typename A> struct StoreWarp;
template <typename T, int d, typename A, bool kIntervals> struct Consumer;

template <typename T, int d, typename A, bool kIntervals>
__global__ void __launch_bounds__(A::threads, 1)
    attend(const __grid_constant__ typename A::Maps maps, const __grid_constant__ HstuProblem problem) {
  const int role = warpgroup::index();

  extern __shared__ __align__(1024) unsigned char bytes[];
  auto &smem = *reinterpret_cast<typename A::Shared *>(bytes);
  if (threadIdx.x == 0) {
    smem.q.init(A::consumers); // released by the store warps
    smem.k.init(A::consumers * warpgroup::warps);
    smem.v.init(A::consumers * warpgroup::warps);
    for (auto &buffer : smem.o_full)
      init(buffer, warpgroup::warps);
    fence_barrier_init();
  }
  __syncthreads();

  if (role == A::consumers) {
    decrease_registers<A::producer_registers>();
    if (warpgroup::warp() == 0)
      Producer<T, d, A, kIntervals>{smem, maps, problem}.run();
    else if (warpgroup::warp() <= A::consumers)
      StoreWarp<T, d, A>{smem, maps, problem, warpgroup::warp() - 1}.run();
  } else {
    increase_registers<A::consumer_registers>();
    Consumer<T, d, A, kIntervals>{smem, problem, role}.run();
  }
}

/// A work item: up to block_rows queries of one head and sequence. The items with the most keys have the
/// lowest numbers.
template <typename A> struct WorkItem {
  int number, heads, batch, max_q_len;

  /// Its head, its sequence, and its number among the sequence's blocks of rows.
  __device__ uint3 operator()() const {
    return {unsigned(number % heads), unsigned(number / heads % batch), unsigned(number / heads / batch)};
  }
  __host__ __device__ int count() const {
    return heads * batch * ((max_q_len + A::block_rows - 1) / A::block_rows);
  }
};

/// Calls work(item) for each of the block's work items that has queries. Blocks take items in snake order:
/// in every second round the last block takes the first one.
template <typename T, int d, typename A, typename Work>
__device__ inline void for_each_item(const HstuProblem &p, const Work &work) {
  for (int round = 0;; round++) {
    const int number = round * gridDim.x + (round % 2 ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
    const WorkItem<A> item{number, p.heads, p.batch, p.max_q_len};
    if (item.number >= item.count())
      return;
    const Sequence<T, d, A> sequence(p, item);
    if (sequence.block_row(A::block_rows) < sequence.q_len)
      work(item);
  }
}

/// The producer, a warp: loads the tiles that a row of the block's work items sees.
template <typename T, int d, typename A, bool kIntervals> struct Producer {
  typename A::Shared &smem;
  const typename A::Maps &maps;
  const HstuProblem &problem;
  const bool issues = elect_one();
  Turn<A::q_buffers> q_turn;
  Turn<A::buffers> k_turn, v_turn;

  __device__ void run() {
    for_each_item<T, d, A>(problem, [&](const WorkItem<A> &item) { load(item); });
  }

  __device__ void load(const WorkItem<A> &item) {
    const Sequence<T, d, A> sequence(problem, item);
    const int row = sequence.block_row(A::block_rows), head = item().x;
    const auto mask = sequence.template mask<kIntervals>();
    const int first = row + sequence.shift(), last = sequence.k_len - 1;
    const HstuKeys block_keys(mask, first, min(last, first + A::block_rows - 1));
    const tma::Segment kv{sequence.k_begin, sequence.k_len, head};

    smem.q.wait_empty(q_turn);
    if (issues)
      smem.q.load_async(q_turn, maps.q, row, tma::Segment{sequence.q_begin, sequence.q_len, head});
    q_turn.advance();
    for (int key = block_keys.begin / A::keys * A::keys; key < block_keys.end; key += A::keys) {
      const Visit visit = look_at(mask, first, last, key);
      if (visit.seen == 0)
        continue;
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

  /// Which consumers need the tile at `key`, and for which the mask cuts it. The work item's rows begin at
  /// position `first`; `last` is the sequence's last position. Without intervals lane c checks the rows of
  /// consumer c: the first and the last determine the others. With intervals the lanes share the rows of each
  /// consumer.
  __device__ static Visit look_at(const HstuMask<kIntervals> &mask, int first, int last, int key) {
    Visit visit{key, 0, 0};
    if constexpr (!kIntervals) {
      const int row = first + 64 * lane_id();
      const bool has_rows = lane_id() < A::consumers && row <= last;
      const HstuKeys keys(mask, row, min(last, row + 63));
      visit.seen = __ballot_sync(0xffffffffu, has_rows && keys.any_in(key, A::keys));
      visit.cut = __ballot_sync(0xffffffffu, !keys.all_in(key, A::keys));
    } else {
      for (int consumer = 0; consumer < A::consumers; consumer++) {
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

/// The warp that stores a consumer's O.
template <typename T, int d, typename A> struct StoreWarp {
  typename A::Shared &smem;
  const typename A::Maps &maps;
  const HstuProblem &problem;
  const int consumer;

  __device__ void run() {
    Turn<A::q_buffers> turn;
    for_each_item<T, d, A>(problem, [&](const WorkItem<A> &item) {
      const Sequence<T, d, A> sequence(problem, item);
      const tma::Segment queries{sequence.q_begin, sequence.q_len, int(item().x)};
      const int row = sequence.block_row(A::block_rows) + 64 * consumer;
      smem.o_full[turn.buffer][consumer].wait(turn.parity);
      if (lane_id() == 0) {
        tma::store_async(maps.o, smem.q.tiles[turn.buffer][consumer], row, queries);
        tma::store_commit();
        tma::store_wait_read(); // only this thread waits until TMA has read the buffer
      }
      smem.q.release(turn);
      turn.advance();
    });
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

  __device__ void run() {
    in_turn.start();
    for_each_item<T, d, A>(problem, [&](const WorkItem<A> &item) {
      zero(o);
      auto &q_smem = smem.q.wait_full(q_turn, consumer);
      for (Visit visit = next_seen(); visit.is_tile(); visit = next_seen())
        attend_run(item, visit, q_smem);
      release_k(); // kNoTile's
      write(q_smem);
      q_turn.advance();
    });
    in_turn.stop();
  }

  /// O += P V, for the tile of `visit` and the tiles directly after it that these rows see.
  __device__ void attend_run(const WorkItem<A> &item, Visit visit, const typename A::QTile &q_smem) {
    // S = Q K^T and P = silu(alpha S) of the first tile
    in_turn.wait();
    warpgroup::mma_ABt(s, q_smem, smem.k.wait_full(k_turn));
    in_turn.pass();
    warpgroup::mma_wait(s);
    release_k();
    compute_p(item, visit);
    copy(p_16, s);

    while ((visit = next_tile()).is_seen_by(consumer)) {
      // S = Q K^T, and O += P V with the P of the tile before
      in_turn.wait();
      warpgroup::mma_ABt(s, q_smem, smem.k.wait_full(k_turn));
      warpgroup::mma_AB(o, p_16, smem.v.wait_full(v_turn), o);
      in_turn.pass();
      warpgroup::mma_wait<1>(s);
      release_k();

      // P = silu(alpha S)
      compute_p(item, visit);
      warpgroup::mma_wait(o);
      release_v();
      copy(p_16, s);
    }

    // O += P V of the last tile
    warpgroup::mma_AB(o, p_16, smem.v.wait_full(v_turn), o);
    warpgroup::mma_wait(o);
    release_v();
  }

  /// S becomes P = silu(alpha S), 0 where the mask hides a key.
  __device__ void compute_p(const WorkItem<A> &item, const Visit &visit) {
    silu(s, s, problem.alpha);
    if (!visit.is_cut_for(consumer))
      return;
    // Recomputed here, in the few tiles that the mask cuts: the main loop needs the registers.
    const Sequence<T, d, A> sequence(problem, item);
    const auto mask = sequence.template mask<kIntervals>();
    const int first = sequence.block_row(A::block_rows) + warp_row() + sequence.shift(),
              last = sequence.k_len - 1;
    // Most often the mask cuts only the end of rows: the diagonal.
    const auto only_ends = [&] { return mask.all_before_end(first + 15, visit.key, A::keys); };
    if (only_ends())
      keep_before(s, s, [&](int r) { return mask.end(first + r) - visit.key; });
    if (!only_ends()) // recomputed: keeping it in a register makes ptxas spill
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
      smem.v.wait_full(v_turn);
      release_v();
    }
    return visit;
  }

  __device__ void release_k() {
    smem.k.release(k_turn);
    k_turn.advance();
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
                "h6b_store: shared memory");
  const typename A::Maps maps{
      .q = tma::jagged_map<typename A::QTile>(p.q, p.total_q, p.heads, p.q_stride),
      .o = tma::jagged_map<typename A::QTile>(p.o, p.total_q, p.heads, p.heads * d),
      .k = tma::jagged_map<typename A::KTile>(p.k, p.total_k, p.heads, p.k_stride),
      .v = tma::jagged_map<typename A::KTile>(p.v, p.total_k, p.heads, p.v_stride),
  };
  const int blocks = min(ladder::multiprocessors(), WorkItem<A>{0, p.heads, p.batch, p.max_q_len}.count());
  kernel<<<blocks, A::threads, smem_bytes, stream>>>(maps, p);
  ladder::check(cudaGetLastError(), "h6b_store: launch");
}

} // namespace

void ladder::launch(const HstuProblem &p, cudaStream_t stream) {
  dispatch_16_bit(p, [&](auto element) {
    dispatch_head_dim<32, 64, 128, 256>(p, [&](auto d) { launch_head_dim<decltype(element), d>(p, stream); });
  });
}
