// h3b_gradients: the gradients of h3_rab, those of the bias among them. b2_one_pass by subtraction: without a
// softmax there is no lse and no delta, only a slope instead of a weight.
#include <algorithm>

#include "arrangement.h"
#include "ladder/dispatch.h"
#include "ladder/hstu_backward.h"
#include "ladder/hstu_sequence.h"
#include "ladder/workspace.h"
#include "tiles/tiles.h"

// An option of stage.toml, set when building.
#ifndef SAME_BITS
#define SAME_BITS 0
#endif

namespace {

using ladder::HstuBackwardProblem;
using ladder::HstuKeys;
using ladder::HstuMask;
using ladder::HstuProblem;
using namespace tiles;

/// Whether blocks take turns where they add to the same sums, which then have the same bits in every run.
constexpr bool kSameBits = SAME_BITS;

/// Who may add to which sums. All counters begin at 0.
struct Turns {
  int *started; ///< how many blocks have
  int *dq;      ///< of each tile of dQ: the key tile that was the last to add, counted from 1
  int *d_rab;   ///< of each pair of a key tile and a tile of queries: how many heads have added

  /// The calling block's head, sequence and key tile; in the grid they are x, z and y.
  __device__ static uint3 &taken() {
    __shared__ uint3 place;
    return place;
  }
  /// Places are given in the order in which blocks start, to the key tiles of a head one after the other: a
  /// block that waits only for earlier ones waits for blocks that run or have run.
  __device__ void take() const {
    if (threadIdx.x == 0) {
      const unsigned number = atomicAdd(started, 1), head = number / gridDim.y;
      taken() = {head % gridDim.x, head / gridDim.x, number % gridDim.y};
    }
    __syncthreads();
  }
  /// Waits until it is the turn, and sees what those before have added.
  __device__ static void wait(const int *counter, int turn) {
    while (ladder::ptx::load_acquire(counter) != turn)
      ;
    __syncwarp();
  }
  /// Lets the next one add to what all warps have added before the last barrier.
  __device__ static void pass_on(int *counter, int turn) {
    if (threadIdx.x == 0)
      ladder::ptx::store_release(counter, turn);
  }
};

/// The blocks of a sequence follow each other: its q and d_o, which all of them read, stay in the L2 cache.
__device__ inline uint3 place() {
  if constexpr (kSameBits)
    return Turns::taken();
  const uint3 block = block_index();
  return {block.x, block.z, block.y};
}

template <uint3 (*kPlace)()> struct Where {
  __device__ uint3 operator()() const { return kPlace(); }
};

/// A sequence with its gradients; kPlace() is the head and the sequence.
template <typename T, int d, uint3 (*kPlace)()>
struct Differentiated : ladder::Sequence<T, d, Where<kPlace>> {
  using Base = ladder::Sequence<T, d, Where<kPlace>>;
  using Base::p, Base::q_begin, Base::q_len, Base::k_begin, Base::k_len;
  const HstuBackwardProblem &gradients;

  __device__ explicit Differentiated(const HstuBackwardProblem &problem)
      : Base(problem.forward), gradients(problem) {}

  __device__ auto q() const { return rows(static_cast<const T *>(p.q), q_begin, q_len, p.q_stride); }
  __device__ auto k() const { return rows(static_cast<const T *>(p.k), k_begin, k_len, p.k_stride); }
  __device__ auto v() const { return rows(static_cast<const T *>(p.v), k_begin, k_len, p.v_stride); }
  __device__ auto d_o() const {
    return rows(static_cast<const T *>(gradients.d_o), q_begin, q_len, p.heads * d);
  }
  __device__ auto dq() const { return rows(static_cast<T *>(gradients.dq), q_begin, q_len, p.heads * d); }
  __device__ auto dk() const { return rows(static_cast<T *>(gradients.dk), k_begin, k_len, p.heads * d); }
  __device__ auto dv() const { return rows(static_cast<T *>(gradients.dv), k_begin, k_len, p.heads * d); }
  __device__ WideMatrix<const T> rab() const {
    return {static_cast<const T *>(p.rab) + bias_offset(), k_len, p.rab_stride, p.rab_stride};
  }
  /// Whether no other head adds to d_rab.
  __device__ bool owns_d_rab() const { return gradients.d_rab && p.rab_heads != 1; }
  /// Whoever owns it writes the columns past the last key, too.
  __device__ WideMatrix<float> d_rab() const {
    return {gradients.d_rab + bias_offset(), k_len, owns_d_rab() ? p.rab_stride : k_len, p.rab_stride};
  }

