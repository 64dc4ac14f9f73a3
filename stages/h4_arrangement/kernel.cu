// h4_arrangement: h2_masks with a choice of what a block's warps share: its queries, or the keys. With few
// queries the latter has work for all warps, at the price of a sum over them at the end.
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
    if (key >= block_keys.gap_begin && key + A::step <= block_keys.gap_end)
      key = block_keys.gap_end / A::step * A::step;
    return key;
  }
  for (; key < block_keys.end; key += A::step) {
    bool any = false;
    for (int r = block_row + threadIdx.x; r <= min(last, block_row + A::block_rows - 1); r += blockDim.x)
      any |= mask.row_bits(r + shift, key, A::step) != 0;
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
  const int part = A::over_keys ? block::warp() : 0; // of the tiles in a buffer
  const int block_row = sequence.block_row(A::block_rows),
            row = block_row + (A::over_keys ? 0 : block::warp() * A::rows);
  if (block_row >= sequence.q_len)
    return;
  const int shift = sequence.shift();
  const auto mask = sequence.template mask<kIntervals>();
  const int last = sequence.q_len - 1;
  const HstuKeys block_keys(mask, block_row + shift, min(last, block_row + A::block_rows - 1) + shift);
  const HstuKeys keys(mask, row + shift, min(last, row + A::rows - 1) + shift);
  const auto k_gmem = sequence.k(block_keys.end), v_gmem = sequence.v(block_keys.end);

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
    for (int i = 0; i < A::parts; i++) {
      block::load_async(buffer.k[i], k_gmem, key + i * A::keys);
      block::load_async(buffer.v[i], v_gmem, key + i * A::keys);
    }
    async_commit();
  };
  int key = next_tile<A>(mask, block_keys, block_keys.begin / A::step * A::step, block_row, shift, last);
  fetch(kv_smem[0], key);
  for (int turn = 0; key < block_keys.end; turn ^= 1) {
    const int next = next_tile<A>(mask, block_keys, key + A::step, block_row, shift, last);
    block::async_wait();
    fetch(kv_smem[turn ^ 1], next);
    const int own = key + part * A::keys;
    // Read again where it is needed, as after the loop: in between the tiles need the registers.
    const auto bits = [&] {
      const Sequence<T, d> again(problem);
      return [=, mask = again.template mask<kIntervals>()](int r) {
        return mask.row_bits(min(row + r, again.q_len - 1) + again.shift(), own, A::keys);
      };
    };
    if (row <= last && (kIntervals ? warp_any<A::rows>(bits()) : keys.any_in(own, A::keys))) {
      mma_ABt(s, q, kv_smem[turn].k[part]);
      silu(s, s, problem.alpha);
      if (kIntervals || !keys.all_in(own, A::keys))
        keep_bits(s, s, bits());
      copy(p_16, s);
      mma_AB(o, p_16, kv_smem[turn].v[part], o);
    }
    key = next;
  }
  if constexpr (A::over_keys) {
    block::async_wait(); // the tiles past the last one are still on their way to where the sums will be
    block::sum_to_first(o, *reinterpret_cast<typename A::Partial(*)[A::workers]>(&kv_smem));
  }
  mul(o, o, problem.inv_length);
  copy(o_16, o);
  const Sequence<T, d> again(problem);
  if constexpr (!A::over_keys)
    block::store(again.o(), o_16, again.block_row(A::block_rows));
  else if (part == 0)
    store(again.o(), o_16, again.block_row(A::block_rows));
}

template <typename T, int d, bool kOverKeys>
void launch_arrangement(const HstuProblem &p, cudaStream_t stream) {
  using A = Arrangement<T, d, kOverKeys>;
  if constexpr (A::smem_bytes > 99 * 1024) {
    throw std::invalid_argument(
        "h4_arrangement: at this head_dim the options chosen do not fit into 99 KB of shared memory");
  } else {
    const auto kernel = p.intervals ? attend<T, d, A, true> : attend<T, d, A, false>;
    ladder::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, A::smem_bytes),
                  "h4_arrangement: shared memory");
    const dim3 grid =
        ladder::launch_grid(p.heads, p.batch, (p.max_q_len + A::block_rows - 1) / A::block_rows);
    kernel<<<grid, A::workers * 32, A::smem_bytes, stream>>>(p);
    ladder::check(cudaGetLastError(), "h4_arrangement: launch");
  }
}

/// With few queries, most warps of a block that shares them have no work.
bool over_keys(const HstuProblem &p) { return OVER_KEYS < 0 ? p.max_q_len <= 32 : OVER_KEYS != 0; }

} // namespace

void ladder::launch(const HstuProblem &p, cudaStream_t stream) {
  dispatch_16_bit(p, [&](auto element) {
    dispatch_head_dim<32, 64, 128, 256>(p, [&](auto d) {
      if (over_keys(p))
        launch_arrangement<decltype(element), d, true>(p, stream);
      else
        launch_arrangement<decltype(element), d, false>(p, stream);
    });
  });
}
