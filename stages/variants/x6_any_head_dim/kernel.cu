// x6_any_head_dim: v12c_end_aligned for every head dimension that is a multiple of 8, up to 256.
//
// A tile has 64, 128, 192 or 256 columns, the problem at most as many. TMA compares columns with the tensor's
// width: it loads those beyond as zeros, and does not store them. Zeros change neither Q K^T nor the columns
// of O that are stored. So the consumers compute as if d were the tile's width.
#include <cmath>

#include "ladder/attention.h"
#include "ladder/counter.h"
#include "ladder/dispatch.h"
#include "ladder/head.h"
#include "tiles/padded_map.h"
#include "tiles/ring.h"
#include "tiles/roles.h"
#include "tiles/tiles.h"
#include "tiles/warpgroup.h"

namespace {

using ladder::AttentionProblem;
using namespace tiles;

constexpr float kLog2E = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

/// m follows the maximum only when a weight exp(s - m) would exceed 2^kSlack.
constexpr float kSlack = 4.f;

/// Causal: the most heads in a group, and the most bytes of their K and V, which the blocks read at the same
/// time.
constexpr int64_t kMostHeads = 16, kMostBytes = 32 << 20;

/// Row statistics of a warp's rows. m: the running maximum of the logits, or up to kSlack less. l: this
/// lane's part of the row sum of the weights. rescale: the factor of O and l after m has changed.
template <typename Vec> struct RowState {
  Vec m, l, rescale;
};

/// Tile sizes for elements T and tiles of d columns.
template <typename T, int d> struct Arrangement {
  static constexpr int consumers = d <= 128 ? 3 : 2, threads = 128 * (consumers + 1);
  static constexpr int block_rows = 64 * consumers;
  // Registers per thread. 512 threads start with 128: 32 + 3 x 160 = 4 x 128.
  // 384 threads start with 168: 24 + 2 x 240 = 3 x 168.
  static constexpr int producer_registers = consumers == 3 ? 32 : 24;
  static constexpr int consumer_registers = consumers == 3 ? 160 : 240;
  static constexpr int keys = d == 64 ? 128 : d == 128 ? 80 : d == 192 ? 112 : 64; // per tile
  static constexpr int q_buffers = d <= 128 ? 2 : 1, buffers = d <= 128 ? 3 : 2;   // as many as fit
  using QTile = SharedTile<T, 64, d>;
  using KTile = SharedTile<T, keys, d>;
  struct Shared {
    Ring<QTile, q_buffers, consumers> q; // O is stored from Q's buffers
    Ring<KTile, buffers> k, v;
    unsigned number[q_buffers]; // the work item of each Q
  };
  struct Maps {
    tma::PaddedMap<QTile> q, o;
    tma::PaddedMap<KTile> k, v;
  };
};

/// A work item: the queries from `row` on of one head, and how many keys they see. The items of `together`
/// heads form a group, and `among` is an item's index in it. The last rows of all heads come first.
template <typename A> struct WorkItem {
  int row, head, kv_head, keys;

  __host__ __device__ static unsigned per_head(const AttentionProblem &p) {
    return (p.q_len + A::block_rows - 1) / A::block_rows;
  }
  __host__ __device__ static unsigned count(const AttentionProblem &p) {
    return p.batch * p.heads * per_head(p);
  }

  static unsigned heads_together(const AttentionProblem &p) {
    const int64_t head_bytes = 2 * int64_t(p.kv_len) * (sizeof(typename A::KTile) / A::keys);
    return p.is_causal ? max(min(kMostBytes / head_bytes, kMostHeads), int64_t(1)) : 1;
  }

  __device__ WorkItem(const AttentionProblem &p, unsigned together, unsigned number) {
    const unsigned per_group = together * per_head(p), group = number / per_group, among = number % per_group;
    const unsigned heads = min(together, p.batch * p.heads - group * together); // fewer in the last group
    // Causal: the last rows see the most keys. The first tile may begin before row 0, by a multiple of a
    // consumer's 64 rows.
    row = (p.q_len + 63u) / 64 * 64 - (among / heads + 1) * A::block_rows;
    head = group * together + among % heads;
    kv_head = head / (p.heads / p.kv_heads);
    keys = p.is_causal ? min(p.kv_len, row + A::block_rows) : p.kv_len;
  }
};

template <typename T, int d, typename A>
__global__ void __launch_bounds__(A::threads, 1)
    attend(const __grid_constant__ typename A::Maps maps, const __grid_constant__ AttentionProblem problem,
           unsigned together, float late_scale, unsigned *counter) {
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
      produce<A>(smem, maps, problem, together, counter);
  } else {
    increase_registers<A::consumer_registers>();
    consume<T, d, A>(smem, maps, problem, together, late_scale);
  }
}