  /// The number of the sequence's first tile of `queries` among all tiles of all sequences and heads; there
  /// may be numbers between two sequences that are no tile's.
  __device__ int64_t first_tile(int queries) const {
    const uint3 block = kPlace();
    return int64_t(block.x) * (p.total_q / queries + p.batch) + q_begin / queries + block.y;
  }
  /// The number of a pair of the block's key tile and a tile of `queries`, the same for all heads.
  __device__ int64_t pair(int tile, int queries) const {
    const uint3 block = kPlace();
    const int tiles = (p.max_q_len + queries - 1) / queries;
    return (int64_t(block.y) * gridDim.y + block.z) * tiles + tile;
  }

private:
  __device__ int64_t bias_offset() const {
    const uint3 block = kPlace();
    const int64_t head = int64_t(block.y) * p.rab_heads + (p.rab_heads == 1 ? 0 : block.x);
    return head * p.max_k_len * p.rab_stride;
  }
  /// This head's part of `count` tokens from `begin` on.
  template <typename E>
  __device__ StridedMatrix<E, d> rows(E *tensor, int begin, int count, int stride) const {
    return {tensor + int64_t(begin) * stride + kPlace().x * d, count, stride};
  }
};

/// Rows first .. end - 1 of the columns of key tile `key` become 0, by all threads of the block.
template <typename A>
__device__ inline void clear_rows(const WideMatrix<float> &d_rab, int first, int end, int key) {
  constexpr int quads = A::keys / 4, step = A::warps * 32 / quads;
  const int col = key + threadIdx.x % quads * 4;
  for (int row = first + threadIdx.x / quads; row < end && col < d_rab.stride; row += step)
    *reinterpret_cast<float4 *>(d_rab.at(row, col)) = {};
}

/// The calling warp's part of a tile of dQ.
template <int d, typename A> struct DqPart {
  static constexpr int across = d / A::dq_cols;
  int row = group<A::warps>::warp() / across * A::dq_rows,
      col = group<A::warps>::warp() % across * A::dq_cols;

  __device__ static typename A::DqSums sums(float *dq_sums, int64_t tile) {
    return {dq_sums + (tile * A::warps + group<A::warps>::warp()) * A::DqSums::size};
  }
};

/// A warp that has its keys to itself: what becomes of a part of a query tile, and the sums of both
/// gradients. All is transposed, keys by queries: P^T and dS^T leave their products as first factors of the
/// next ones.
template <typename T, int d, typename A> struct Alone {
  static constexpr bool has_dk = true;
  RegTile<float, A::rows, A::part_queries> slope, ds_t;
  RegTile<T, A::rows, A::part_queries> p_16, ds_16;
  RegTile<float, A::rows, d> dk, dv;

  /// The first of the warp's keys among the block's.
  __device__ static int first_key() { return group<A::warps>::warp() * A::rows; }

  /// Queries at, at + 1, .. of `buffer` and the keys from `key` on; ds_t becomes dS^T. bits(c) are the keys
  /// that query c sees, where not all see all.
  template <typename Bits>
  __device__ void add(const typename A::Resident &resident, const typename A::Buffer &buffer,
                      typename A::Exchanged &exchanged, int key, int at, float alpha, bool is_cut,
                      Bits bits) {
    const auto q = part<A::part_queries, d>(buffer.q, at), d_o = part<A::part_queries, d>(buffer.d_o, at);
    auto ds_smem = part<A::rows, A::part_queries>(exchanged.gradients, key, at);
    if constexpr (A::bias) {
      load(transposed(p_16), part<A::part_queries, A::rows>(buffer.rab, at, key));
      copy(slope, p_16);
    } else {
      zero(slope);
    }
    mma_ABt(slope, part<A::rows, d>(resident.k, key), q, slope);
    silu_and_slope(p_16, slope, alpha);
    if (is_cut) {
      keep_bits_t(p_16, p_16, bits);
      keep_bits_t(slope, slope, bits);
    }
    mma_AB(dv, p_16, d_o, dv);
    zero(ds_t);
    mma_ABt(ds_t, part<A::rows, d>(resident.v, key), d_o, ds_t);
    mul(ds_t, ds_t, slope);
    copy(ds_16, ds_t);
    store(ds_smem, ds_16);
    mma_AB(dk, ds_16, q, dk);
  }

  /// Where no query sees one of the keys.
  __device__ void add_nothing(typename A::Exchanged &exchanged, int key, int at) {
    auto ds_smem = part<A::rows, A::part_queries>(exchanged.gradients, key, at);
    zero(ds_t);
    copy(ds_16, ds_t);
    store(ds_smem, ds_16);
  }

  template <typename Sequence>
  __device__ void finish(const Sequence &sequence, int key, float alpha, float inv_length) {
    RegTile<T, A::rows, d> out;
    // Multiplied in last: earlier, 1 / length would push what is rounded towards fp16's subnormals.
    mul(dv, dv, inv_length);
    copy(out, dv);
    store(sequence.dv(), out, key);
    mul(dk, dk, alpha * inv_length);
    copy(out, dk);
    store(sequence.dk(), out, key);
  }
};

/// One of two warps that have the same keys, as in b2_one_pass: twice as many as one could, so that each
/// fragment serves twice. The first computes S^T, P^T and dV, and passes the slopes, as fp16; the second
/// computes dP^T, dS^T and dK.
template <typename T, int d, typename A> struct OneOfPair {
  using pair = group<2>;
  const bool has_dk = group<A::warps>::warp() % 2;
  RegTile<float, A::rows, A::part_queries> ds_t; // in the first warp, S^T and then the slopes
  RegTile<T, A::rows, A::part_queries> x_16;     // P^T, or dS^T
  RegTile<__half, A::rows, A::part_queries> slopes;
  RegTile<float, A::rows, d> dv_or_dk;

  __device__ static int first_key() { return group<A::warps>::warp() / 2 * A::rows; }

  /// As Alone's; ds_t becomes dS^T in the second warp.
  template <typename Bits>
  __device__ void add(const typename A::Resident &resident, const typename A::Buffer &buffer,
                      typename A::Exchanged &exchanged, int key, int at, float alpha, bool is_cut,
                      Bits bits) {
    const auto keys = part<A::rows, d>(has_dk ? resident.v : resident.k, key);
    const auto made_of = part<A::part_queries, d>(has_dk ? buffer.d_o : buffer.q, at);
    const auto summed_with = part<A::part_queries, d>(has_dk ? buffer.q : buffer.d_o, at);
    auto slopes_smem = part<A::rows, A::part_queries>(exchanged.slopes, key, at);
    auto ds_smem = part<A::rows, A::part_queries>(exchanged.gradients, key, at);
    zero(ds_t);
    if constexpr (A::bias)
      if (!has_dk) {
        load(transposed(x_16), part<A::part_queries, A::rows>(buffer.rab, at, key));
        copy(ds_t, x_16);
      }
    mma_ABt(ds_t, keys, made_of, ds_t);
    if (!has_dk) {
      silu_and_slope(x_16, ds_t, alpha);
      if (is_cut) {
        keep_bits_t(x_16, x_16, bits);
        keep_bits_t(ds_t, ds_t, bits);
      }
      copy(slopes, ds_t);
      store(slopes_smem, slopes);
    }
    pair::sync(1 + group<A::warps>::warp() / 2);
    if (has_dk) {
      load(slopes, slopes_smem);
      mul(ds_t, ds_t, slopes);
      copy(x_16, ds_t);
      __syncwarp();
      store(ds_smem, x_16);
    }
    mma_AB(dv_or_dk, x_16, summed_with, dv_or_dk);
  }

  __device__ void add_nothing(typename A::Exchanged &exchanged, int key, int at) {
    if (!has_dk)
      return;
    auto ds_smem = part<A::rows, A::part_queries>(exchanged.gradients, key, at);
    zero(ds_t);
    copy(x_16, ds_t);
    store(ds_smem, x_16);
  }

  template <typename Sequence>
  __device__ void finish(const Sequence &sequence, int key, float alpha, float inv_length) {
    RegTile<T, A::rows, d> out;
    mul(dv_or_dk, dv_or_dk, (has_dk ? alpha : 1.f) * inv_length);
    copy(out, dv_or_dk);
    store(has_dk ? sequence.dk() : sequence.dv(), out, key);
  }
};

/// Whether one of the queries query .. end - 1 sees one of the keys key .. key + keys - 1. All threads of the
/// block ask.
template <bool kIntervals>
__device__ inline bool block_sees(const HstuMask<kIntervals> &mask, int shift, int query, int end, int key,
                                  int keys) {
  if constexpr (!kIntervals)
    return HstuKeys(mask, query + shift, end - 1 + shift).any_in(key, keys);
  bool any = false;
  for (int i = query + threadIdx.x; i < end; i += blockDim.x)
    for (int first = 0; first < keys; first += 64)
      any |= mask.row_bits(i + shift, key + first, min(64, keys - first)) != 0;
  return __syncthreads_or(any);
}

template <typename T, int d, typename A, bool kIntervals>
__global__ void __launch_bounds__(A::warps * 32)
    differentiate(const __grid_constant__ HstuBackwardProblem problem, float *dq_sums, const Turns turns) {
  using block = group<A::warps>;
  if constexpr (kSameBits)
    turns.take();
  const Differentiated<T, d, place> sequence(problem);
  using Share = std::conditional_t<A::in_pairs, OneOfPair<T, d, A>, Alone<T, d, A>>;
  const int block_key = place().z * A::keys, key = Share::first_key(), warp_key = block_key + key;
  // The block writes all of d_rab's rows in its columns, unless heads share them: those of queries that see
  // none of its keys, and those of no query, become 0.
  const bool owns_d_rab = A::bias && sequence.owns_d_rab();
  const int rab_rows = problem.forward.max_k_len;
  if (block_key >= sequence.k_len) {
    if (owns_d_rab)
      clear_rows<A>(sequence.d_rab(), 0, rab_rows, block_key);
    return;
  }
  const int shift = sequence.shift(), last = sequence.q_len - 1;
  if (owns_d_rab) {
    clear_rows<A>(sequence.d_rab(), 0, shift, block_key);
    clear_rows<A>(sequence.d_rab(), sequence.k_len, rab_rows, block_key);
  }
  const auto mask = sequence.template mask<kIntervals>();
  const DqPart<d, A> mine;

  extern __shared__ __align__(128) unsigned char smem[];
  SharedAllocator allocator(smem);
  auto &resident = allocator.allocate<typename A::Resident>();
  auto &buffers = allocator.allocate<typename A::Buffer, 2>();
  auto &exchanged = allocator.allocate<typename A::Exchanged, 2>();
  /// The last tile up to `tile` of which a query sees a key of the block, or -1.
  const auto needed = [&](int tile) {
    for (; tile >= 0; tile--) {
      const int first = tile * A::queries, end = min(last + 1, first + A::queries);
      if (block_sees(mask, shift, first, end, block_key, A::keys))
        break;
      if (owns_d_rab)
        clear_rows<A>(sequence.d_rab(), first + shift, end + shift, block_key);
    }
    return tile;
  };
  /// Of the key tiles before the block's the last one that adds to this tile of dQ, counted from 1, or 0.
  const auto turn_at = [&](int tile) {
    int key = block_key - A::keys;
    while (key >= 0 &&
           !block_sees(mask, shift, tile * A::queries, min(last + 1, (tile + 1) * A::queries), key, A::keys))
      key -= A::keys;
    return (key + A::keys) / A::keys;
  };
  const auto fetch = [&](typename A::Buffer &buffer, int tile) {
    if (tile >= 0) {
      block::load_async(buffer.q, sequence.q(), tile * A::queries);
      block::load_async(buffer.d_o, sequence.d_o(), tile * A::queries);
      if constexpr (A::bias)
        block::load_async(buffer.rab, sequence.rab(), tile * A::queries + shift, block_key);
    }
    async_commit();
  };

  Share share{};
  RegTile<float, A::dq_rows, A::dq_cols> dq;

  block::load_async(resident.k, sequence.k(), block_key);
  block::load_async(resident.v, sequence.v(), block_key);
  int tile = needed(last / A::queries), before = -1;
  int added = -1; // the tile of dQ that the last turn added to
  fetch(buffers[0], tile);
  // A tile's share of dQ waits for the next tile, so that one barrier serves both.
  for (int turn = 0; tile >= 0 || before >= 0; turn ^= 1) {
    const int next = needed(tile - 1);
    block::async_wait();
    if constexpr (kSameBits) {
      if (A::bias && problem.d_rab && before >= 0)
        turns.pass_on(turns.d_rab + sequence.pair(before, A::queries), place().x + 1);
      if (added >= 0)
        turns.pass_on(turns.dq + sequence.first_tile(A::queries) + added, place().z + 1);
    }
    fetch(buffers[turn ^ 1], next);
#pragma unroll 1
    for (int at = 0; tile >= 0 && at < A::queries; at += A::part_queries) {
      const int query = tile * A::queries + at;
      const HstuKeys seen(mask, min(query, last) + shift, min(query + A::part_queries - 1, last) + shift);
      const bool is_seen = query <= last && (kIntervals || seen.any_in(warp_key, A::rows));
      if (is_seen) {
        share.add(resident, buffers[turn], exchanged[turn], key, at, problem.forward.alpha,
                  kIntervals || !seen.all_in(warp_key, A::rows),
                  [&](int c) { return mask.row_bits(min(query + c, last) + shift, warp_key, A::rows); });
      } else {
        share.add_nothing(exchanged[turn], key, at);
      }
      if constexpr (A::bias)
        if (problem.d_rab && share.has_dk && (is_seen || owns_d_rab)) {
          mul(share.ds_t, share.ds_t, problem.forward.alpha * problem.forward.inv_length);
          if constexpr (kSameBits)
            if (problem.forward.rab_heads == 1)
              turns.wait(turns.d_rab + sequence.pair(tile, A::queries), place().x);
          if (owns_d_rab)
            store(sequence.d_rab(), transposed(share.ds_t), query + shift, warp_key);
          else
            atomic_add(sequence.d_rab(), transposed(share.ds_t), query + shift, warp_key);
        }
    }
    if (before >= 0) {
      const auto &ds_smem = exchanged[turn ^ 1].gradients;
      zero(dq);
      mma_AtB(dq, part<A::keys, A::dq_rows>(ds_smem, 0, mine.row),
              part<A::keys, A::dq_cols>(resident.k, 0, mine.col), dq);
      if constexpr (kSameBits) {
        const int turn_of_dq = turn_at(before);
        turns.wait(turns.dq + sequence.first_tile(A::queries) + before, turn_of_dq);
      }
      atomic_add(mine.sums(dq_sums, sequence.first_tile(A::queries) + before), dq);
    }
    added = before;
    before = tile;
    tile = next;
  }
  if constexpr (kSameBits)
    if (added >= 0) {
      block::sync();
      turns.pass_on(turns.dq + sequence.first_tile(A::queries) + added, place().z + 1);
    }
  share.finish(sequence, warp_key, problem.forward.alpha, problem.forward.inv_length);
}

/// dQ = alpha * inv_length * its sums, rounded; one block a tile.
template <typename T, int d, typename A>
__global__ void __launch_bounds__(A::warps * 32)
    round_dq(const __grid_constant__ HstuBackwardProblem problem, float *dq_sums) {
  const Differentiated<T, d, block_index> sequence(problem);
  const int tile = blockIdx.z;
  if (tile * A::queries >= sequence.q_len)
    return;
  const DqPart<d, A> mine;
  RegTile<float, A::dq_rows, A::dq_cols> dq;
  RegTile<T, A::dq_rows, A::dq_cols> out;
  load(dq, mine.sums(dq_sums, sequence.first_tile(A::queries) + tile));
  mul(dq, dq, problem.forward.alpha * problem.forward.inv_length);
  copy(out, dq);
  store(sequence.dq(), out, tile * A::queries + mine.row, mine.col);
}

/// Where heads share a bias its gradient is a sum, which begins at 0.
__global__ void clear_d_rab(float4 *d_rab, int64_t quads) {
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < quads; i += step)
    d_rab[i] = {};
}

