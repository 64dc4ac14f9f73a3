// v11_persistent: v10_pingpong, whose blocks stay for all the work there is.
//
// A block an SM takes one tile of queries after the other, so that no tile waits for a block to begin or to
// end: the Q of the next one is brought while this one is worked on, and O leaves while the next one is
// begun, out of the shared memory that its Q had. Tiles are dealt in an order that gives every block as much
// work as the others, also where tiles differ, under a causal mask; so all end together.
#include <algorithm>
#include <cmath>

#include "ladder/attention.h"
#include "ladder/dispatch.h"
#include "ladder/head.h"
#include "tiles/ring.h"
#include "tiles/roles.h"
#include "tiles/tensor_map.h"
#include "tiles/tiles.h"
#include "tiles/warpgroup.h"

// Options of stage.toml, set when building; 0 leaves them to Arrangement.
#ifndef CONSUMERS
#define CONSUMERS 0
#endif
#ifndef KEYS
#define KEYS 0
#endif
#ifndef BUFFERS
#define BUFFERS 0
#endif

namespace {

using ladder::AttentionProblem;
using namespace tiles;

constexpr float kLog2E = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

/// While the maximum has grown by less than a factor of 2^kSlack in the weights, the old one serves, as in
/// v6_lean. More slack than there, since four warps wait for the one that rescales.
constexpr float kSlack = 4.f;

/// Bytes of K and V that blocks may work on at a time; more than the L2 cache holds, since blocks that read
/// the same tile do it at about the same time.
constexpr int64_t kServedBytes = 128 << 20;

/// A block's arrangement for elements T and head dimension d.
template <typename T, int d> struct Arrangement {
  // Warpgroups that compute, each 64 rows, beside the one that has tiles brought. The registers that this one
  // gives up let O, d / 2 of a thread's, S, half the keys of a tile, and P, a quarter, fit: 512 threads have
  // 128 each, 32 + 3 x 160 = 4 x 128, and 384 have 168 each, 24 + 2 x 240 = 3 x 168. At d = 128 three with
  // fewer keys pay, since K and V come for more rows at a time.
  static constexpr int consumers = CONSUMERS ? CONSUMERS : d <= 128 ? 3 : 2;
  static constexpr int producer_registers = consumers == 3 ? 32 : 24,
                       consumer_registers = consumers == 3 ? 160 : 240;
  static constexpr int threads = 128 * (consumers + 1), block_rows = 64 * consumers;
  static constexpr int keys = KEYS ? KEYS : d <= 64 ? 128 : d == 128 ? 80 : 64; // of a tile
  static constexpr int buffers = BUFFERS ? BUFFERS : d == 256 ? 2 : 3, q_buffers = d == 256 ? 1 : 2;

  using QTile = SharedTile<T, 64, d>;
  using KTile = SharedTile<T, keys, d>;
  struct Shared {
    Ring<QTile, q_buffers, consumers> q; // later the O of the same rows
    Ring<KTile, buffers> k, v;
  };
  struct Maps {
    tma::TensorMap<QTile> q, o;
    tma::TensorMap<KTile> k, v;
  };

  /// Whether O, S and P fit into a thread's registers, with 32 for the rest, and the tiles into shared
  /// memory.
  static constexpr bool fits =
      d / 2 + keys / 2 + keys / 4 + 32 <= std::min(consumer_registers, 256) && sizeof(Shared) <= 227 * 1024;
};

/// What the rows of queries carry from tile to tile: the number that is taken off their logits, the sum of
/// their weights, and the factor by which O is to follow when the former has changed.
template <typename Vec> struct RowState {
  Vec m, l, rescale;
};

/// Turns a tile of logits into weights, P = exp2(S - m). Returns whether m has changed.
///
/// A positive scale can wait until after the maximum, to be one fused multiply-add with its subtraction: then
/// it is late_scale, which otherwise is 1.
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

/// A piece of work: so many rows of queries of one head, and the keys that they see.
///
/// Pieces are numbered, and dealt to the blocks like cards, there and back: round by round, and in every
/// second one the last block comes first. Numbers go from head to head, so that blocks that work at the same
/// time read the same K and V. Under a causal mask they go from the longest piece, the last rows, to the
/// shortest, of several heads together: who had the longest of a round gets the shortest of the next.
template <typename A> struct Work {
  int row, head, kv_head, keys;

  __host__ __device__ static int per_head(const AttentionProblem &p) {
    return (p.q_len + A::block_rows - 1) / A::block_rows;
  }
  __host__ __device__ static int count(const AttentionProblem &p) { return p.batch * p.heads * per_head(p); }

  /// The number of the piece that this block gets in a round; if it is not below count(), there is none.
  __device__ static int dealt(int round) {
    return round * gridDim.x + (round % 2 ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
  }

  /// Under a causal mask as many heads as make two pieces each a round, but no more than the L2 cache serves
  /// well: their K and V come from it once for each of a round's pieces.
  static int heads_together(const AttentionProblem &p, int blocks) {
    const int64_t row_bytes = sizeof(typename A::KTile) / A::keys;
    const int64_t served = kServedBytes / std::max<int64_t>(2 * row_bytes * p.kv_len, 1);
    return p.is_causal ? std::max<int64_t>(1, std::min<int64_t>(blocks / 2, served)) : 1;
  }

  __device__ Work(const AttentionProblem &p, int together, int number) {
    const int heads = p.batch * p.heads, n = per_head(p);
    const int first_head = number / (together * n) * together, among = number - first_head * n;
    const int present = min(together, heads - first_head);
    row = (n - 1 - among / present) * A::block_rows;
    head = first_head + among % present;
    kv_head = head / (p.heads / p.kv_heads);
    keys = p.is_causal ? min(p.kv_len, row + A::block_rows) : p.kv_len;
  }

  /// A consumer's first row, and how many keys its rows see: less than all if the mask is causal, and where
  /// there are no such rows next to none.
  __device__ int consumer_row(int consumer) const { return row + 64 * consumer; }
  __device__ int consumer_keys(const AttentionProblem &p, int consumer) const {
    if (consumer_row(consumer) >= p.q_len)
      return 1;
    return p.is_causal ? min(p.kv_len, consumer_row(consumer) + 64) : p.kv_len;
  }
};

/// The producer, a single thread.
template <typename A>
__device__ inline void produce(typename A::Shared &smem, const typename A::Maps &maps,
                               const AttentionProblem &problem, int together) {
  Turn<A::q_buffers> q_turn;
  Turn<A::buffers> turn;
  for (int round = 0; Work<A>::dealt(round) < Work<A>::count(problem); round++) {
    const Work<A> work(problem, together, Work<A>::dealt(round));
    smem.q.wait_empty(q_turn);
    smem.q.load_async(q_turn, maps.q, work.row, work.head);
    q_turn.advance();
    for (int key = 0; key < work.keys; key += A::keys) {
      smem.k.wait_empty(turn);
      smem.k.load_async(turn, maps.k, key, work.kv_head);
      smem.v.wait_empty(turn);
      smem.v.load_async(turn, maps.v, key, work.kv_head);
      turn.advance();
    }
  }
}

/// A consumer, a warpgroup with 64 rows.
template <typename T, int d, typename A>
__device__ inline void consume(typename A::Shared &smem, const typename A::Maps &maps,
                               const AttentionProblem &problem, int together, float late_scale,
                               int consumer) {
  RegTile<float, 16, A::keys> s;
  RegTile<T, 16, A::keys> p;
  RegTile<float, 16, d> o;
  RegTile<T, 16, d> o_16;
  RowState<typename RegTile<float, 16, d>::ColVec> rows;

  const InTurn<A::consumers, 1> in_turn{consumer};
  in_turn.start();
  Turn<A::q_buffers> q_turn, stored_turn;
  Turn<A::buffers> k_turn, v_turn;
  const bool stores = threadIdx.x % 128 == 0;
  bool stored = false; // whether an O is on its way, out of the buffer of stored_turn
  const auto finish_store = [&] {
    if (!stored)
      return;
    if (stores)
      tma::store_wait_read();
    smem.q.release(stored_turn);
  };

  for (int round = 0; Work<A>::dealt(round) < Work<A>::count(problem); round++, q_turn.advance()) {
    const Work<A> work(problem, together, Work<A>::dealt(round));
    const int row = work.consumer_row(consumer) + 16 * warpgroup::warp();
    const int keys = work.consumer_keys(problem, consumer);
    zero(o);
    zero(rows.l);
    neg_infty(rows.m);

    // S = Q K^T and P = exp(S - m) of the first tile
    auto &q_smem = smem.q.wait_full(q_turn, consumer);
    warpgroup::mma_ABt(s, q_smem, smem.k.wait_full(k_turn));
    if constexpr (A::q_buffers > 1)
      finish_store();
    warpgroup::mma_wait(s);
    smem.k.release(k_turn);
    k_turn.advance();
    softmax(s, rows, problem, late_scale, row, 0);
    copy(p, s);

    for (int key = A::keys; key < keys; key += A::keys) {
      // S = Q K^T, and O += P V with the P of the tile before
      auto &k_smem = smem.k.wait_full(k_turn);
      in_turn.wait();
      warpgroup::mma_ABt(s, q_smem, k_smem);
      warpgroup::mma_AB(o, p, smem.v.wait_full(v_turn), o);
      in_turn.pass();
      warpgroup::mma_wait<1>(s);
      smem.k.release(k_turn);
      k_turn.advance();

      // P = exp(S - m)
      const bool changed = softmax(s, rows, problem, late_scale, row, key);
      warpgroup::mma_wait(o);
      smem.v.release(v_turn);
      v_turn.advance();
      copy(p, s);
      if (changed)
        mul_row(o, o, rows.rescale);
    }

    // O += P V of the last tile
    warpgroup::mma_AB(o, p, smem.v.wait_full(v_turn), o);
    warpgroup::mma_wait(o);
    smem.v.release(v_turn);
    v_turn.advance();

    // Tiles that only consumers of later rows see.
    for (int key = (keys + A::keys - 1) / A::keys * A::keys; key < work.keys; key += A::keys) {
      smem.k.wait_full(k_turn);
      in_turn.wait();
      in_turn.pass();
      smem.k.release(k_turn);
      k_turn.advance();
      smem.v.wait_full(v_turn);
      smem.v.release(v_turn);
      v_turn.advance();
    }

    sum_over_lanes(rows.l);
    div_row(o, o, rows.l);
    copy(o_16, o);
    warpgroup::sync(8 + consumer); // all warps are done with Q
    warpgroup::store(q_smem, o_16);
    fence_async_proxy();
    warpgroup::sync(8 + consumer);
    if (stores) {
      tma::store_async(maps.o, q_smem, work.consumer_row(consumer), work.head);
      tma::store_commit();
    }
    stored = true;
    stored_turn = q_turn;
    if constexpr (A::q_buffers == 1)
      finish_store();
    log(rows.l, rows.l);
    mul(rows.m, rows.m, kLn2);
    add(rows.l, rows.l, rows.m);
    store(GlobalVec<float>{problem.lse + int64_t(work.head) * problem.q_len, problem.q_len}, rows.l, row);
  }
  in_turn.stop();
  if (stores)
    tma::store_wait_read(); // shared memory is the block's until it ends
}

template <typename T, int d, typename A>
__global__ void __launch_bounds__(A::threads, 1)
    attend(const __grid_constant__ typename A::Maps maps, const __grid_constant__ AttentionProblem problem,
           int together, float late_scale) {
  const int role = warpgroup::index();

  extern __shared__ __align__(1024) unsigned char bytes[];
  auto &smem = *reinterpret_cast<typename A::Shared *>(bytes);
  if (threadIdx.x == 0) {
    smem.q.init(A::consumers * warpgroup::warps);
    smem.k.init(A::consumers * warpgroup::warps);
    smem.v.init(A::consumers * warpgroup::warps);
    fence_barrier_init();
  }
  __syncthreads();

  if (role == A::consumers) {
    decrease_registers<A::producer_registers>();
    if (warpgroup::warp() == 0 && elect_one())
      produce<A>(smem, maps, problem, together);
  } else {
    increase_registers<A::consumer_registers>();
    consume<T, d, A>(smem, maps, problem, together, late_scale, role);
  }
}

int multiprocessors() {
  int device = 0, count = 0;
  ladder::check(cudaGetDevice(&device), "cudaGetDevice");
  ladder::check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device),
                "cudaDeviceGetAttribute");
  return count;
}

