// h5_paged: h2_masks with the keys and values of the history in the pages of a cache.
//
// A page is a tile: all that changes is where a tile begins in memory. The targets' keys are not in the
// cache; they follow in tiles of their own.
#include "ladder/dispatch.h"
#include "ladder/hstu_sequence.h"
#include "tiles/tiles.h"

namespace {

using ladder::HstuKeys;
using ladder::HstuProblem;
using ladder::Sequence;
using namespace tiles;

/// Tile sizes for elements T, head dimension d and pages of kPage keys, which are the tiles.
template <typename T, int d, int kPage> struct Arrangement {
  static constexpr int rows = d * kPage >= 64 * 64 ? 16 : 32, workers = 4, block_rows = workers * rows;
  static constexpr int keys = kPage;
  // Blocks per SM, which limit the registers per thread: enough to hide the latency of silu.
  static constexpr int blocks = d <= 64 ? 3 : d == 128 ? 2 : 1;
  using KV = SharedTile<T, keys, d>;

  static constexpr bool q_in_registers = d < 128;
  using Q = SharedTile<T, rows, d>;
  static constexpr int q_bytes = q_in_registers ? 0 : SharedAllocator::bytes<Q, workers>;
  static constexpr int smem_bytes = 2 * SharedAllocator::bytes<KV, 2> + q_bytes;
};

template <typename T, int d> struct SeenTiles;

template <typename T, int d, typename A>
__global__ void __launch_bounds__(A::workers * 32, A::blocks)
    attend(const __grid_constant__ HstuProblem problem) {
  using block = group<A::workers>;
  const Sequence<T, d> sequence(problem);
  const int block_row = sequence.block_row(A::block_rows);
  const int row = block_row + block::warp() * A::rows;
  if (block_row >= sequence.q_len)
    return;
  // Query i is token i + shift: the queries are the last tokens of the sequence.
  const int shift = sequence.shift(), last = sequence.q_len - 1;
  const auto mask = sequence.template mask<false>();
  const SeenTiles<T, d> seen{sequence,
                             {mask, block_row + shift, min(last, block_row + A::block_rows - 1) + shift}};
  const HstuKeys keys(mask, row + shift, min(last, row + A::rows - 1) + shift);

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

  const auto prefetch = [&](int buffer, const auto &tile) {
    block::load_async(k_smem[buffer], tile.k);
    block::load_async(v_smem[buffer], tile.v);
    async_commit();
    return tile.key;
  };
  int i = 0, key = prefetch(0, seen.from(i));
  for (int now = 0, next; key < seen.keys.end; key = next, now = 1 - now) {
    block::async_wait(); // these tiles have arrived, and all workers have used the last ones
    next = prefetch(1 - now, seen.from(++i));
    if (row > last || !keys.any_in(key, A::keys))
      continue;

    // S = Q K^T, P = silu(alpha S)
    mma_ABt(s, q, k_smem[now]);
    silu(s, s, problem.alpha);
    if (!keys.all_in(key, A::keys)) {
      const Sequence<T, d> again(problem);
      const auto mask = again.template mask<false>();
      keep_bits(s, s, [&](int r) { return mask.row_bits(row + r + again.shift(), key, A::keys); });
    }

    // O += P V
    copy(p_16, s);
    mma_AB(o, p_16, v_smem[now], o);
  }

  mul(o, o, problem.inv_length);
  copy(o_16, o);
  const Sequence<T, d> again(problem);
  block::store(again.o(), o_16, again.block_row(A::block_rows));
}

/// The tiles of a sequence in which a row of the block sees a key; `keys` are those that the rows see.
/// Out-of-range keys of a tile are loaded as zeros.
template <typename T, int d> struct SeenTiles {
  const Sequence<T, d> &sequence;
  const HstuKeys keys;

  /// `count` keys from position `key` on.
  struct Tile {
    int key, count;
    StridedMatrix<const T, d> k, v;
  };

  /// Tile i: page i of the history or, after the last page, the next page_size targets.
  __device__ Tile tile(int i) const {
    const HstuProblem &p = sequence.p;
    const uint3 block = block_index();
    const int targets = p.num_targets ? p.num_targets[block.y] : 0, history = sequence.k_len - targets;
    const int pages = p.page_offsets[block.y + 1] - p.page_offsets[block.y];
    if (i < pages) {
      const int stride = p.heads * d, page = p.page_ids[p.page_offsets[block.y] + i], key = i * p.page_size;
      const T *k =
          static_cast<const T *>(p.kv_cache) + int64_t(page) * 2 * p.page_size * stride + block.x * d;
      const int count = min(p.page_size, history - key);
      return {key, count, {k, count, stride}, {k + int64_t(p.page_size) * stride, count, stride}};
    }
    const int target = (i - pages) * p.page_size, count = min(p.page_size, targets - target);
    const int64_t token = sequence.q_begin + sequence.q_len - targets + target;
    const T *k = static_cast<const T *>(p.k) + token * p.k_stride + block.x * d;
    const T *v = static_cast<const T *>(p.v) + token * p.v_stride + block.x * d;
    return {history + target, count, {k, count, p.k_stride}, {v, count, p.v_stride}};
  }

  /// Advances i to the first such tile from tile i on, and returns that tile. If there is none, the returned
  /// tile begins at keys.end or later.
  __device__ Tile from(int &i) const {
    Tile next = tile(i);
    while (next.key < keys.end && !keys.any_in(next.key, next.count))
      next = tile(++i);
    return next;
  }
};

template <typename T, int d, int kPage> void launch_head_dim(const HstuProblem &p, cudaStream_t stream) {
  using A = Arrangement<T, d, kPage>;
  constexpr auto kernel = attend<T, d, A>;
  ladder::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, A::smem_bytes),
                "h5_paged: shared memory");
  const dim3 grid = ladder::launch_grid(p.heads, p.batch, (p.max_q_len + A::block_rows - 1) / A::block_rows);
  kernel<<<grid, A::workers * 32, A::smem_bytes, stream>>>(p);
  ladder::check(cudaGetLastError(), "h5_paged: launch");
}

} // namespace

void ladder::launch(const HstuProblem &p, cudaStream_t stream) {
  dispatch_16_bit(p, [&](auto element) {
    dispatch_size<32, 64>("page_size", p.page_size, [&](auto page) {
      dispatch_head_dim<32, 64, 128, 256>(p, [&](auto d) {
        if constexpr (d * page <= 128 * 64)
          launch_head_dim<decltype(element), d, page>(p, stream);
        else
          refuse("h5_paged: at head_dim 256 page_size must be 32, not 64");
      });
    });
  });
}