/// The producer, a single thread.
template <typename A>
__device__ inline void produce(typename A::Shared &smem, const typename A::Maps &maps,
                               const AttentionProblem &problem, unsigned together, unsigned *counter) {
  const unsigned count = WorkItem<A>::count(problem);
  unsigned number = blockIdx.x;
  Turn<A::q_buffers> q_turn;
  Turn<A::buffers> turn;
  // The counter is incremented after each item, `count` times over all blocks. The last increment wraps it to
  // 0, ready for the next launch.
  for (; number < count; number = gridDim.x + atomicInc(counter, count - 1)) {
    const WorkItem<A> item(problem, together, number);
    smem.q.wait_empty(q_turn);
    smem.number[q_turn.buffer] = number;
    smem.q.load_async(q_turn, maps.q, item.row, item.head);
    q_turn.advance();
    for (int key = 0; key < item.keys; key += A::keys, turn.advance()) {
      smem.k.wait_empty(turn);
      smem.k.load_async(turn, maps.k, key, item.kv_head);
      smem.v.wait_empty(turn);
      smem.v.load_async(turn, maps.v, key, item.kv_head);
    }
  }
  // A number past the last item, without a Q, tells the consumers to stop.
  smem.q.wait_empty(q_turn);
  smem.number[q_turn.buffer] = number;
  smem.q.full[q_turn.buffer].arrive();
}

