// h3_rab: h2_masks with the relative attention bias, a value for each pair of positions, which the
// accumulator of q k^T begins with. Every tile of it is brought once, beside those of K and V.
#include "arrangement.h"
#include "ladder/dispatch.h"
#include "ladder/hstu_sequence.h"
#include "tiles/tiles.h"

namespace {

using ladder::HstuKeys;
using ladder::HstuMask;
using ladder::HstuProblem;
using ladder::Sequence;
using namespace tiles;

/// Whether bits(r) is not 0 for one of a warp's rows r.
template <int kRows, typename F> __device__ inline bool warp_any(F bits) {
  bool any = false;
  for (int r = lane_id(); r < kRows; r += 32)
    any |= bits(r) != 0;
  return __any_sync(0xffffffffu, any);
}

/// The first tile from `key` on in which the block's rows see a key; block_keys.end or more if there is none.
template <typename A, bool kIntervals>
__device__ inline int next_tile(const HstuMask<kIntervals> &mask, const HstuKeys &block_keys, int key,
                                int block_row, int shift, int last) {
  if constexpr (!kIntervals) {
    if (key >= block_keys.gap_begin && key + A::keys <= block_keys.gap_end)
      key = block_keys.gap_end / A::keys * A::keys;
    return key;
  }
  for (; key < block_keys.end; key += A::keys) {
    bool any = false;
    for (int r = block_row + threadIdx.x; r <= min(last, block_row + A::block_rows - 1); r += blockDim.x)
      any |= mask.row_bits(r + shift, key, A::keys) != 0;
    if (__syncthreads_or(any))
      break;
  }
  return key;
}

template <typename T, int d, typename A, bool kIntervals>
__global__ void __launch_bounds__(A::workers * 32, A::blocks)
    attend(const __grid_constant__ HstuProblem problem) {
  using block = group<A::workers>;
  const Sequence<T, d> sequence(problem);
  const int block_row = sequence.block_row(A::block_rows), row = block_row + block::warp() * A::rows;
  if (block_row >= sequence.q_len)
    return;
  const int shift = sequence.shift();
  const auto mask = sequence.template mask<kIntervals>();
  const int last = sequence.q_len - 1;
  const HstuKeys block_keys(mask, block_row + shift, min(last, block_row + A::block_rows - 1) + shift);
  const HstuKeys keys(mask, row + shift, min(last, row + A::rows - 1) + shift);
  const auto k_gmem = sequence.k(block_keys.end), v_gmem = sequence.v(block_keys.end);

  const auto rab_gmem = sequence.rab();

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
    block::load_async(buffer.rab, rab_gmem, block_row + shift, key);
    async_commit();
  };
  int key = next_tile<A>(mask, block_keys, block_keys.begin / A::keys * A::keys, block_row, shift, last);
  fetch(kv_smem[0], key);
  for (int turn = 0; key < block_keys.end; turn ^= 1) {
    const int next = next_tile<A>(mask, block_keys, key + A::keys, block_row, shift, last);
    block::async_wait();
    fetch(kv_smem[turn ^ 1], next);
    // Read again where it is needed, as after the loop: in between the tiles need the registers.
    const auto bits = [&] {
      const Sequence<T, d> again(problem);
      return [=, mask = again.template mask<kIntervals>()](int r) {
        return mask.row_bits(min(row + r, again.q_len - 1) + again.shift(), key, A::keys);
      };
    };
    if (row <= last && (kIntervals ? warp_any<A::rows>(bits()) : keys.any_in(key, A::keys))) {
      block::load(p_16, kv_smem[turn].rab);
      copy(s, p_16);
      mma_ABt(s, q, kv_smem[turn].k, s);
      silu(s, s, problem.alpha);
      if (kIntervals || !keys.all_in(key, A::keys))
        keep_bits(s, s, bits());
      copy(p_16, s);
      mma_AB(o, p_16, kv_smem[turn].v, o);
    }
    key = next;
  }
  mul(o, o, problem.inv_length);
  copy(o_16, o);
  const Sequence<T, d> again(problem);
  block::store(again.o(), o_16, again.block_row(A::block_rows));
}

template <typename T, int d> void launch_arrangement(const HstuProblem &p, cudaStream_t stream) {
  using A = Arrangement<T, d>;
  if constexpr (A::smem_bytes > 99 * 1024) {
    throw std::invalid_argument(
        "h3_rab: at this head_dim the options chosen do not fit into 99 KB of shared memory");
  } else {
    const auto kernel = p.intervals ? attend<T, d, A, true> : attend<T, d, A, false>;
    ladder::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, A::smem_bytes),
                  "h3_rab: shared memory");
    const dim3 grid =
        ladder::launch_grid(p.heads, p.batch, (p.max_q_len + A::block_rows - 1) / A::block_rows);
    kernel<<<grid, A::workers * 32, A::smem_bytes, stream>>>(p);
    ladder::check(cudaGetLastError(), "h3_rab: launch");
  }
}

} // namespace

void ladder::launch(const HstuProblem &p, cudaStream_t stream) {
  dispatch_16_bit(p, [&](auto element) {
    dispatch_head_dim<32, 64, 128, 256>(p,
                                        [&](auto d) { launch_arrangement<decltype(element), d>(p, stream); });
  });
}
