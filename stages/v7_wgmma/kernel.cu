// v7_wgmma: v6_late_scale on Hopper's tensor cores.
//
// wgmma is a product of four warps, a warpgroup, with 64 rows. It reads K, V and Q from shared memory: no
// ldmatrix, and none of their fragments in registers. So registers are free for larger tiles: fewer barriers
// and fewer instructions per score. wgmma is asynchronous: the warps issue it, and wait for it before they
// use its result.
#include <cmath>

#include "ladder/attention.h"
#include "ladder/dispatch.h"
#include "ladder/head.h"
#include "tiles/tiles.h"
#include "tiles/warpgroup.h"

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
  // Per thread, O takes d / 2 registers, and S with its rounded copy P 3 / 4 per key.
  static constexpr int warpgroups = d <= 64 ? 3 : 2, threads = 128 * warpgroups, block_rows = 64 * warpgroups;
  static constexpr int keys = d == 256 ? 64 : 128; // per tile
  struct Shared {
    SharedTile<T, 64, d> q[warpgroups];
    SharedTile<T, keys, d> k[2], v[2];
  };
};

template <typename T, int d, typename A>
__global__ void __launch_bounds__(A::threads, 1)
    attend(const __grid_constant__ AttentionProblem problem, float late_scale) {
  using block = group<A::threads / 32>;
  // Causal: the last rows see the most keys, so their blocks start first.
  const int block_row = (gridDim.y - 1 - blockIdx.y) * A::block_rows;
  const int warpgroup_row = block_row + 64 * warpgroup::index(), row = warpgroup_row + 16 * warpgroup::warp();
  // Causal: query i sees keys 0 to i, so the block skips later tiles. A warpgroup with earlier rows skips
  // more, and a warpgroup without rows skips all.
  const int block_keys = problem.is_causal ? min(problem.kv_len, block_row + A::block_rows) : problem.kv_len;
  const int keys = warpgroup_row >= problem.q_len ? 0
                   : problem.is_causal            ? min(problem.kv_len, warpgroup_row + 64)
                                                  : problem.kv_len;
  const Head<T, d> gmem(problem, block_keys);

  extern __shared__ __align__(1024) unsigned char bytes[];
  auto &smem = *reinterpret_cast<typename A::Shared *>(bytes);
  auto &q_smem = smem.q[warpgroup::index()];

  RegTile<T, 16, d> o_16;
  RegTile<float, 16, A::keys> s; // S of a warp
  RegTile<T, 16, A::keys> p_16;  // P, rounded: operand A
  RegTile<float, 16, d> o;       // O of a warp
  RowState<typename RegTile<float, 16, d>::ColVec> rows;
  warpgroup::load_async(q_smem, gmem.q(), warpgroup_row);
  zero(o);
  zero(rows.l);
  neg_infty(rows.m);

  const auto prefetch = [&](int buffer, int key) {
    if (key >= block_keys)
      return;
    block::load_async(smem.k[buffer], gmem.k(), key);
    block::load_async(smem.v[buffer], gmem.v(), key);
    async_commit();
  };
  prefetch(0, 0);
  for (int key = 0, now = 0; key < block_keys; key += A::keys, now = 1 - now) {
    async_wait();
    fence_async_proxy(); // makes what cp.async has written visible to wgmma
    block::sync();       // these tiles have arrived, and all warpgroups have used the last ones
    prefetch(1 - now, key + A::keys);
    if (key >= keys)
      continue;

    // S = Q K^T
    warpgroup::mma_ABt(s, q_smem, smem.k[now]);
    warpgroup::mma_wait(s);

    // P = exp(S - m)
    softmax(s, o, rows, problem, late_scale, row, key);

    // O += P V
    copy(p_16, s);
    warpgroup::mma_AB(o, p_16, smem.v[now], o);
    warpgroup::mma_wait(o);
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
  constexpr int smem_bytes = sizeof(typename A::Shared);
  constexpr auto kernel = attend<T, d, A>;
  ladder::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem_bytes),
                "v7_wgmma: shared memory");
  const dim3 grid = ladder::launch_grid(p.heads, (p.q_len + A::block_rows - 1) / A::block_rows, p.batch);
  const float late_scale = p.scale > 0.f ? p.scale * kLog2E : 1.f;
  kernel<<<grid, A::threads, smem_bytes, stream>>>(p, late_scale);
  ladder::check(cudaGetLastError(), "v7_wgmma: launch");
}

} // namespace

void ladder::launch(const AttentionProblem &p, cudaStream_t stream) {
  require_alignment(p, 16);
  require_rows_fit(p);
  dispatch_16_bit(p, [&](auto element) {
    dispatch_head_dim<32, 64, 128, 256>(p, [&](auto d) { launch_head_dim<decltype(element), d>(p, stream); });
  });
}
