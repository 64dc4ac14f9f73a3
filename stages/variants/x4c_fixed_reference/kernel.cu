// x4c_fixed_reference: x4_softcap without a running maximum.
//
// The logits are between -c and c. Up to c = 55, exp(s - r) fits into bf16 and fp32 for all of them, with the
// same r for all rows. So nothing is rescaled, and tanh and exp of different logits overlap. f16 has too few
// exponents: there, and for larger caps, m is x4's running maximum.
#include <cfloat>
#include <cmath>

#include "ladder/attention.h"
#include "ladder/counter.h"
#include "ladder/dispatch.h"
#include "ladder/head.h"
#include "tiles/ring.h"
#include "tiles/roles.h"
#include "tiles/tensor_map.h"
#include "tiles/tiles.h"
#include "tiles/warpgroup.h"

namespace {

using AttentionProblem = ladder::AttentionVariant; // with the mask's begin and end
using namespace tiles;

constexpr float kLog2E = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

/// m follows the maximum only when a weight exp(s - m) would exceed 2^kSlack.
constexpr float kSlack = 4.f;

/// m before the first key. It is finite, so that s - m is -inf and not NaN for a row that has seen none.
constexpr float kLowest = -FLT_MAX;

/// The numbers that turn a product of Q and K into a weight: scale / c, c log2(e), and r, the fixed reference
/// in powers of two. r is whole, so that 2^r is exact.
struct Cap {
  float scale, late_scale, reference;
};

/// Weights lie between 2^(-c log2(e) - r) and 2^(c log2(e) - r). This r keeps them above 2^-kDepth and, as
/// far as that allows, small. l, O and their products remain normal numbers of fp32. A larger r would cost
/// lse precision: s - r is rounded.
constexpr float kDepth = 96.f, kLargestReference = 32.f, kLargestCap = 55.f;
inline Cap cap_of(const AttentionProblem &p) {
  const float late_scale = p.softcap * kLog2E;
  return {p.scale / p.softcap, late_scale,
          std::round(min(late_scale, min(kLargestReference, kDepth - late_scale)))};
}

/// Causal: the most heads in a group, and the most bytes of their K and V, which the blocks read at the same
/// time.
constexpr int64_t kMostHeads = 16, kMostBytes = 32 << 20;

/// Row statistics of a warp's rows. m: the running maximum of the logits, or up to kSlack less. l: this
/// lane's part of the row sum of the weights. rescale: the factor of O and l after m has changed.
template <typename Vec> struct RowState {
  Vec m, l, rescale;
};

/// Tile sizes for elements T and head dimension d, and whether m is the fixed reference.
template <typename T, int d, bool has_reference> struct Arrangement {
  static constexpr bool fixed = has_reference; // m is
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
    Ring<QTile, q_buffers, consumers> q; // O is stored from Q's buffers
    Ring<KTile, buffers> k, v;
    unsigned number[q_buffers]; // the work item of each Q
  };
  struct Maps {
    tma::TensorMap<QTile> q, o;
    tma::TensorMap<KTile> k, v;
  };
};

/// A work item: the queries from `row` on of one head, and the keys from `key` to `end` that they see. Query
/// i sees the keys i + mask.begin to i + mask.end - 1. Items are ordered by groups of `together` heads.
/// Within a group the last rows of all heads come first.
template <typename A> struct WorkItem {
  const AttentionProblem &mask; // begin, end and kv_len
  int row, head, kv_head, key, end;

  /// The first key that a row sees, and the one after the last.
  __device__ int first_key(int row) const { return max(0, row + mask.begin); }
  __device__ int end_key(int row) const { return min(mask.kv_len, row + mask.end); }

  __host__ __device__ static unsigned per_head(const AttentionProblem &p) {
    return (p.q_len + A::block_rows - 1) / A::block_rows;
  }
  __host__ __device__ static unsigned count(const AttentionProblem &p) {
    return p.batch * p.heads * per_head(p);
  }

  /// Causal, by is_causal or by a window: the last rows see the most keys.
  static unsigned heads_together(const AttentionProblem &p) {
    const int64_t head_bytes = 2 * int64_t(p.kv_len) * (sizeof(typename A::KTile) / A::keys);
    const bool last_see_most = p.end < p.kv_len && p.begin < 2 - p.q_len; // begin: no row has a first key
    return last_see_most ? max(min(kMostBytes / head_bytes, kMostHeads), int64_t(1)) : 1;
  }

  __device__ WorkItem(const AttentionProblem &p, unsigned together, unsigned number) : mask(p) {
    const unsigned per_group = together * per_head(p), group = number / per_group, among = number % per_group;
    const unsigned heads = min(together, p.batch * p.heads - group * together); // fewer in the last group
    // Causal: the last rows see the most keys. The first tile may begin before row 0, by a multiple of 64.
    row = (p.q_len + 63u) / 64 * 64 - (among / heads + 1) * A::block_rows;
    head = group * together + among % heads;
    kv_head = head / (p.heads / p.kv_heads);
    key = first_key(max(row, 0));
    end = end_key(row + A::block_rows - 1);
  }
};

