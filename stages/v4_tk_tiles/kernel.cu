// v4_tk_tiles: the FlashAttention-2 of v3_swizzle, written in tiles.
//
// The tile library, stages/include/tiles/, holds what v2 and v3 spell out: fragments, ldmatrix, mma,
// swizzles, shuffles. The kernel says the algorithm, one operation a line, destination first. S, P and O stay
// in registers: there the result of one product is the factor of the next, and a row belongs to four lanes.
//
// A block has sixteen warps, the workers. They share each tile of K and V, which so is read once for 256
// query rows; each worker owns 16 of them, as in v3.
#include <cmath>

#include "arrangement.h"
#include "ladder/attention.h"
#include "ladder/dispatch.h"
#include "ladder/head.h"
#include "tiles/tiles.h"

namespace {

using ladder::AttentionProblem;
using namespace tiles;

constexpr float kLog2E = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

template <typename T, int d, typename A>
__global__ void __launch_bounds__(A::workers * 32) attend(const __grid_constant__ AttentionProblem problem) {
  using block = group<A::workers>;
  const int block_row = blockIdx.y * A::block_rows;
  const int row = block_row + block::warp() * A::rows;
  // How many keys the rows of the block see, and those of this worker.
  const int block_keys = problem.is_causal ? min(problem.kv_len, block_row + A::block_rows) : problem.kv_len;
  const int keys = problem.is_causal ? min(block_keys, row + A::rows) : block_keys;
  const Head<T, d> gmem(problem, block_keys);

  extern __shared__ __align__(128) unsigned char smem[];
  SharedAllocator allocator(smem);
  auto &k_smem = allocator.allocate<typename A::KV>();
  auto &v_smem = allocator.allocate<typename A::KV>();
  auto &q_smem = allocator.allocate<typename A::Q, A::workers>()[block::warp()];

  RegTile<T, A::rows, d> q_rmem, o_16;
  RegTile<float, A::rows, A::keys> s;
  RegTile<T, A::rows, A::keys> p_16;
  RegTile<float, A::rows, d> o;
  typename RegTile<float, A::rows, d>::ColVec m, m_new, rescale, l;
  auto &q = choose<A::q_in_registers>(q_rmem, q_smem);
  load(q, gmem.q(), row);
  zero(o);
  zero(l);
  neg_infty(m);

  for (int key = 0; key < block_keys; key += A::keys) {
    block::sync(); // all workers are done with the last tiles
    block::load(k_smem, gmem.k(), key);
    block::load(v_smem, gmem.v(), key);
    block::sync();
    if (key >= keys) // only workers further down see these keys
      continue;

    // S = Q K^T, scaled so that exp(s) is exp2 of it; -inf where a row may not look.
    mma_ABt(s, q, k_smem);
    mul(s, s, problem.scale * kLog2E);
    right_fill(s, s, block_keys - key);
    if (problem.is_causal)
      make_causal(s, s, row, key);

    // P = exp(S - m) with the running maximum m. What was added up under the old one is rescaled.
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
  block::store(gmem.o(), o_16, block_row);
  log(l, l);
  mul(m, m, kLn2);
  add(l, l, m);
  block::store(gmem.lse(), l, block_row);
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
