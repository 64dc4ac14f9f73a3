// h1_silu: HSTU attention. No maximum, no sum, no rescaling: the weights are silu of the logits, and tiles of
// keys simply add up. What is new is the batch: sequences of any length, one after the other.
#include "arrangement.h"
#include "ladder/dispatch.h"
#include "ladder/hstu_sequence.h"
#include "tiles/tiles.h"

namespace {

using ladder::HstuProblem;
using ladder::Sequence;
using namespace tiles;

template <typename T, int d, typename A>
__global__ void __launch_bounds__(A::workers * 32, A::blocks)
    attend(const __grid_constant__ HstuProblem problem) {
  using block = group<A::workers>;
  const Sequence<T, d> sequence(problem);
  // The last rows, which see the most keys, start first.
  const int block_row = (gridDim.z - 1 - blockIdx.z) * A::block_rows,
            row = block_row + block::warp() * A::rows;
  if (block_row >= sequence.q_len)
    return;
  // Query i stands at position i + shift: the queries are the last of the sequence's tokens.
  const int shift = sequence.k_len - sequence.q_len;
  const int block_keys = min(sequence.k_len, block_row + A::block_rows + shift);
  const int keys = row < sequence.q_len ? min(sequence.k_len, row + A::rows + shift) : 0;
  const auto k_gmem = sequence.k(block_keys), v_gmem = sequence.v(block_keys);

  extern __shared__ __align__(128) unsigned char smem[];
  SharedAllocator allocator(smem);
  auto &kv_smem = allocator.allocate<typename A::Buffer, 2>();
  typename A::Query q = A::place_q(allocator, block::warp());

  RegTile<float, A::rows, A::keys> s;
  RegTile<T, A::rows, A::keys> p_16;
  RegTile<float, A::rows, d> o;
  RegTile<T, A::rows, d> o_16;
  load(q, sequence.q(), row);
  zero(o);

  const auto fetch = [&](typename A::Buffer &buffer, int key) {
    block::load_async(buffer.k, k_gmem, key);
    block::load_async(buffer.v, v_gmem, key);
    async_commit();
  };
  fetch(kv_smem[0], 0);
  for (int key = 0, turn = 0; key < block_keys; key += A::keys, turn ^= 1) {
    block::async_wait();
    fetch(kv_smem[turn ^ 1], key + A::keys);
    if (key >= keys)
      continue;
    mma_ABt(s, q, kv_smem[turn].k);
    silu(s, s, problem.alpha);
    make_causal(s, s, row + shift, key, 0.f);
    copy(p_16, s);
    mma_AB(o, p_16, kv_smem[turn].v, o);
  }
  mul(o, o, problem.inv_length);
  copy(o_16, o);
  // Read again: through the main loop the tiles need the registers.
  block::store(Sequence<T, d>(problem).o(), o_16, (gridDim.z - 1 - block_index().z) * A::block_rows);
}

template <typename T, int d> void launch_arrangement(const HstuProblem &p, cudaStream_t stream) {
  using A = Arrangement<T, d>;
  if constexpr (A::smem_bytes > 99 * 1024) {
    throw std::invalid_argument(
        "h1_silu: at this head_dim the options chosen do not fit into 99 KB of shared memory");
  } else {
    constexpr auto kernel = attend<T, d, A>;
    ladder::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, A::smem_bytes),
                  "h1_silu: shared memory");
    const dim3 grid =
        ladder::launch_grid(p.heads, p.batch, (p.max_q_len + A::block_rows - 1) / A::block_rows);
    kernel<<<grid, A::workers * 32, A::smem_bytes, stream>>>(p);
    ladder::check(cudaGetLastError(), "h1_silu: launch");
  }
}

} // namespace

void ladder::launch(const HstuProblem &p, cudaStream_t stream) {
  dispatch_16_bit(p, [&](auto element) {
    dispatch_head_dim<32, 64, 128, 256>(p,
                                        [&](auto d) { launch_arrangement<decltype(element), d>(p, stream); });
  });
}
