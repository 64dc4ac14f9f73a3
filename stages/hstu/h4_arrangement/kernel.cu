// h4_arrangement: h2_masks, whose warps split the keys instead of the queries if there are few queries.
//
// With few queries one warp of a block has all of them, and the other warps are idle. Here all warps have the
// same queries and split the keys. Each warp sums its own part of O, and the parts are added at the end.
#include "ladder/dispatch.h"
#include "ladder/hstu_sequence.h"
#include "tiles/tiles.h"

namespace {

using ladder::HstuKeys;
using ladder::HstuMask;
using ladder::HstuProblem;
using ladder::Sequence;
using namespace tiles;

/// Tile sizes for elements T and head dimension d, where the warps split the queries of a block or the keys.
template <typename T, int d, bool kSplitKeys> struct Arrangement {
  static constexpr bool split_keys = kSplitKeys;
  static constexpr int rows = split_keys || d == 256 ? 16 : 32, workers = split_keys && d == 256 ? 2 : 4;
  static constexpr int block_rows = split_keys ? rows : workers * rows;
  static constexpr int keys = d == 256 || (split_keys && d == 128) ? 16 : 32; // per worker's tile
  static constexpr int parts = split_keys ? workers : 1, step = parts * keys; // tiles and keys per buffer
  // Blocks per SM, which limit the registers per thread: enough to hide the latency of silu.
  static constexpr int blocks = d <= 64 ? 3 : d == 128 ? 2 : 1;
  using KV = SharedTile<T, keys, d>;

  static constexpr bool q_in_registers = d < 128;
  using Q = SharedTile<T, rows, d>;
  static constexpr int q_bytes = q_in_registers ? 0 : SharedAllocator::bytes<Q, workers>;
  static constexpr int smem_bytes = 2 * SharedAllocator::bytes<KV[parts], 2> + q_bytes;
  /// The workers' parts of O, in the buffers of K after their last use.
  using Partial = SharedTile<float, rows, d>;
  static_assert(!split_keys || sizeof(Partial[workers]) <= sizeof(KV[2 * parts]));
};

template <typename A, bool kIntervals> struct SeenTiles;
template <int kRows, typename F> __device__ bool warp_any(F bits);

template <typename T, int d, typename A, bool kIntervals>
__global__ void __launch_bounds__(A::workers * 32, A::blocks)
    attend(const __grid_constant__ HstuProblem problem) {
  using block = group<A::workers>;
  const Sequence<T, d> sequence(problem);
  const int part = A::split_keys ? block::warp() : 0; // of the tiles of a buffer
  const int block_row = sequence.block_row(A::block_rows);
  const int row = block_row + (A::split_keys ? 0 : block::warp() * A::rows);
  if (block_row >= sequence.q_len)
    return;
  // Query i is token i + shift: the queries are the last tokens of the sequence.
  const int shift = sequence.shift(), last = sequence.q_len - 1;
  const auto mask = sequence.template mask<kIntervals>();
  const SeenTiles<A, kIntervals> seen{mask, block_row + shift,
                                      min(last, block_row + A::block_rows - 1) + shift};
  const HstuKeys keys(mask, row + shift, min(last, row + A::rows - 1) + shift);
  const auto k_gmem = sequence.k(seen.keys.end), v_gmem = sequence.v(seen.keys.end);

  extern __shared__ __align__(128) unsigned char smem[];
  SharedAllocator allocator(smem);
  auto &k_smem = allocator.allocate<typename A::KV[A::parts], 2>();
  auto &v_smem = allocator.allocate<typename A::KV[A::parts], 2>();
  auto &q_smem = allocator.allocate<typename A::Q, A::workers>()[block::warp()];

  RegTile<T, A::rows, d> q_rmem, o_16;
  RegTile<float, A::rows, A::keys> s;
  RegTile<T, A::rows, A::keys> p_16;
  RegTile<float, A::rows, d> o;
  auto &q = choose<A::q_in_registers>(q_rmem, q_smem);
  load(q, sequence.q(), row);
  zero(o);

  const auto prefetch = [&](int buffer, int key) {
    for (int i = 0; i < A::parts; i++) {
      block::load_async(k_smem[buffer][i], k_gmem, key + i * A::keys);
      block::load_async(v_smem[buffer][i], v_gmem, key + i * A::keys);
    }
    async_commit();
  };
  int key = seen.from(seen.keys.begin / A::step * A::step);
  prefetch(0, key);
  for (int now = 0, next; key < seen.keys.end; key = next, now = 1 - now) {
    next = seen.from(key + A::step);
    block::async_wait(); // these tiles have arrived, and all workers have used the last ones
    prefetch(1 - now, next);
    const int own = key + part * A::keys; // the first key of the worker's tile
    // bits()(r): which of these keys row r of the warp sees. Recomputed for each tile, because the loop needs
    // the registers.
    const auto bits = [&] {
      const Sequence<T, d> again(problem);
      return [=, mask = again.template mask<kIntervals>()](int r) {
        return mask.row_bits(min(row + r, again.q_len - 1) + again.shift(), own, A::keys);
      };
    };
    if (row > last || !(kIntervals ? warp_any<A::rows>(bits()) : keys.any_in(own, A::keys)))
      continue;

    // S = Q K^T, P = silu(alpha S)
    mma_ABt(s, q, k_smem[now][part]);
    silu(s, s, problem.alpha);
    if (kIntervals || !keys.all_in(own, A::keys))
      keep_bits(s, s, bits());

    // O += P V
    copy(p_16, s);
    mma_AB(o, p_16, v_smem[now][part], o);
  }

  if constexpr (A::split_keys) {
    block::async_wait(); // the sums use the buffer of the loads past the last tile
    block::sum_to_first(o, reinterpret_cast<typename A::Partial(&)[A::workers]>(k_smem));
  }
  mul(o, o, problem.inv_length);
  copy(o_16, o);
  const Sequence<T, d> again(problem);
  if constexpr (!A::split_keys)
    block::store(again.o(), o_16, again.block_row(A::block_rows));
  else if (part == 0)
    store(again.o(), o_16, again.block_row(A::block_rows));
}

/// The tiles of keys in which a row of the block, from position `first` to `last`, sees a key.
template <typename A, bool kIntervals> struct SeenTiles {
  const HstuMask<kIntervals> &mask;
  const int first, last;
  const HstuKeys keys{mask, first, last};

  /// The first such tile from `key` on; keys.end or more if there is none.
  __device__ int from(int key) const {
    if constexpr (!kIntervals) {
      const bool in_gap = key >= keys.gap_begin && key + A::step <= keys.gap_end;
      return in_gap ? keys.gap_end / A::step * A::step : key;
    }
    for (; key < keys.end; key += A::step) {
      bool any = false;
      for (int r = first + threadIdx.x; r <= last; r += blockDim.x)
        for (int part = 0; part < A::parts; part++)
          any |= mask.row_bits(r, key + part * A::keys, A::keys) != 0;
      if (__syncthreads_or(any))
        break;
    }
    return key;
  }
};

/// Whether bits(r) is not 0 for one of the warp's rows r.
template <int kRows, typename F> __device__ inline bool warp_any(F bits) {
  bool any = false;
  for (int r = lane_id(); r < kRows; r += 32)
    any |= bits(r) != 0;
  return __any_sync(0xffffffffu, any);
}

template <typename T, int d, bool kSplitKeys>
void launch_head_dim(const HstuProblem &p, cudaStream_t stream) {
  using A = Arrangement<T, d, kSplitKeys>;
  const auto kernel = p.intervals ? attend<T, d, A, true> : attend<T, d, A, false>;
  ladder::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, A::smem_bytes),
                "h4_arrangement: shared memory");
  const dim3 grid = ladder::launch_grid(p.heads, p.batch, (p.max_q_len + A::block_rows - 1) / A::block_rows);
  kernel<<<grid, A::workers * 32, A::smem_bytes, stream>>>(p);
  ladder::check(cudaGetLastError(), "h4_arrangement: launch");
}

} // namespace

void ladder::launch(const HstuProblem &p, cudaStream_t stream) {
  dispatch_16_bit(p, [&](auto element) {
    dispatch_head_dim<32, 64, 128, 256>(p, [&](auto d) {
      p.max_q_len <= 32 ? launch_head_dim<decltype(element), d, true>(p, stream)
                        : launch_head_dim<decltype(element), d, false>(p, stream);
    });
  });
}
