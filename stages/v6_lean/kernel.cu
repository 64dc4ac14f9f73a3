// v6_lean: v5_async with fewer instructions a score, at the speed of FlashAttention-2.
//
// The scale waits for the subtraction of the maximum, with which it is one instruction. O and l are rescaled
// where the maximum has grown by more than a little, for few tiles. Lanes put their parts of a row together
// when somebody asks, not for every tile. And Arrangement makes the most of the registers and of each
// barrier: 32 rows a warp at d = 128, several tiles a buffer.
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

/// What is taken off the logits need not be their maximum, only near it: while the maximum has grown by less
/// than a factor of 2^kSlack in the weights, the old one serves, and O, which has the same factor as l, need
/// not be rescaled: for most tiles. A larger slack saves no more, but the largest weight, 1 and so exact when
/// the maximum is its own, is rounded to 16 bits when it is not, which tells where it outweighs all others.
constexpr float kSlack = 1.f;

/// Starts to bring a buffer's tiles of K and V, from row `key` on. The number of a part follows from its
/// place and not from a counter, which would take a register where d = 64 has none to spare.
template <typename A, typename T, int d>
__device__ inline void fetch(typename A::Buffer &buffer, const Head<T, d> &gmem, int key) {
  for (auto &k_smem : buffer.k) {
    const int part = &k_smem - buffer.k; // 0, 1, ..
    group<A::workers>::load_async(k_smem, gmem.k(), key + part * A::keys);
    group<A::workers>::load_async(buffer.v[part], gmem.v(), key + part * A::keys);
  }
  async_commit();
}

// A positive scale can wait until after the maximum, to be one fused multiply-add with its subtraction: then
// it is late_scale, which otherwise is 1.
template <typename T, int d, typename A>
__global__ void __launch_bounds__(A::workers * 32, A::blocks)
    attend(const __grid_constant__ AttentionProblem problem, float late_scale) {
  using block = group<A::workers>;
  const int block_row = (gridDim.y - 1 - blockIdx.y) * A::block_rows;
  const int row = block_row + block::warp() * A::rows;
  // How many keys the rows of the block see, and those of this worker.
  const int block_keys = problem.is_causal ? min(problem.kv_len, block_row + A::block_rows) : problem.kv_len;
  const int keys = problem.is_causal ? min(problem.kv_len, row + A::rows) : problem.kv_len;
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
    fetch<A>(kv_smem[ahead], gmem, ahead * A::buffer_keys);
  for (int key0 = 0; key0 < block_keys; key0 += A::buffer_keys) {
    const int now = key0 / A::buffer_keys % A::buffers;
    const int last = (now + A::buffers - 1) % A::buffers;
    block::template async_wait<A::buffers - 2>(); // this buffer is full, and all are done with the last one
    fetch<A>(kv_smem[last], gmem, key0 + (A::buffers - 1) * A::buffer_keys);
    for (int part = 0, key = key0; part < A::parts && key < keys; part++, key += A::keys) {
      // S = Q K^T, in units of late_scale; -inf where a row may not look.
      mma_ABt(s, q, kv_smem[now].k[part]);
      if (problem.scale <= 0.f)
        mul(s, s, problem.scale * kLog2E);
      right_fill(s, s, problem.kv_len - key);
      if (problem.is_causal)
        make_causal(s, s, row, key);

      // The lane's part of the maximum is enough to vote on a new m, which few tiles bring.
      row_max_in_lane(m_new, s);
      mul(m_new, m_new, late_scale);
      if (any_above(m_new, m, kSlack)) {
        max_over_lanes(m_new);
        max(m_new, m_new, m);
        sub(rescale, m, m_new);
        exp2(rescale, rescale);
        mul(l, l, rescale);
        mul_row(o, o, rescale);
        copy(m, m_new);
      }

      // P = exp(S - m)
      mul(s, s, late_scale);
      sub_row(s, s, m);
      exp2(s, s);
      row_sum_in_lane(l, s, l);

      // O += P V
      copy(p_16, s);
      mma_AB(o, p_16, kv_smem[now].v[part], o);
    }
  }

  sum_over_lanes(l);
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
        "v6_lean: such buffers of this head_dim do not fit into 99 KB of shared memory");
  constexpr auto kernel = attend<T, d, A>;
  ladder::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, A::smem_bytes),
                "v6_lean: shared memory");
  const dim3 grid = ladder::launch_grid(p.heads, (p.q_len + A::block_rows - 1) / A::block_rows, p.batch);
  const float late_scale = p.scale > 0.f ? p.scale * kLog2E : 1.f;
  kernel<<<grid, A::workers * 32, A::smem_bytes, stream>>>(p, late_scale);
  ladder::check(cudaGetLastError(), "v6_lean: launch");
}

} // namespace

void ladder::launch(const AttentionProblem &p, cudaStream_t stream) {
  require_alignment(p, 16);
  require_rows_fit(p);
  dispatch_16_bit(p, [&](auto element) {
    dispatch_head_dim<32, 64, 128>(p, [&](auto d) { launch_head_dim<decltype(element), d>(p, stream); });
  });
}
