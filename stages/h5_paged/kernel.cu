// h5_paged: h2_masks with the keys of the history in pages of a cache, wherever there was room. A page is a
// tile: all that changes is where a tile begins in memory. The targets' keys follow in tiles of their own.
#include "arrangement.h"
#include "ladder/dispatch.h"
#include "ladder/hstu_sequence.h"
#include "tiles/tiles.h"

namespace {

using ladder::HstuKeys;
using ladder::HstuProblem;
using namespace tiles;

/// Keys that are multiplied together: `count` of them, the first one at position `key`.
template <typename T, int d> struct KeyTile {
  int key, count;
  StridedMatrix<const T, d> k, v;
};

/// A sequence with its history in pages. What is past the last key of a tile reads as zero, and nothing is
/// fetched for it.
template <typename T, int d> struct PagedSequence : ladder::Sequence<T, d> {
  using ladder::Sequence<T, d>::Sequence, ladder::Sequence<T, d>::p, ladder::Sequence<T, d>::q_begin,
      ladder::Sequence<T, d>::q_len, ladder::Sequence<T, d>::k_len;

  /// Tile i: page i of the history or, after the last page, the next page_size targets.
  __device__ KeyTile<T, d> tile(int i) const {
    const uint3 block = block_index();
    const int targets = p.num_targets ? p.num_targets[block.y] : 0, history = k_len - targets;
    const int pages = p.page_offsets[block.y + 1] - p.page_offsets[block.y];
    if (i < pages) {
      const int stride = p.heads * d, page = p.page_ids[p.page_offsets[block.y] + i], key = i * p.page_size;
      const T *k =
          static_cast<const T *>(p.kv_cache) + int64_t(page) * 2 * p.page_size * stride + block.x * d;
      const int count = min(p.page_size, history - key);
      return {key, count, {k, count, stride}, {k + int64_t(p.page_size) * stride, count, stride}};
    }
    const int target = (i - pages) * p.page_size, count = min(p.page_size, targets - target);
    const int64_t token = q_begin + q_len - targets + target;
    return {history + target,
            count,
            {static_cast<const T *>(p.k) + token * p.k_stride + block.x * d, count, p.k_stride},
            {static_cast<const T *>(p.v) + token * p.v_stride + block.x * d, count, p.v_stride}};
  }
  /// The first tile from i on with a key that a row of `keys` sees; one that begins at keys.end or later if
  /// there is none.
  __device__ KeyTile<T, d> next_tile(int &i, const HstuKeys &keys) const {
    KeyTile<T, d> next = tile(i);
    while (next.key < keys.end && !keys.any_in(next.key, next.count))
      next = tile(++i);
    return next;
  }
};

template <typename T, int d, typename A>
__global__ void __launch_bounds__(A::workers * 32, A::blocks)
    attend(const __grid_constant__ HstuProblem problem) {
  using block = group<A::workers>;
  const PagedSequence<T, d> sequence(problem);
  const int block_row = sequence.block_row(A::block_rows), row = block_row + block::warp() * A::rows;
  if (block_row >= sequence.q_len)
    return;
  const int shift = sequence.shift();
  const auto mask = sequence.template mask<false>();
  const int last = sequence.q_len - 1;
  const HstuKeys block_keys(mask, block_row + shift, min(last, block_row + A::block_rows - 1) + shift);
  const HstuKeys keys(mask, row + shift, min(last, row + A::rows - 1) + shift);

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

  const auto fetch = [&](typename A::Buffer &buffer, const KeyTile<T, d> &tile) {
    if (tile.key < block_keys.end) {
      block::load_async(buffer.k, tile.k);
      block::load_async(buffer.v, tile.v);
    }
    async_commit();
    return tile.key;
  };
  int i = 0, key = fetch(kv_smem[0], sequence.next_tile(i, block_keys));
  for (int turn = 0; key < block_keys.end; turn ^= 1) {
    block::async_wait();
    const int next = fetch(kv_smem[turn ^ 1], sequence.next_tile(++i, block_keys));
    if (row <= last && keys.any_in(key, A::keys)) {
      mma_ABt(s, q, kv_smem[turn].k);
      silu(s, s, problem.alpha);
      if (!keys.all_in(key, A::keys)) {
        // Read again where it is needed, as after the loop: in between the tiles need the registers.
        const PagedSequence<T, d> again(problem);
        const auto mask = again.template mask<false>();
        keep_bits(s, s, [&](int r) { return mask.row_bits(row + r + again.shift(), key, A::keys); });
      }
      copy(p_16, s);
      mma_AB(o, p_16, kv_smem[turn].v, o);
    }
    key = next;
  }
  mul(o, o, problem.inv_length);
  copy(o_16, o);
  const PagedSequence<T, d> again(problem);
  block::store(again.o(), o_16, again.block_row(A::block_rows));
}

template <typename T, int d, int kPage> void launch_arrangement(const HstuProblem &p, cudaStream_t stream) {
  using A = Arrangement<T, d, kPage>;
  if constexpr (A::smem_bytes > 99 * 1024) {
    throw std::invalid_argument(
        "h5_paged: at this head_dim and page size the tiles do not fit into 99 KB of shared memory");
  } else {
    constexpr auto kernel = attend<T, d, A>;
    ladder::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, A::smem_bytes),
                  "h5_paged: shared memory");
    const dim3 grid =
        ladder::launch_grid(p.heads, p.batch, (p.max_q_len + A::block_rows - 1) / A::block_rows);
    kernel<<<grid, A::workers * 32, A::smem_bytes, stream>>>(p);
    ladder::check(cudaGetLastError(), "h5_paged: launch");
  }
}

} // namespace

void ladder::launch(const HstuProblem &p, cudaStream_t stream) {
  if (p.page_size != 32 && p.page_size != 64)
    throw std::invalid_argument("h5_paged: page_size must be 32 or 64, not " + std::to_string(p.page_size));
  dispatch_16_bit(p, [&](auto element) {
    dispatch_head_dim<32, 64, 128, 256>(p, [&](auto d) {
      if (p.page_size == 32)
        launch_arrangement<decltype(element), d, 32>(p, stream);
      else
        launch_arrangement<decltype(element), d, 64>(p, stream);
    });
  });
}