template <typename T, int d, typename A>
__global__ void __launch_bounds__(A::threads, 1)
    attend(const __grid_constant__ typename A::Maps maps, const __grid_constant__ AttentionProblem problem,
           const __grid_constant__ Cap cap, unsigned together, unsigned *counter) {
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
    consume<T, d, A>(smem, maps, problem, cap, together);
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
  // All blocks together increment the counter `count` times. The last increment wraps it to 0.
  for (; number < count; number = gridDim.x + atomicInc(counter, count - 1)) {
    const WorkItem<A> item(problem, together, number);
    smem.q.wait_empty(q_turn);
    smem.number[q_turn.buffer] = number;
    smem.q.load_async(q_turn, maps.q, item.row, item.head);
    q_turn.advance();
    for (int key = item.key; key < item.end; key += A::keys, turn.advance()) {
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
                               const AttentionProblem &problem, const Cap &cap, unsigned together) {
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
    // A consumer skips the tiles before the first one that its rows see and after the last one, or all if it
    // has no rows.
    const bool has_rows = warpgroup_row >= 0;
    const int end = has_rows ? item.end_key(warpgroup_row + 63) : 0;
    const int before = item.first_key(warpgroup_row) - item.key;
    const bool sees = item.key + before < end;
    int key = item.key;
    for (const int first = sees ? key + before / A::keys * A::keys : item.end; key < first;
         key += A::keys, k_turn.advance(), v_turn.advance())
      pass_tile<A>(smem, in_turn, key > item.key, k_turn, v_turn);
    zero(o);
    zero(rows.l);
    fill(rows.m, A::fixed ? cap.reference : kLowest);
    if (sees) {
      // S = Q K^T and P = exp(S - m) of the first tile
      if (key > item.key)
        in_turn.wait();
      warpgroup::mma_ABt(s, q_smem, smem.k.wait_full(k_turn));
      if (key > item.key)
        in_turn.pass();
      if (A::q_buffers > 1 && number != blockIdx.x)
        finish_store<A>(smem, o_turn); // of the previous item
      warpgroup::mma_wait(s);
      smem.k.release(k_turn);
      k_turn.advance();
      softmax<A>(s, rows, item, cap, row, key);
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
        const bool changed = softmax<A>(s, rows, item, cap, row, key);
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
                             typename A::QTile &q_smem, O &o, RowState<Vec> &rows, int head,
                             int warpgroup_row) {
  sum_over_lanes(rows.l);
  add(rows.rescale, rows.l, FLT_MIN); // l is 0, or at least 1 or 2^-kDepth: changes only 0 / 0, to 0
  div_row(o, o, rows.rescale);
  store_async<A>(maps, q_smem, o, warpgroup_row, head);
  if (A::fixed) {
    exp2(rows.m, rows.m);
    mul(rows.l, rows.l, rows.m); // exact
    log(rows.l, rows.l);
  } else {
    log(rows.l, rows.l);
    mul(rows.m, rows.m, kLn2);
    add(rows.l, rows.l, rows.m);
  }
  store(lse_of(problem, head), rows.l, warpgroup_row + 16 * warpgroup::warp());
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

/// Releases the buffer of Q once the consumer's store of O has read it. All warps release it, the first one
/// after it has waited for the store.
template <typename A> __device__ inline void finish_store(typename A::Shared &smem, Turn<A::q_buffers> turn) {
  if (warpgroup::thread() == 0)
    tma::store_wait_read();
  smem.q.release(turn);
}

/// Turns the products S of a tile, whose first row and key are given, into weights P = exp(s - m) of the
/// logits s = c tanh(scale S / c). Returns whether m has changed. exp(s) is exp2(s), as c is multiplied by
/// log2(e).
template <typename A, RegisterTile S, typename Vec, typename Item>
__device__ inline bool softmax(S &s, RowState<Vec> &rows, const Item &item, const Cap &cap, int row,
                               int key) {
  const bool edge = key + S::cols > item.end_key(row) || row + 15 + item.mask.begin > key;
  if (A::fixed && !edge) {
    detail::map(
        s,
        [&cap](float x) {
          const float capped = ladder::ptx::tanh_approx(cap.scale * x);
          return ladder::ptx::exp2_approx(fmaf(cap.late_scale, capped, -cap.reference));
        },
        s);
    row_sum_in_lane(rows.l, s, rows.l);
    return false;
  }
  mul(s, s, cap.scale);
  tanh(s, s);
  right_fill(s, s, item.mask.kv_len - key);
  make_causal(s, s, row + item.mask.end - 1, key);
  if (row + 15 + item.mask.begin > key)
    triu(s, s, row + item.mask.begin - key, -INFINITY);

  const bool changed = !A::fixed && follow_maximum(s, rows, cap.late_scale);
  mul(s, s, cap.late_scale);
  sub_row(s, s, rows.m);
  exp2(s, s);
  row_sum_in_lane(rows.l, s, rows.l);
  return changed;
}

/// Raises m, of weights exp2(late_scale * s - m), where the maximum exceeds it by more than kSlack. Returns
/// whether it has.
template <RegisterTile S, typename Vec>
__device__ inline bool follow_maximum(const S &s, RowState<Vec> &rows, float late_scale) {
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
  return changed;
}

template <typename T, int d, bool fixed>
void launch_head_dim(const AttentionProblem &p, cudaStream_t stream) {
  using A = Arrangement<T, d, fixed>;
  constexpr int smem_bytes = sizeof(typename A::Shared);
  constexpr auto kernel = attend<T, d, A>;
  ladder::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem_bytes),
                "x4c_fixed_reference: shared memory");
  const unsigned blocks = min(ladder::multiprocessors(), WorkItem<A>::count(p));
  const unsigned together = WorkItem<A>::heads_together(p);
  const ladder::LaunchCounter counter(stream, "x4c_fixed_reference: counter");
  const typename A::Maps maps{
      .q = tma::tensor_map<typename A::QTile>(p.q, p.q_strides, p.q_len, p.heads, p.batch),
      .o = tma::tensor_map<typename A::QTile>(p.o, p.q_len, p.batch * p.heads),
      .k = tma::tensor_map<typename A::KTile>(p.k, p.k_strides, p.kv_len, p.kv_heads, p.batch),
      .v = tma::tensor_map<typename A::KTile>(p.v, p.v_strides, p.kv_len, p.kv_heads, p.batch),
  };
  kernel<<<blocks, A::threads, smem_bytes, stream>>>(maps, p, cap_of(p), together, counter.data());
  ladder::check(cudaGetLastError(), "x4c_fixed_reference: launch");
}

} // namespace

void ladder::launch(const AttentionProblem &p, cudaStream_t stream) {
  require_alignment(p, 16);
  require_rows_fit(p);
  const AttentionVariant &variant = variant_of(p);
  dispatch_16_bit(p, [&](auto element) {
    using T = decltype(element);
    constexpr bool may_be_fixed = std::is_same_v<T, __nv_bfloat16>;
    dispatch_head_dim<64, 128, 256>(p, [&](auto d) {
      const bool fixed = may_be_fixed && variant.softcap <= kLargestCap;
      fixed ? launch_head_dim<T, d, may_be_fixed>(variant, stream)
            : launch_head_dim<T, d, false>(variant, stream);
    });
  });
}
