// The plain form of kernel.cu: v3_swizzle's block, four warps of 16 rows and tiles of 64 keys, in tiles.
// Nothing overlaps anything. README.md begins with it.
#include <cmath>

#include "head.h"
#include "ladder/dispatch.h"
#include "ladder/problem.h"
#include "tiles/tiles.h"

namespace {

using ladder::AttentionProblem;
using namespace tiles;

constexpr int kWorkers = 4, kRows = 16, kKeys = 64;
constexpr float kLog2E = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

template <typename T, int d>
__global__ void __launch_bounds__(kWorkers * 32) attend(const AttentionProblem problem) {
  using block = group<kWorkers>;
  const int block_row = blockIdx.y * kWorkers * kRows, row = block_row + block::warp() * kRows;
  const int keys = problem.is_causal ? min(problem.kv_len, block_row + kWorkers * kRows) : problem.kv_len;
  const Head<T, d> gmem(problem, keys);
  __shared__ SharedTile<T, kKeys, d> k_smem, v_smem;

  RegTile<T, kRows, d> q, o_16;
  RegTile<float, kRows, kKeys> s;
  RegTile<T, kRows, kKeys> p_16;
  RegTile<float, kRows, d> o;
  typename RegTile<float, kRows, d>::ColVec m, m_new, rescale, l;
  load(q, gmem.q(), row);
  zero(o);
  zero(l);
  neg_infty(m);

  for (int key = 0; key < keys; key += kKeys) {
    block::sync();
    block::load(k_smem, gmem.k(), key);
    block::load(v_smem, gmem.v(), key);
    block::sync();
    mma_ABt(s, q, k_smem);
    mul(s, s, problem.scale * kLog2E);
    right_fill(s, s, problem.kv_len - key);
    if (problem.is_causal)
      make_causal(s, s, row, key);
    row_max(m_new, s, m);
    sub(rescale, m, m_new);
    exp2(rescale, rescale);
    copy(m, m_new);
    sub_row(s, s, m);
    exp2(s, s);
    mul(l, l, rescale);
    row_sum(l, s, l);
    copy(p_16, s);
    mul_row(o, o, rescale);
    mma_AB(o, p_16, v_smem, o);
  }

  div_row(o, o, l);
  copy(o_16, o);
  store(gmem.o(), o_16, row);
  log2(l, l);
  add(l, l, m);
  mul(l, l, kLn2);
  store(gmem.lse(), l, row);
}

} // namespace

void ladder::launch(const AttentionProblem &p, cudaStream_t stream) {
  require_alignment(p, 16);
  require_rows_fit(p);
  const dim3 grid = launch_grid(p.heads, (p.q_len + kWorkers * kRows - 1) / (kWorkers * kRows), p.batch);
  dispatch_16_bit(p, [&](auto element) {
    dispatch_head_dim(p,
                      [&](auto d) { attend<decltype(element), d><<<grid, kWorkers * 32, 0, stream>>>(p); });
  });
  ladder::check(cudaGetLastError(), "v4_tk_tiles, plain: launch");
}
