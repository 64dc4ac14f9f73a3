// v3b_tiles: v3_swizzle written with the tile library: the same loads, stores, ldmatrix and mma.
//
// The library, stages/include/tiles/, contains what v2 and v3 spell out: fragments, ldmatrix, mma, the
// swizzle, shuffles. The kernel is the algorithm, one operation per line, destination first.
#include <cmath>

#include "ladder/attention.h"
#include "ladder/dispatch.h"
#include "ladder/head.h"
#include "tiles/tiles.h"

namespace {

using ladder::AttentionProblem;
using namespace tiles;

constexpr float kLog2E = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

/// Tile sizes for elements T and head dimension d.
template <typename T, int d> struct Arrangement {
  static constexpr int warps = 4, rows = 16, block_rows = warps * rows; // rows per warp, per block
  static constexpr int keys = d == 32 ? 64 : d == 64 ? 48 : 32;         // per tile
  using KV = SharedTile<T, keys, d>;
  static constexpr int smem_bytes = SharedAllocator::bytes<KV, 2>;
};

template <typename T, int d, typename A>
__global__ void __launch_bounds__(A::warps * 32) attend(const __grid_constant__ AttentionProblem problem) {
  using block = group<A::warps>;
  // Causal: the last rows see the most keys, so their blocks start first.
  const int block_row = (gridDim.y - 1 - blockIdx.y) * A::block_rows;
  const int row = block_row + block::warp() * A::rows;
  // Causal: no row of this block sees a key beyond its last row, so those tiles are skipped.
  const int keys = problem.is_causal ? min(problem.kv_len, block_row + A::block_rows) : problem.kv_len;
  const Head<T, d> gmem(problem, keys);

  extern __shared__ __align__(128) unsigned char smem[];
  SharedAllocator allocator(smem);
  auto &k_smem = allocator.allocate<typename A::KV>();
  auto &v_smem = allocator.allocate<typename A::KV>();

  RegTile<T, A::rows, d> q, o_16;
  RegTile<float, A::rows, A::keys> s; // S of a warp
  RegTile<T, A::rows, A::keys> p_16;  // P, rounded: operand A
  RegTile<float, A::rows, d> o;       // O of a warp
  typename RegTile<float, A::rows, d>::ColVec m, m_new, rescale, l;
  load(q, gmem.q(), row);
  zero(o);
  zero(l);
  neg_infty(m);

  for (int key = 0; key < keys; key += A::keys) {
    block::sync(); // all warps have used the last tiles
    block::load(k_smem, gmem.k(), key);
    block::load(v_smem, gmem.v(), key);
    block::sync();

    // S = Q K^T, scaled so that exp(s) becomes exp2(s); -inf where a row does not see a key.
    mma_ABt(s, q, k_smem);
    mul(s, s, problem.scale * kLog2E);
    right_fill(s, s, keys - key);
    if (problem.is_causal)
      make_causal(s, s, row, key);

    // P = exp(S - m) with the running maximum m. Sums under the old maximum are rescaled.
    row_max(m_new, s, m);
    sub(rescale, m, m_new);
    exp2(rescale, rescale);
    mul(l, l, rescale);
    mul_row(o, o, rescale);
    copy(m, m_new);
    sub_row(s, s, m);
    exp2(s, s);
    row_sum(l, s, l);

    // O += P V
    copy(p_16, s);
    mma_AB(o, p_16, v_smem, o);
  }

  div_row(o, o, l);
  copy(o_16, o);
  store(gmem.o(), o_16, row);
  log(l, l);
  mul(m, m, kLn2);
  add(l, l, m);
  store(gmem.lse(), l, row);
}

template <typename T, int d> void launch_head_dim(const AttentionProblem &p, cudaStream_t stream) {
  using A = Arrangement<T, d>;
  const dim3 grid = ladder::launch_grid(p.heads, (p.q_len + A::block_rows - 1) / A::block_rows, p.batch);
  attend<T, d, A><<<grid, A::warps * 32, A::smem_bytes, stream>>>(p);
  ladder::check(cudaGetLastError(), "v3b_tiles: launch");
}

} // namespace

void ladder::launch(const AttentionProblem &p, cudaStream_t stream) {
  require_alignment(p, 16);
  require_rows_fit(p);
  dispatch_16_bit(p, [&](auto element) {
    dispatch_head_dim<32, 64, 128>(p, [&](auto d) { launch_head_dim<decltype(element), d>(p, stream); });
  });
}