template <typename T, int d> void launch_head_dim(const AttentionProblem &p, cudaStream_t stream) {
  using A = Arrangement<T, d>;
  require_rows_fit(p);
  if constexpr (!A::fits) {
    throw std::invalid_argument(
        "v11_persistent: at this head_dim the options chosen do not fit into registers or shared memory");
  } else {
    constexpr auto kernel = attend<T, d, A>;
    constexpr int smem_bytes = sizeof(typename A::Shared);
    ladder::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem_bytes),
                  "v11_persistent: shared memory");
    const float late_scale = p.scale > 0.f ? p.scale * kLog2E : 1.f;
    const typename A::Maps maps{
        .q = tma::tensor_map<typename A::QTile>(p.q, p.q_len, p.batch * p.heads),
        .o = tma::tensor_map<typename A::QTile>(p.o, p.q_len, p.batch * p.heads),
        .k = tma::tensor_map<typename A::KTile>(p.k, p.kv_len, p.batch * p.kv_heads),
        .v = tma::tensor_map<typename A::KTile>(p.v, p.kv_len, p.batch * p.kv_heads),
    };
    const int blocks = std::min(multiprocessors(), Work<A>::count(p));
    const int together = Work<A>::heads_together(p, blocks);
    kernel<<<blocks, A::threads, smem_bytes, stream>>>(maps, p, together, late_scale);
    ladder::check(cudaGetLastError(), "v11_persistent: launch");
  }
}

} // namespace

void ladder::launch(const AttentionProblem &p, cudaStream_t stream) {
  require_alignment(p, 16);
  dispatch_16_bit(p, [&](auto element) {
    dispatch_head_dim<32, 64, 128, 256>(p, [&](auto d) { launch_head_dim<decltype(element), d>(p, stream); });
  });
}