template <typename A, typename T, int d>
void launch_arrangement(const HstuBackwardProblem &problem, cudaStream_t stream) {
  const HstuProblem &p = problem.forward;
  const dim3 grid = ladder::launch_grid(p.heads, (p.max_k_len + A::keys - 1) / A::keys, p.batch);
  const size_t dq_tiles = size_t(p.heads) * (p.total_q / A::queries + p.batch),
               pairs = size_t(p.batch) * grid.y * ((p.max_q_len + A::queries - 1) / A::queries);
  const size_t sums = dq_tiles * A::queries * d, counters = kSameBits ? 1 + dq_tiles + pairs : 0;
  const ladder::Workspace<float> dq_sums(sums + counters, stream, "h3b_gradients: workspace");
  ladder::check(cudaMemsetAsync(dq_sums.data(), 0, (sums + counters) * sizeof(float), stream),
                "h3b_gradients: workspace");
  if (problem.d_rab && p.rab_heads == 1) {
    const int64_t quads = int64_t(p.batch) * p.max_k_len * p.rab_stride / 4;
    clear_d_rab<<<unsigned(std::min<int64_t>((quads + 255) / 256, 4096)), 256, 0, stream>>>(
        reinterpret_cast<float4 *>(problem.d_rab), quads);
    ladder::check(cudaGetLastError(), "h3b_gradients: launch");
  }
  const auto kernel = p.intervals ? differentiate<T, d, A, true> : differentiate<T, d, A, false>;
  ladder::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, A::smem_bytes),
                "h3b_gradients: shared memory");
  int *turns = reinterpret_cast<int *>(dq_sums.data() + sums);
  kernel<<<grid, A::warps * 32, A::smem_bytes, stream>>>(problem, dq_sums.data(),
                                                         Turns{turns, turns + 1, turns + 1 + dq_tiles});
  ladder::check(cudaGetLastError(), "h3b_gradients: launch");
  const dim3 dq_grid = ladder::launch_grid(p.heads, p.batch, (p.max_q_len + A::queries - 1) / A::queries);
  round_dq<T, d, A><<<dq_grid, A::warps * 32, 0, stream>>>(problem, dq_sums.data());
  ladder::check(cudaGetLastError(), "h3b_gradients: launch");
}

template <typename T, int d, bool kBias>
void launch_large_or_small(const HstuBackwardProblem &problem, cudaStream_t stream) {
  using Small = Arrangement<T, d, kBias, false>;
  using Large = Arrangement<T, d, kBias, true>;
  static_assert(Small::smem_bytes <= 99 * 1024);
  if constexpr (Large::smem_bytes > Small::smem_bytes) {
    int device = 0, most_bytes = 0;
    ladder::check(cudaGetDevice(&device), "cudaGetDevice");
    ladder::check(cudaDeviceGetAttribute(&most_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
                  "cudaDeviceGetAttribute");
    if (Large::smem_bytes <= most_bytes)
      return launch_arrangement<Large, T, d>(problem, stream);
  }
  launch_arrangement<Small, T, d>(problem, stream);
}

} // namespace

void ladder::launch(const HstuBackwardProblem &p, cudaStream_t stream) {
  dispatch_16_bit(p.forward, [&](auto element) {
    dispatch_head_dim<32, 64, 128>(p.forward, [&](auto d) {
      if (p.forward.rab)
        launch_large_or_small<decltype(element), d, true>(p, stream);
      else
        launch_large_or_small<decltype(element), d, false>(p, stream);
    });
  });
}
