// v5_async: v4_tk_tiles, and K and V arrive while the tensor cores work.
//
// cp.async copies from global to shared memory past the registers and does not wait. So shared memory holds
// several buffers, each for a tile of K and one of V: the workers compute on one, the others are on their
// way. One barrier a tile serves both ways, as a buffer is filled again only behind the barrier after its
// use.
//
// With a causal mask the last rows see the most keys. Their blocks start first, or they would end alone.
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

/// Starts to bring the tiles of K and V from row `key` on.
template <typename A, typename T, int d>
__device__ inline void fetch(typename A::Buffer &buffer, const Head<T, d> &gmem, int key) {
  group<A::workers>::load_async(buffer.k, gmem.k(), key);
  group<A::workers>::load_async(buffer.v, gmem.v(), key);
  async_commit();
}

template <typename T, int d, typename A>
__global__ void __launch_bounds__(A::workers * 32) attend(const __grid_constant__ AttentionProblem problem) {
  using block = group<A::workers>;
  const int block_row = (gridDim.y - 1 - blockIdx.y) * A::block_rows;
  const int row = block_row + block::warp() * A::rows;
  // How many keys the rows of the block see, and those of this worker.
  const int block_keys = problem.is_causal ? min(problem.kv_len, block_row + A::block_rows) : problem.kv_len;
  const int keys = problem.is_causal ? min(block_keys, row + A::rows) : problem.kv_len;
  const Head<T, d> gmem(problem, block_keys);

  extern __shared__ __align__(128) unsigned char smem[];
  SharedAllocator allocator(smem);
  auto &kv_smem = allocator.allocate<typename A::Buffer, A::buffers>();
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

  for (int ahead = 0; ahead < A::buffers - 1; ahead++)
    fetch<A>(kv_smem[ahead], gmem, ahead * A::keys);
  for (int key = 0, now = 0; key < block_keys; key += A::keys, now = (now + 1) % A::buffers) {
    const int last = (now + A::buffers - 1) % A::buffers;
    block::template async_wait<A::buffers - 2>(); // this tile is there, and all are done with the last one
    fetch<A>(kv_smem[last], gmem, key + (A::buffers - 1) * A::keys);
    if (key >= keys) // only workers further down see these keys
      continue;

    // S = Q K^T, scaled so that exp(s) is exp2 of it; -inf where a row may not look.
    mma_ABt(s, q, kv_smem[now].k);
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
    mma_AB(o, p_16, kv_smem[now].v, o);
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
  if (A::smem_bytes > 99 * 1024)
    throw std::invalid_argument(
        "v5_async: so many buffers of this head_dim do not fit into 99 KB of shared memory");
  constexpr auto kernel = attend<T, d, A>;
  ladder::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, A::smem_bytes),
                "v5_async: shared memory");
  const dim3 grid = ladder::launch_grid(p.heads, (p.q_len + A::block_rows - 1) / A::block_rows, p.batch);
  kernel<<<grid, A::workers * 32, A::smem_bytes, stream>>>(p);
  ladder::check(cudaGetLastError(), "v5_async: launch");
}

} // namespace

void ladder::launch(const AttentionProblem &p, cudaStream_t stream) {
  require_alignment(p, 16);
  require_rows_fit(p);
  dispatch_16_bit(p, [&](auto element) {
    dispatch_head_dim<32, 64, 128>(p, [&](auto d) { launch_head_dim<decltype(element), d>(p, stream); });
  });
}