/// A consumer, a warpgroup with 64 rows.
template <typename T, int d, typename A>
__device__ inline void consume(typename A::Shared &smem, const typename A::Maps &maps,
                               const AttentionProblem &problem, unsigned together, float late_scale) {
  RegTile<float, 16, A::keys> s; // S of a warp
  RegTile<T, 16, A::keys> p_16;  // P, rounded: operand A
  RegTile<float, 16, d> o;       // O of a warp
  RowState<typename RegTile<float, 16, d>::ColVec> rows;

  const InTurn<A::consumers, 1> in_turn{warpgroup::index()};
  in_turn.start();
  Turn<A::q_buffers> q_turn, o_turn;
  Turn<A::buffers> k_turn, v_turn;
  while (true) {
    auto &q_smem = smem.q.wait_full(q_turn, warpgroup::index());
    const unsigned number = uniform(smem.number[q_turn.buffer]);
    __syncwarp(); // all lanes have read it before the buffer is released
    if (number >= WorkItem<A>::count(problem))
      break;
    const WorkItem<A> item(problem, together, number);
    const int warpgroup_row = item.row + 64 * warpgroup::index(),
              row = warpgroup_row + 16 * warpgroup::warp();
    // Causal: query i sees keys 0 to i, so a consumer skips later tiles. Without rows it skips all tiles.
    const int keys = warpgroup_row < 0   ? 0
                     : problem.is_causal ? min(problem.kv_len, warpgroup_row + 64)
                                         : problem.kv_len;
    int key = 0;
    if (keys > 0) {
      zero(o);
      zero(rows.l);
      neg_infty(rows.m);

      // S = Q K^T and P = exp(S - m) of the first tile
      warpgroup::mma_ABt(s, q_smem, smem.k.wait_full(k_turn));
      if (A::q_buffers > 1 && number != blockIdx.x)
        finish_store<A>(smem, o_turn); // of the previous item
      warpgroup::mma_wait(s);
      smem.k.release(k_turn);
      k_turn.advance();
      softmax(s, rows, problem, late_scale, row, 0);
      copy(p_16, s);

      for (key = A::keys; key < keys; key += A::keys, k_turn.advance(), v_turn.advance()) {
        // S = Q K^T, and O += P V of the tile before
        auto &k_smem = smem.k.wait_full(k_turn);
        in_turn.wait();
        warpgroup::mma_ABt(s, q_smem, k_smem);
        warpgroup::mma_AB(o, p_16, smem.v.wait_full(v_turn), o);
        in_turn.pass();
        warpgroup::mma_wait<1>(s);
        smem.k.release(k_turn);

        // P = exp(S - m)
        const bool changed = softmax(s, rows, problem, late_scale, row, key);
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
    } else if (A::q_buffers > 1 && number != blockIdx.x) {
      finish_store<A>(smem, o_turn);
    }

    for (; key < item.keys; key += A::keys, k_turn.advance(), v_turn.advance())
      pass_tile<A>(smem, in_turn, key, k_turn, v_turn);

    if (keys > 0) {
      sum_over_lanes(rows.l);
      div_row(o, o, rows.l);
      store_async<A>(maps, q_smem, o, warpgroup_row, item.head);
      log(rows.l, rows.l);
      mul(rows.m, rows.m, kLn2);
      add(rows.l, rows.l, rows.m);
      store(lse_of(problem, item.head), rows.l, row);
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

/// Waits for the tile from `key` on, which only other consumers use, and releases its buffers. Passes the
/// turn to issue products, except for the first tile of an item, whose products need no order.
template <typename A, typename Order>
__device__ inline void pass_tile(typename A::Shared &smem, const Order &in_turn, int key,
                                 Turn<A::buffers> k_turn, Turn<A::buffers> v_turn) {
  smem.k.wait_full(k_turn);
  if (key > 0) {
    in_turn.wait();
    in_turn.pass();
  }
  smem.k.release(k_turn);
  smem.v.wait_full(v_turn);
  smem.v.release(v_turn);
}

/// Copies a consumer's O to the shared memory of its Q, and issues its TMA store. TMA skips rows beyond the
/// last one.
template <typename A, RegisterTile O>
__device__ inline void store_async(const typename A::Maps &maps, typename A::QTile &smem, const O &o, int row,
                                   int head) {
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

/// Waits until the store of O has read Q's buffer, and releases the buffer. Only the thread that issued the
/// store waits; each warp releases.
template <typename A> __device__ inline void finish_store(typename A::Shared &smem, Turn<A::q_buffers> turn) {
  if (warpgroup::thread() == 0)
    tma::store_wait_read();
  smem.q.release(turn);
}

/// Replaces the logits S of a tile by the weights P = exp(S - m). `row` and `key` are the tile's first row
/// and first key. Returns whether m has changed.
///
/// `late_scale` is scale * log2(e), so exp(s) becomes exp2(s). S is multiplied by it after the maximum. For
/// scale <= 0 it is 1, and S is scaled before: a negative factor would turn the maximum into the minimum.
template <RegisterTile S, typename Vec>
__device__ inline bool softmax(S &s, RowState<Vec> &rows, const AttentionProblem &problem, float late_scale,
                               int row, int key) {
  if (problem.scale <= 0.f)
    mul(s, s, problem.scale * kLog2E);
  right_fill(s, s, problem.kv_len - key);
  if (problem.is_causal)
    make_causal(s, s, row, key);

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

template <typename T, int d> void launch_columns(const AttentionProblem &p, cudaStream_t stream) {
  using A = Arrangement<T, d>;
  constexpr int smem_bytes = sizeof(typename A::Shared);
  constexpr auto kernel = attend<T, d, A>;
  ladder::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem_bytes),
                "x6_any_head_dim: shared memory");
  const unsigned blocks = min(ladder::multiprocessors(), WorkItem<A>::count(p));
  const unsigned together = WorkItem<A>::heads_together(p);
  const ladder::LaunchCounter counter(stream, "x6_any_head_dim: counter");
  const float late_scale = p.scale > 0.f ? p.scale * kLog2E : 1.f;
  const ladder::Strides rows_of_o{int64_t(p.heads) * p.q_len * p.head_dim, int64_t(p.q_len) * p.head_dim,
                                  p.head_dim};
  const typename A::Maps maps{
      .q = tma::padded_map<typename A::QTile>(p.q, p.q_strides, p.q_len, p.heads, p.batch, p.head_dim),
      .o = tma::padded_map<typename A::QTile>(p.o, rows_of_o, p.q_len, p.heads, p.batch, p.head_dim),
      .k = tma::padded_map<typename A::KTile>(p.k, p.k_strides, p.kv_len, p.kv_heads, p.batch, p.head_dim),
      .v = tma::padded_map<typename A::KTile>(p.v, p.v_strides, p.kv_len, p.kv_heads, p.batch, p.head_dim),
  };
  kernel<<<blocks, A::threads, smem_bytes, stream>>>(maps, p, together, late_scale, counter.data());
  ladder::check(cudaGetLastError(), "x6_any_head_dim: launch");
}

} // namespace

void ladder::launch(const AttentionProblem &p, cudaStream_t stream) {
  require_alignment(p, 16);
  require_rows_fit(p);
  const int columns = (p.head_dim + 63) / 64 * 64; // of a tile
  if (p.head_dim % 8 != 0 || p.head_dim > 256)
    refuse("head_dim must be a multiple of 8 up to 256, not %d", p.head_dim);
  dispatch_16_bit(p, [&](auto element) {
    dispatch_size<64, 128, 192, 256>("columns", columns, [&](auto d) {
      if constexpr ((d & LADDER_HEAD_DIMS) == d)
        launch_columns<decltype(element), d>(p, stream);
      else
        refuse("this build leaves out head_dim %d", p.head_dim);
    });
  });
}
