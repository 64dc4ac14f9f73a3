// v10b_overlap: v10_pingpong, which issues the S = Q K^T of the next tile together with O += P V of this one.
//
// A consumer waits only for S, and computes its softmax while the product with V runs. So O is one tile
// behind S and P, and a rescaling of O waits until that product is complete.
#include <cmath>

#include "ladder/attention.h"
#include "ladder/dispatch.h"
#include "ladder/head.h"
#include "tiles/ring.h"
#include "tiles/roles.h"
#include "tiles/tensor_map.h"
#include "tiles/tiles.h"
#include "tiles/warpgroup.h"

namespace {

using ladder::AttentionProblem;
using namespace tiles;

constexpr float kLog2E = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

/// m follows the maximum only when a weight exp(s - m) would exceed 2^kSlack.
constexpr float kSlack = 4.f;

/// Row statistics of a warp's rows. m: the running maximum of the logits, or up to kSlack less. l: this
/// lane's part of the row sum of the weights. rescale: the factor of O and l after m has changed.
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
  static constexpr int keys = d <= 64 ? 128 : d == 128 ? 80 : 64; // per tile
  using QTile = SharedTile<T, 64, d>;
  using KTile = SharedTile<T, keys, d>;
  struct Shared {
    Ring<QTile, 1, consumers> q;
    Ring<KTile, 2> k, v;
  };
  struct Maps {
    tma::TensorMap<QTile> q;
    tma::TensorMap<KTile> k, v;
  };
};

/// A block's work: the queries from `row` on of one head, and how many keys they see.
template <typename A> struct WorkItem {
  int row, head, kv_head, keys;

  __device__ explicit WorkItem(const AttentionProblem &p) {
    // Causal: the last rows see the most keys, so their blocks start first.
    row = (gridDim.y - 1 - blockIdx.y) * A::block_rows;
    head = blockIdx.z * p.heads + blockIdx.x;
    kv_head = head / (p.heads / p.kv_heads);
    keys = p.is_causal ? min(p.kv_len, row + A::block_rows) : p.kv_len;
  }
};

template <typename T, int d, typename A>
__global__ void __launch_bounds__(A::threads, 1)
    attend(const __grid_constant__ typename A::Maps maps, const __grid_constant__ AttentionProblem problem,
           float late_scale) {
  const WorkItem<A> item(problem);

  extern __shared__ __align__(1024) unsigned char bytes[];
  auto &smem = *reinterpret_cast<typename A::Shared *>(bytes);
  if (threadIdx.x == 0) {
    smem.q.init(1);
    smem.k.init(A::consumers * warpgroup::warps);
    smem.v.init(A::consumers * warpgroup::warps);
    fence_barrier_init();
  }
  __syncthreads();

  if (warpgroup::index() == A::consumers) {
    decrease_registers<A::producer_registers>();
    if (warpgroup::warp() == 0 && elect_one())
      produce<A>(smem, maps, item);
  } else {
    increase_registers<A::consumer_registers>();
    consume<T, d, A>(smem, item, problem, late_scale);
  }
}

/// The producer, a single thread.
template <typename A>
__device__ inline void produce(typename A::Shared &smem, const typename A::Maps &maps,
                               const WorkItem<A> &item) {
  smem.q.load_async({}, maps.q, item.row, item.head);
  Turn<2> turn;
  for (int key = 0; key < item.keys; key += A::keys, turn.advance()) {
    smem.k.wait_empty(turn);
    smem.k.load_async(turn, maps.k, key, item.kv_head);
    smem.v.wait_empty(turn);
    smem.v.load_async(turn, maps.v, key, item.kv_head);
  }
}

/// A consumer, a warpgroup with 64 rows.
template <typename T, int d, typename A>
__device__ inline void consume(typename A::Shared &smem, const WorkItem<A> &item,
                               const AttentionProblem &problem, float late_scale) {
  const int warpgroup_row = item.row + 64 * warpgroup::index(), row = warpgroup_row + 16 * warpgroup::warp();
  // Causal: query i sees keys 0 to i, so a consumer skips later tiles. A consumer without rows computes one
  // dummy tile.
  const int keys = warpgroup_row >= problem.q_len ? 1
                   : problem.is_causal            ? min(problem.kv_len, warpgroup_row + 64)
                                                  : problem.kv_len;

  RegTile<T, 16, d> o_16;
  RegTile<float, 16, A::keys> s; // S of a warp
  RegTile<T, 16, A::keys> p_16;  // P, rounded: operand A
  RegTile<float, 16, d> o;       // O of a warp
  RowState<typename RegTile<float, 16, d>::ColVec> rows;
  zero(o);
  zero(rows.l);
  neg_infty(rows.m);

  const InTurn<A::consumers, 1> in_turn{warpgroup::index()};
  in_turn.start();
  Turn<2> k_turn, v_turn;
  auto &q_smem = smem.q.wait_full({}, warpgroup::index());

  // S = Q K^T and P = exp(S - m) of the first tile
  warpgroup::mma_ABt(s, q_smem, smem.k.wait_full(k_turn));
  warpgroup::mma_wait(s);
  smem.k.release(k_turn);
  k_turn.advance();
  softmax(s, rows, problem, late_scale, row, 0);
  copy(p_16, s);

  int key = A::keys;
  for (; key < keys; key += A::keys, k_turn.advance(), v_turn.advance()) {
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

  // Tiles that only other consumers see.
  for (; key < item.keys; key += A::keys, k_turn.advance(), v_turn.advance()) {
    smem.k.wait_full(k_turn);
    in_turn.wait();
    in_turn.pass();
    smem.k.release(k_turn);
    smem.v.wait_full(v_turn);
    smem.v.release(v_turn);
  }
  in_turn.stop();

  sum_over_lanes(rows.l);
  div_row(o, o, rows.l);
  copy(o_16, o);
  store(output_of<T, d>(problem, item.head), o_16, row);
  log(rows.l, rows.l);
  mul(rows.m, rows.m, kLn2);
  add(rows.l, rows.l, rows.m);
  store(lse_of(problem, item.head), rows.l, row);
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

template <typename T, int d> void launch_head_dim(const AttentionProblem &p, cudaStream_t stream) {
  using A = Arrangement<T, d>;
  constexpr int smem_bytes = sizeof(typename A::Shared);
  constexpr auto kernel = attend<T, d, A>;
  ladder::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem_bytes),
                "v10b_overlap: shared memory");
  const dim3 grid = ladder::launch_grid(p.heads, (p.q_len + A::block_rows - 1) / A::block_rows, p.batch);
  const float late_scale = p.scale > 0.f ? p.scale * kLog2E : 1.f;
  const typename A::Maps maps{
      .q = tma::tensor_map<typename A::QTile>(p.q, p.q_strides, p.q_len, p.heads, p.batch),
      .k = tma::tensor_map<typename A::KTile>(p.k, p.k_strides, p.kv_len, p.kv_heads, p.batch),
      .v = tma::tensor_map<typename A::KTile>(p.v, p.v_strides, p.kv_len, p.kv_heads, p.batch),
  };
  kernel<<<grid, A::threads, smem_bytes, stream>>>(maps, p, late_scale);
  ladder::check(cudaGetLastError(), "v10b_overlap: launch");
}

} // namespace

void ladder::launch(const AttentionProblem &p, cudaStream_t stream) {
  require_alignment(p, 16);
  require_rows_fit(p);
  dispatch_16_bit(p, [&](auto element) {
    dispatch_head_dim<32, 64, 128, 256>(p, [&](auto d) { launch_head_dim<decltype(element), d>(p, stream); });
  });
}
