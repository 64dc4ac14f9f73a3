// h1_silu: HSTU attention: v6_late_scale without a softmax, over a jagged batch.
//
// A weight is silu of its own logit, and depends on no other. So there is no maximum, no sum and no
// rescaling: tiles of keys simply add up. The sequences of a batch have any lengths and are stored one after
// the other.
#include "ladder/dispatch.h"
#include "ladder/hstu_sequence.h"
#include "tiles/tiles.h"

namespace {

using ladder::HstuProblem;
using ladder::Sequence;
using namespace tiles;

/// Tile sizes for elements T and head dimension d.
template <typename T, int d> struct Arrangement {
  static constexpr int rows = d == 256 ? 16 : 32, workers = 4, block_rows = workers * rows;
  static constexpr int keys = d == 256 ? 16 : 32; // per tile
  // Blocks per SM, which limit the registers per thread: enough to hide the latency of silu.
  static constexpr int blocks = d <= 64 ? 3 : d == 128 ? 2 : 1;
  using KV = SharedTile<T, keys, d>;

  static constexpr bool q_in_registers = d < 128;
  using Q = SharedTile<T, rows, d>;
  static constexpr int q_bytes = q_in_registers ? 0 : SharedAllocator::bytes<Q, workers>;
  static constexpr int smem_bytes = 2 * SharedAllocator::bytes<KV, 2> + q_bytes;
};

template <typename T, int d, typename A>
__global__ void __launch_bounds__(A::workers * 32, A::blocks)
    attend(const __grid_constant__ HstuProblem problem) {
  using block = group<A::workers>;
  const Sequence<T, d> sequence(problem);
  // The last rows see the most keys, so their blocks start first.
  const int block_row = (gridDim.z - 1 - blockIdx.z) * A::block_rows;
  const int row = block_row + block::warp() * A::rows;
  if (block_row >= sequence.q_len)
    return;
  // Query i is token i + shift: the queries are the last tokens of the sequence.
  const int shift = sequence.shift();
  const int block_keys = min(sequence.k_len, block_row + A::block_rows + shift);
  const int keys = row < sequence.q_len ? min(sequence.k_len, row + A::rows + shift) : 0;
  const auto k_gmem = sequence.k(block_keys), v_gmem = sequence.v(block_keys);

  extern __shared__ __align__(128) unsigned char smem[];
  SharedAllocator allocator(smem);
  auto &k_smem = allocator.allocate<typename A::KV, 2>();
  auto &v_smem = allocator.allocate<typename A::KV, 2>();
  auto &q_smem = allocator.allocate<typename A::Q, A::workers>()[block::warp()];

  RegTile<T, A::rows, d> q_rmem, o_16;
  RegTile<float, A::rows, A::keys> s;
  RegTile<T, A::rows, A::keys> p_16;
  RegTile<float, A::rows, d> o;
  auto &q = choose<A::q_in_registers>(q_rmem, q_smem);
  load(q, sequence.q(), row);
  zero(o);

  const auto prefetch = [&](int buffer, int key) {
    block::load_async(k_smem[buffer], k_gmem, key);
    block::load_async(v_smem[buffer], v_gmem, key);
    async_commit();
  };
  prefetch(0, 0);
  for (int key = 0, now = 0; key < block_keys; key += A::keys, now = 1 - now) {
    block::async_wait(); // these tiles have arrived, and all workers have used the last ones
    prefetch(1 - now, key + A::keys);
    if (key >= keys)
      continue;

    // S = Q K^T, P = silu(alpha S)
    mma_ABt(s, q, k_smem[now]);
    silu(s, s, problem.alpha);
    make_causal(s, s, row + shift, key, 0.f);

    // O += P V
    copy(p_16, s);
    mma_AB(o, p_16, v_smem[now], o);
  }

  mul(o, o, problem.inv_length);
  copy(o_16, o);
  // Recomputed, because the loop needs the registers.
  block::store(Sequence<T, d>(problem).o(), o_16, (gridDim.z - 1 - block_index().z) * A::block_rows);
}

template <typename T, int d> void launch_head_dim(const HstuProblem &p, cudaStream_t stream) {
  using A = Arrangement<T, d>;
  constexpr auto kernel = attend<T, d, A>;
  ladder::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, A::smem_bytes),
                "h1_silu: shared memory");
  const dim3 grid = ladder::launch_grid(p.heads, p.batch, (p.max_q_len + A::block_rows - 1) / A::block_rows);
  kernel<<<grid, A::workers * 32, A::smem_bytes, stream>>>(p);
  ladder::check(cudaGetLastError(), "h1_silu: launch");
}

} // namespace

void ladder::launch(const HstuProblem &p, cudaStream_t stream) {
  dispatch_16_bit(p, [&](auto element) {
    dispatch_head_dim<32, 64, 128, 256>(p, [&](auto d) { launch_head_dim<decltype(element), d>(p, stream); });
  });
}
