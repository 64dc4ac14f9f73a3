// v9_roles: v8_tma, whose warpgroups have roles.
//
// One warpgroup, the producer, does nothing but have tiles brought: it runs ahead as far as there are
// buffers, and no product waits for it to come round. The others, the consumers, compute. The producer gives
// up its registers to them, so that a block has three of them (two from d = 128 on), with tiles of 128 keys,
// and d = 256 fits, too.
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

/// A block's arrangement for elements T and head dimension d.
template <typename T, int d> struct Arrangement {
  // Warpgroups that compute, each 64 rows, beside the one that has tiles brought. The registers that this one
  // gives up let O, d / 2 of a thread's, S, half the keys of a tile, and P, a quarter, fit: 512 threads have
  // 128 each, 32 + 3 x 160 = 4 x 128, and 384 have 168 each, 24 + 2 x 240 = 3 x 168.
  static constexpr int consumers = CONSUMERS ? CONSUMERS : d <= 128 ? 3 : 2;
  static constexpr int producer_registers = consumers == 3 ? 32 : 24,
                       consumer_registers = consumers == 3 ? 160 : 240;
  static constexpr int threads = 128 * (consumers + 1), block_rows = 64 * consumers;
  static constexpr int keys = KEYS ? KEYS : d <= 64 ? 128 : d == 128 ? 80 : 64; // of a tile
  static constexpr int buffers = BUFFERS ? BUFFERS : 2;

  using QTile = SharedTile<T, 64, d>;
  using KTile = SharedTile<T, keys, d>;
  struct Shared {
    Ring<QTile, 1, consumers> q;
    Ring<KTile, buffers> k, v;
  };
  struct Maps {
    tma::TensorMap<QTile> q;
    tma::TensorMap<KTile> k, v;
  };

  /// Whether O and S, later P, fit into a thread's registers, with 32 for the rest, and the tiles into shared
  /// memory.
  static constexpr bool fits =
      d / 2 + keys / 2 + 32 <= std::min(consumer_registers, 256) && sizeof(Shared) <= 227 * 1024;
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

/// A block's share: from which query row on, of which heads, and how many keys it sees. The last rows, which
/// see the most keys if the mask is causal, are the first to start.
template <typename A> struct Share {
  int row, head, kv_head, keys;

  __device__ explicit Share(const AttentionProblem &p)
      : row((gridDim.y - 1 - blockIdx.y) * A::block_rows), head(blockIdx.z * p.heads + blockIdx.x),
        kv_head(blockIdx.z * p.kv_heads + blockIdx.x / (p.heads / p.kv_heads)),
        keys(p.is_causal ? min(p.kv_len, row + A::block_rows) : p.kv_len) {}

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
                               const Share<A> &share) {
  smem.q.load_async({}, maps.q, share.row, share.head);
  Turn<A::buffers> turn;
  for (int key = 0; key < share.keys; key += A::keys) {
    smem.k.wait_empty(turn);
    smem.k.load_async(turn, maps.k, key, share.kv_head);
    smem.v.wait_empty(turn);
    smem.v.load_async(turn, maps.v, key, share.kv_head);
    turn.advance();
  }
}

/// A consumer, a warpgroup with 64 rows.
template <typename T, int d, typename A>
__device__ inline void consume(typename A::Shared &smem, const Share<A> &share,
                               const AttentionProblem &problem, float late_scale, int consumer) {
  const int row = share.consumer_row(consumer) + 16 * warpgroup::warp();
  const int keys = share.consumer_keys(problem, consumer);

  RegTile<float, 16, A::keys> s;
  RegTile<T, 16, A::keys> p;
  RegTile<float, 16, d> o;
  RegTile<T, 16, d> o_16;
  RowState<typename RegTile<float, 16, d>::ColVec> rows;
  zero(o);
  zero(rows.l);
  neg_infty(rows.m);

  Turn<A::buffers> turn;
  auto &q_smem = smem.q.wait_full({}, consumer);
  for (int key = 0; key < keys; key += A::keys) {
    // S = Q K^T
    warpgroup::mma_ABt(s, q_smem, smem.k.wait_full(turn));
    warpgroup::mma_wait(s);
    smem.k.release(turn);

    // P = exp(S - m)
    if (softmax(s, rows, problem, late_scale, row, key))
      mul_row(o, o, rows.rescale);
    copy(p, s);

    // O += P V
    warpgroup::mma_AB(o, p, smem.v.wait_full(turn), o);
    warpgroup::mma_wait(o);
    smem.v.release(turn);
    turn.advance();
  }

  sum_over_lanes(rows.l);
  div_row(o, o, rows.l);
  copy(o_16, o);
  const Head<T, d> gmem(problem, 0);
  store(gmem.o(), o_16, row);
  log(rows.l, rows.l);
  mul(rows.m, rows.m, kLn2);
  add(rows.l, rows.l, rows.m);
  store(gmem.lse(), rows.l, row);

  // Tiles that only consumers of later rows see.
  for (int key = (keys + A::keys - 1) / A::keys * A::keys; key < share.keys; key += A::keys) {
    smem.k.wait_full(turn);
    smem.k.release(turn);
    smem.v.wait_full(turn);
    smem.v.release(turn);
    turn.advance();
  }
}

template <typename T, int d, typename A>
__global__ void __launch_bounds__(A::threads, 1)
    attend(const __grid_constant__ typename A::Maps maps, const __grid_constant__ AttentionProblem problem,
           float late_scale) {
  const Share<A> share(problem);
  const int role = warpgroup::index();

  extern __shared__ __align__(1024) unsigned char bytes[];
  auto &smem = *reinterpret_cast<typename A::Shared *>(bytes);
  if (threadIdx.x == 0) {
    smem.q.init(1);
    smem.k.init(A::consumers * warpgroup::warps);
    smem.v.init(A::consumers * warpgroup::warps);
    fence_barrier_init();
  }
  __syncthreads();

  if (role == A::consumers) {
    decrease_registers<A::producer_registers>();
    if (warpgroup::warp() == 0 && elect_one())
      produce<A>(smem, maps, share);
  } else {
    increase_registers<A::consumer_registers>();
    consume<T, d, A>(smem, share, problem, late_scale, role);
  }
}

template <typename T, int d> void launch_head_dim(const AttentionProblem &p, cudaStream_t stream) {
  using A = Arrangement<T, d>;
  require_rows_fit(p);
  if constexpr (!A::fits) {
    throw std::invalid_argument(
        "v9_roles: at this head_dim the options chosen do not fit into registers or shared memory");
  } else {
    constexpr auto kernel = attend<T, d, A>;
    constexpr int smem_bytes = sizeof(typename A::Shared);
    ladder::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem_bytes),
                  "v9_roles: shared memory");
    const dim3 grid = ladder::launch_grid(p.heads, (p.q_len + A::block_rows - 1) / A::block_rows, p.batch);
    const float late_scale = p.scale > 0.f ? p.scale * kLog2E : 1.f;
    const typename A::Maps maps{
        .q = tma::tensor_map<typename A::QTile>(p.q, p.q_len, p.batch * p.heads),
        .k = tma::tensor_map<typename A::KTile>(p.k, p.kv_len, p.batch * p.kv_heads),
        .v = tma::tensor_map<typename A::KTile>(p.v, p.kv_len, p.batch * p.kv_heads),
    };
    kernel<<<grid, A::threads, smem_bytes, stream>>>(maps, p, late_scale);
    ladder::check(cudaGetLastError(), "v9_roles: launch");
  }
}

} // namespace

void ladder::launch(const AttentionProblem &p, cudaStream_t stream) {
  require_alignment(p, 16);
  dispatch_16_bit(p, [&](auto element) {
    dispatch_head_dim<32, 64, 128, 256>(p, [&](auto d) { launch_head_dim<decltype(element), d>(p, stream); });
  });
}
