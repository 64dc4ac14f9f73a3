// x1_varlen: x2_window for sequences of different lengths, one after another in one tensor.
//
// The producer finds the sequence of a work item by the offsets, and writes the item beside its Q. A tensor
// map ends where the sequence ends: rows beyond are loaded as zeros and not stored, although the next
// sequence follows there. Tiles of queries begin with the first query, because rows before it belong to the
// previous sequence.
#include <cfloat>
#include <cmath>

#include "ladder/attention.h"
#include "ladder/counter.h"
#include "ladder/dispatch.h"
#include "ladder/head.h"
#include "ladder/jagged_items.h"
#include "tiles/ring.h"
#include "tiles/roles.h"
#include "tiles/tensor_map.h"
#include "tiles/tiles.h"
#include "tiles/warpgroup.h"

namespace {

using AttentionProblem = ladder::AttentionVariant; // with the mask's begin and end, and the offsets
using WorkItem = ladder::JaggedItem;
using namespace tiles;

constexpr float kLog2E = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

/// How far, in powers of two, a weight may exceed 1 before m follows the maximum.
constexpr float kSlack = 4.f;

/// m before the first key. It is finite, so that s - m is -inf and not NaN for a row that has seen none.
constexpr float kLowest = -FLT_MAX;

/// Row statistics: m, the running maximum of the logits or a little less, l, the lane's part of the row sum
/// of the weights, and the factor by which O must be rescaled when m has changed.
template <typename Vec> struct RowState {
  Vec m, l, rescale;
};

/// Tile sizes for elements T and head dimension d.
template <typename T, int d> struct Arrangement {
  static constexpr int consumers = d <= 128 ? 3 : 2, threads = 128 * (consumers + 1);
  static constexpr int block_rows = 64 * consumers;
  // Registers per thread. 512 threads start with 128: 32 + 3 x 160 = 4 x 128.
  // 384 threads start with 168: 24 + 2 x 240 = 3 x 168.
  static constexpr int producer_registers = consumers == 3 ? 32 : 24;
  static constexpr int consumer_registers = consumers == 3 ? 160 : 240;
  static constexpr int keys = d <= 64 ? 128 : d == 128 ? 80 : 64;                // per tile
  static constexpr int q_buffers = d == 256 ? 1 : 2, buffers = d == 256 ? 2 : 3; // as many as fit
  using QTile = SharedTile<T, 64, d>;
  using KTile = SharedTile<T, keys, d>;
  struct Shared {
    Ring<QTile, q_buffers, consumers> q; // and O
    Ring<KTile, buffers> k, v;
    WorkItem items[q_buffers]; // for each Q
  };
  struct Maps {
    tma::JaggedMap<QTile> q, o;
    tma::JaggedMap<KTile> k, v;
  };
};

template <typename T, int d, typename A>
__global__ void __launch_bounds__(A::threads, 1)
    attend(const __grid_constant__ typename A::Maps maps, const __grid_constant__ AttentionProblem problem,
           float late_scale, unsigned *counter) {
  extern __shared__ __align__(1024) unsigned char bytes[];
  auto &smem = *reinterpret_cast<typename A::Shared *>(bytes);
  if (threadIdx.x == 0) {
    smem.q.init(A::consumers * warpgroup::warps);
    smem.k.init(A::consumers * warpgroup::warps);
    smem.v.init(A::consumers * warpgroup::warps);
    fence_barrier_init();
  }
  __syncthreads();

  if (warpgroup::index() == A::consumers) {
    decrease_registers<A::producer_registers>();
    if (warpgroup::warp() == 0 && elect_one())
      produce<A>(smem, maps, problem, counter);
  } else {
    increase_registers<A::consumer_registers>();
    consume<T, d, A>(smem, maps, problem, late_scale);
  }
}

/// The producer, a single thread.
template <typename A>
__device__ inline void produce(typename A::Shared &smem, const typename A::Maps &maps,
                               const AttentionProblem &problem, unsigned *counter) {
  const unsigned count = WorkItem::count(problem, A::block_rows);
  unsigned number = blockIdx.x;
  Turn<A::q_buffers> q_turn;
  Turn<A::buffers> turn;
  // All blocks together increment the counter `count` times. The last increment wraps it to 0.
  for (; number < count; number = gridDim.x + atomicInc(counter, count - 1)) {
    const WorkItem item(problem, A::block_rows, number);
    smem.q.wait_empty(q_turn);
    smem.items[q_turn.buffer] = item;
    smem.q.load_async(q_turn, maps.q, item.row, item.head);
    q_turn.advance();
    for (int key = item.key; key < item.end; key += A::keys, turn.advance()) {
      smem.k.wait_empty(turn);
      smem.k.load_async(turn, maps.k, key, item.kv_head);
      smem.v.wait_empty(turn);
      smem.v.load_async(turn, maps.v, key, item.kv_head);
    }
  }
  // An item without rows, and without a Q, tells the consumers to stop.
  smem.q.wait_empty(q_turn);
  smem.items[q_turn.buffer] = WorkItem(problem, A::block_rows, number);
  smem.q.full[q_turn.buffer].arrive();
}

/// A consumer, a warpgroup with 64 rows.
template <typename T, int d, typename A>
__device__ inline void consume(typename A::Shared &smem, const typename A::Maps &maps,
                               const AttentionProblem &problem, float late_scale) {
  RegTile<float, 16, A::keys> s;
  RegTile<T, 16, A::keys> p_16;
  RegTile<float, 16, d> o;
  RowState<typename RegTile<float, 16, d>::ColVec> rows;

  const InTurn<A::consumers, 1> in_turn{warpgroup::index()};
  in_turn.start();
  Turn<A::q_buffers> q_turn, o_turn;
  Turn<A::buffers> k_turn, v_turn;
  for (bool is_first = true;; is_first = false) {
    auto &q_smem = smem.q.wait_full(q_turn, warpgroup::index());
    const WorkItem &item = smem.items[q_turn.buffer];
    if (item.head.rows == 0)
      break;
    const int warpgroup_row = item.row + 64 * warpgroup::index(),
              row = warpgroup_row + 16 * warpgroup::warp();
    // A consumer skips the tiles before the first one that its rows see and after the last one, or all if it
    // has no rows.
    const bool has_rows = warpgroup_row < item.head.rows;
    const int end = has_rows ? item.end_key(min(warpgroup_row + 64, item.head.rows) - 1) : 0;
    const int before = item.first_key(warpgroup_row) - item.key;
    const bool sees = item.key + before < end;
    int key = item.key;
    for (const int first = sees ? key + before / A::keys * A::keys : item.end; key < first;
         key += A::keys, k_turn.advance(), v_turn.advance())
      pass_tile<A>(smem, in_turn, key > item.key, k_turn, v_turn);
    zero(o);
    zero(rows.l);
    fill(rows.m, kLowest);
    if (sees) {
      // S = Q K^T and P = exp(S - m) of the first tile
      if (key > item.key)
        in_turn.wait();
      warpgroup::mma_ABt(s, q_smem, smem.k.wait_full(k_turn));
      if (key > item.key)
        in_turn.pass();
      if (A::q_buffers > 1 && !is_first)
        finish_store<A>(smem, o_turn); // of the previous item
      warpgroup::mma_wait(s);
      smem.k.release(k_turn);
      k_turn.advance();
      softmax(s, rows, problem, item, late_scale, row, key);
      copy(p_16, s);

      for (key += A::keys; key < end; key += A::keys, k_turn.advance(), v_turn.advance()) {
        // S = Q K^T, and O += P V of the tile before
        auto &k_smem = smem.k.wait_full(k_turn);
        in_turn.wait();
        warpgroup::mma_ABt(s, q_smem, k_smem);
        warpgroup::mma_AB(o, p_16, smem.v.wait_full(v_turn), o);
        in_turn.pass();
        warpgroup::mma_wait<1>(s);
        smem.k.release(k_turn);

        // P = exp(S - m)
        const bool changed = softmax(s, rows, problem, item, late_scale, row, key);
        warpgroup::mma_wait(o);
        smem.v.release(v_turn);
        copy(p_16, s);
        if (changed)
          mul_row(o, o, rows.rescale);
      }

      // O += P V of the last tile
      warpgroup::mma_AB(o, p_16, smem.v.wait_full(v_turn), o);
      warpgroup::mma_wait(o);
      smem.v.release(v_turn);
      v_turn.advance();
    } else if (A::q_buffers > 1 && !is_first) {
      finish_store<A>(smem, o_turn);
    }

    for (; key < item.end; key += A::keys, k_turn.advance(), v_turn.advance())
      pass_tile<A>(smem, in_turn, true, k_turn, v_turn);

    if (has_rows) {
      write<A>(maps, problem, q_smem, o, rows, item.head, warpgroup_row);
    }
    o_turn = q_turn;
    q_turn.advance();
    if (A::q_buffers == 1)
      finish_store<A>(smem, o_turn); // the only buffer: the producer waits for it
  }
  in_turn.stop();
  if (warpgroup::thread() == 0)
    tma::store_wait_read(); // the block must not end before TMA has read its shared memory
}

/// Stores a consumer's O and lse.
template <typename A, RegisterTile O, typename Vec>
__device__ inline void write(const typename A::Maps &maps, const AttentionProblem &problem,
                             typename A::QTile &q_smem, O &o, RowState<Vec> &rows, const tma::Segment &head,
                             int warpgroup_row) {
  sum_over_lanes(rows.l);
  add(rows.rescale, rows.l, FLT_MIN); // l is 0 or at least 1: changes only 0 / 0, to 0
  div_row(o, o, rows.rescale);
  store_async<A>(maps, q_smem, o, warpgroup_row, head);
  log(rows.l, rows.l);
  mul(rows.m, rows.m, kLn2);
  add(rows.l, rows.l, rows.m);
  float *lse = problem.lse + int64_t(head.head) * problem.total_q + head.first;
  store(GlobalVec<float>{lse, head.rows}, rows.l, warpgroup_row + 16 * warpgroup::warp());
}

/// Waits for a tile that only other consumers see, passes the turn and releases the buffers. The first tile
/// of an item has no turn.
template <typename A, typename Order>
__device__ inline void pass_tile(typename A::Shared &smem, const Order &in_turn, bool has_turn,
                                 Turn<A::buffers> k_turn, Turn<A::buffers> v_turn) {
  smem.k.wait_full(k_turn);
  if (has_turn) {
    in_turn.wait();
    in_turn.pass();
  }
  smem.k.release(k_turn);
  smem.v.wait_full(v_turn);
  smem.v.release(v_turn);
}

/// Issues the store of a consumer's O, through the shared memory of its Q. Rows beyond the last one are not
/// stored.
template <typename A, RegisterTile O>
__device__ inline void store_async(const typename A::Maps &maps, typename A::QTile &smem, const O &o, int row,
                                   const tma::Segment &head) {
  RegTile<typename A::QTile::Elem, 16, O::cols> o_16;
  copy(o_16, o);
  const int barrier = 1 + A::consumers + warpgroup::index(); // lower numbers are in_turn's
  warpgroup::sync(barrier);                                  // all warps have finished reading Q
  warpgroup::store(smem, o_16);
  fence_async_proxy();
  warpgroup::sync(barrier);
  if (warpgroup::thread() == 0) {
    tma::store_async(maps.o, smem, row, head);
    tma::store_commit();
  }
}

/// Releases the buffer of Q once the consumer's store of O has read it. All warps release it, the first one
/// after it has waited for the store.
template <typename A> __device__ inline void finish_store(typename A::Shared &smem, Turn<A::q_buffers> turn) {
  if (warpgroup::thread() == 0)
    tma::store_wait_read();
  __syncwarp(); // all lanes have read the item beside Q
  smem.q.release(turn);
}

/// Turns the logits S of a tile, whose first row and key are given, into weights P = exp(S - m). Returns
/// whether m has changed.
///
/// `late_scale`, by which S is multiplied after the maximum, is scale * log2(e), so exp(s) becomes exp2(s).
/// For a scale of 0 or below it is 1, and S is scaled before the maximum.
template <RegisterTile S, typename Vec, typename Item>
__device__ inline bool softmax(S &s, RowState<Vec> &rows, const AttentionProblem &problem, const Item &item,
                               float late_scale, int row, int key) {
  if (problem.scale <= 0.f)
    mul(s, s, problem.scale * kLog2E);
  right_fill(s, s, item.kv_head.rows - key);
  make_causal(s, s, row + item.mask.end - 1, key);
  if (row + 15 + item.mask.begin > key)
    triu(s, s, row + item.mask.begin - key, -INFINITY);

  Vec m_new;
  row_max_in_lane(m_new, s);
  mul(m_new, m_new, late_scale);
  const bool changed = any_above(m_new, rows.m, kSlack);
  if (changed) {
    max_over_lanes(m_new);
    max(m_new, m_new, rows.m);
    sub(rows.rescale, rows.m, m_new);
    exp2(rows.rescale, rows.rescale);
    mul(rows.l, rows.l, rows.rescale);
    copy(rows.m, m_new);
  }
  mul(s, s, late_scale);
  sub_row(s, s, rows.m);
  exp2(s, s);
  row_sum_in_lane(rows.l, s, rows.l);
  return changed;
}

template <typename T, int d> void launch_head_dim(const AttentionProblem &p, cudaStream_t stream) {
  using A = Arrangement<T, d>;
  constexpr int smem_bytes = sizeof(typename A::Shared);
  constexpr auto kernel = attend<T, d, A>;
  ladder::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem_bytes),
                "x1_varlen: shared memory");
  const unsigned most_tiles = (p.q_len + A::block_rows - 1) / A::block_rows;
  const unsigned blocks = min(ladder::multiprocessors(), p.batch * p.heads * most_tiles);
  const ladder::LaunchCounter counter(stream, "x1_varlen: counter");
  const float late_scale = p.scale > 0.f ? p.scale * kLog2E : 1.f;
  const typename A::Maps maps{
      .q = tma::jagged_map<typename A::QTile>(p.q, p.total_q, p.heads, p.heads * d),
      .o = tma::jagged_map<typename A::QTile>(p.o, p.total_q, p.heads, p.heads * d),
      .k = tma::jagged_map<typename A::KTile>(p.k, p.total_k, p.kv_heads, p.kv_heads * d),
      .v = tma::jagged_map<typename A::KTile>(p.v, p.total_k, p.kv_heads, p.kv_heads * d),
  };
  kernel<<<blocks, A::threads, smem_bytes, stream>>>(maps, p, late_scale, counter.data());
  ladder::check(cudaGetLastError(), "x1_varlen: launch");
}

} // namespace

void ladder::launch(const AttentionProblem &p, cudaStream_t stream) {
  require_alignment(p, 16);
  require_rows_fit(p);
  dispatch_16_bit(p, [&](auto element) {
    dispatch_head_dim<64, 128, 256>(
        p, [&](auto d) { launch_head_dim<decltype(element), d>(variant_of(p), stream); });
  });
}
