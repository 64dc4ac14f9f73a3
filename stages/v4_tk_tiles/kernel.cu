// v4_tk_tiles: v3b_tiles with sixteen warps per block, the workers, which share each tile of K and V.
//
// A tile is loaded once for 256 query rows instead of 64. Sixteen warps leave 128 registers per thread: at
// d = 128, where O takes 64 of them, Q stays in shared memory.
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
  static constexpr int workers = 16, rows = 16, block_rows = workers * rows; // rows per worker, per block
  static constexpr int keys = d == 32 ? 64 : d == 64 ? 48 : 32;              // per tile
  using KV = SharedTile<T, keys, d>;

  static constexpr bool q_in_registers = d < 128;
  using Q = SharedTile<T, rows, d>;
  static constexpr int q_bytes = q_in_registers ? 0 : SharedAllocator::bytes<Q, workers>;
  static constexpr int smem_bytes = SharedAllocator::bytes<KV, 2> + q_bytes;
};

template <typename T, int d, typename A>
__global__ void __launch_bounds__(A::workers * 32) attend(const __grid_constant__ AttentionProblem problem) {
  using block = group<A::workers>;
  // Causal: the last rows see the most keys, so their blocks start first.
  const int block_row = (gridDim.y - 1 - blockIdx.y) * A::block_rows;
  const int row = block_row + block::warp() * A::rows;
  // Causal: query i sees keys 0 to i, so the block skips later tiles. A worker with earlier rows skips more.
  const int block_keys = problem.is_causal ? min(problem.kv_len, block_row + A::block_rows) : problem.kv_len;
  const int keys = problem.is_causal ? min(problem.kv_len, row + A::rows) : problem.kv_len;
  const Head<T, d> gmem(problem, block_keys);

  extern __shared__ __align__(128) unsigned char smem[];
  SharedAllocator allocator(smem);
  auto &k_smem = allocator.allocate<typename A::KV>();
  auto &v_smem = allocator.allocate<typename A::KV>();
  auto &q_smem = allocator.allocate<typename A::Q, A::workers>()[block::warp()];

  RegTile<T, A::rows, d> q_rmem, o_16;
  RegTile<float, A::rows, A::keys> s; // S of a warp
  RegTile<T, A::rows, A::keys> p_16;  // P, rounded: operand A
  RegTile<float, A::rows, d> o;       // O of a warp
  typename RegTile<float, A::rows, d>::ColVec m, m_new, rescale, l;
  auto &q = choose<A::q_in_registers>(q_rmem, q_smem);
  load(q, gmem.q(), row);
  zero(o);
  zero(l);
  neg_infty(m);

  for (int key = 0; key < block_keys; key += A::keys) {
    block::sync(); // all workers have used the last tiles
    block::load(k_smem, gmem.k(), key);
    block::load(v_smem, gmem.v(), key);
    block::sync();
    if (key >= keys)
      continue;

    // S = Q K^T, scaled so that exp(s) becomes exp2(s); -inf where a row does not see a key.
    mma_ABt(s, q, k_smem);
    mul(s, s, problem.scale * kLog2E);
    right_fill(s, s, block_keys - key);
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
  constexpr auto kernel = attend<T, d, A>;
  ladder::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, A::smem_bytes),
                "v4_tk_tiles: shared memory");
  const dim3 grid = ladder::launch_grid(p.heads, (p.q_len + A::block_rows - 1) / A::block_rows, p.batch);
  kernel<<<grid, A::workers * 32, A::smem_bytes, stream>>>(p);
  ladder::check(cudaGetLastError(), "v4_tk_tiles: launch");
}

} // namespace

void ladder::launch(const AttentionProblem &p, cudaStream_t stream) {
  require_alignment(p, 16);
  require_rows_fit(p);
  dispatch_16_bit(p, [&](auto element) {
    dispatch_head_dim<32, 64, 128>(p, [&](auto d) { launch_head_dim<decltype(element), d>(p, stream); });
  });
}
