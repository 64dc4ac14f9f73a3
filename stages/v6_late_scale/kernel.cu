// v6_late_scale: v5_async with fewer instructions per score.
//
// For a positive scale, max(scale * s) = scale * max(s). So S is not multiplied before the maximum is known,
// and scale * s - m is one fused multiply-add (FFMA). m need not be the maximum, only near it: it is kept
// while no weight exceeds 2^kSlack, by a vote of the warp. Four lanes share a row. The vote needs no finished
// maximum: each lane compares the part of the row that it holds. And the row sum is needed only at the end.
#include <cmath>

#include "ladder/attention.h"
#include "ladder/dispatch.h"
#include "ladder/head.h"
#include "tiles/tiles.h"

namespace {

using ladder::AttentionProblem;
using namespace tiles;

constexpr float kLog2E = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

/// m follows the maximum only when a weight exp(s - m) would exceed 2^kSlack.
constexpr float kSlack = 4.f;

/// Row statistics of a warp's rows. m: the running maximum of the logits, or up to kSlack less. l: this
/// lane's part of the row sum of the weights.
template <typename Vec> struct RowState {
  Vec m, l;
};

/// Tile sizes for elements T and head dimension d.
template <typename T, int d> struct Arrangement {
  static constexpr int workers = 16, threads = 32 * workers;
  static constexpr int rows = 16, block_rows = workers * rows;  // rows per worker, per block
  static constexpr int keys = d == 32 ? 64 : d == 64 ? 48 : 32; // per tile
  using KV = SharedTile<T, keys, d>;

  static constexpr bool q_in_registers = d < 128;
  using Q = SharedTile<T, rows, d>;
  static constexpr int q_bytes = q_in_registers ? 0 : SharedAllocator::bytes<Q, workers>;
  static constexpr int smem_bytes = 2 * SharedAllocator::bytes<KV, 2> + q_bytes;
};

template <typename T, int d, typename A>
__global__ void __launch_bounds__(A::threads)
    attend(const __grid_constant__ AttentionProblem problem, float late_scale) {
  using block = group<A::threads / 32>;
  // Causal: the last rows see the most keys, so their blocks start first.
  const int block_row = (gridDim.y - 1 - blockIdx.y) * A::block_rows;
  const int row = block_row + block::warp() * A::rows;
  // Causal: query i sees keys 0 to i, so the block skips later tiles. A worker with earlier rows skips more.
  const int block_keys = problem.is_causal ? min(problem.kv_len, block_row + A::block_rows) : problem.kv_len;
  const int keys = problem.is_causal ? min(problem.kv_len, row + A::rows) : problem.kv_len;
  const Head<T, d> gmem(problem, block_keys);

  extern __shared__ __align__(128) unsigned char smem[];
  SharedAllocator allocator(smem);
  auto &k_smem = allocator.allocate<typename A::KV, 2>();
  auto &v_smem = allocator.allocate<typename A::KV, 2>();
  auto &q_smem = allocator.allocate<typename A::Q, A::workers>()[block::warp()];

  RegTile<T, A::rows, d> q_rmem, o_16;
  RegTile<float, A::rows, A::keys> s; // S of a warp
  RegTile<T, A::rows, A::keys> p_16;  // P, rounded: operand A
  RegTile<float, A::rows, d> o;       // O of a warp
  RowState<typename RegTile<float, A::rows, d>::ColVec> rows;
  auto &q = choose<A::q_in_registers>(q_rmem, q_smem);
  load(q, gmem.q(), row);
  zero(o);
  zero(rows.l);
  neg_infty(rows.m);

  const auto prefetch = [&](int buffer, int key) {
    if (key >= block_keys)
      return;
    block::load_async(k_smem[buffer], gmem.k(), key);
    block::load_async(v_smem[buffer], gmem.v(), key);
    async_commit();
  };
  prefetch(0, 0);
  for (int key = 0, now = 0; key < block_keys; key += A::keys, now = 1 - now) {
    block::async_wait(); // these tiles have arrived, and all workers have used the last ones
    prefetch(1 - now, key + A::keys);
    if (key >= keys)
      continue;

    // S = Q K^T
    mma_ABt(s, q, k_smem[now]);

    // P = exp(S - m)
    softmax(s, o, rows, problem, late_scale, row, key);

    // O += P V
    copy(p_16, s);
    mma_AB(o, p_16, v_smem[now], o);
  }

  sum_over_lanes(rows.l);
  div_row(o, o, rows.l);
  copy(o_16, o);
  store(gmem.o(), o_16, row);
  log(rows.l, rows.l);
  mul(rows.m, rows.m, kLn2);
  add(rows.l, rows.l, rows.m);
  store(gmem.lse(), rows.l, row);
}

/// Replaces the logits S of a tile by the weights P = exp(S - m). `row` and `key` are the tile's first row
/// and first key. If m changes, O and l are rescaled.
///
/// `late_scale` is scale * log2(e), so exp(s) becomes exp2(s). S is multiplied by it after the maximum. For
/// scale <= 0 it is 1, and S is scaled before: a negative factor would turn the maximum into the minimum.
template <RegisterTile S, RegisterTile O, typename Vec>
__device__ inline void softmax(S &s, O &o, RowState<Vec> &rows, const AttentionProblem &problem,
                               float late_scale, int row, int key) {
  if (problem.scale <= 0.f)
    mul(s, s, problem.scale * kLog2E);
  right_fill(s, s, problem.kv_len - key);
  if (problem.is_causal)
    make_causal(s, s, row, key);

  Vec m_new, rescale;
  row_max_in_lane(m_new, s);
  mul(m_new, m_new, late_scale);
  if (any_above(m_new, rows.m, kSlack)) {
    max_over_lanes(m_new);
    max(m_new, m_new, rows.m);
    sub(rescale, rows.m, m_new);
    exp2(rescale, rescale);
    mul(rows.l, rows.l, rescale);
    mul_row(o, o, rescale);
    copy(rows.m, m_new);
  }
  mul(s, s, late_scale);
  sub_row(s, s, rows.m);
  exp2(s, s);
  row_sum_in_lane(rows.l, s, rows.l);
}

template <typename T, int d> void launch_head_dim(const AttentionProblem &p, cudaStream_t stream) {
  using A = Arrangement<T, d>;
  constexpr auto kernel = attend<T, d, A>;
  constexpr int smem_bytes = A::smem_bytes;
  ladder::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem_bytes),
                "v6_late_scale: shared memory");
  const dim3 grid = ladder::launch_grid(p.heads, (p.q_len + A::block_rows - 1) / A::block_rows, p.batch);
  const float late_scale = p.scale > 0.f ? p.scale * kLog2E : 1.f;
  kernel<<<grid, A::threads, smem_bytes, stream>>>(p, late_scale);
  ladder::check(cudaGetLastError(), "v6_late_scale: launch");
}

} // namespace

void ladder::launch(const AttentionProblem &p, cudaStream_t stream) {
  require_alignment(p, 16);
  require_rows_fit(p);
  dispatch_16_bit(p, [&](auto element) {
    dispatch_head_dim<32, 64, 128>(p, [&](auto d) { launch_head_dim<decltype(element), d>(p, stream); });
  });
}
