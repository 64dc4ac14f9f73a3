// h5b_wgmma: HSTU attention with a causal mask, on v11_persistent's producer and consumers.
//
// silu replaces the softmax: no maximum, no row sum and no rescaling, so nothing depends on the other tiles.
// The sequences of the batch end in the middle of a tensor: the tensor maps are jagged, and work items find
// their sequence by its offsets. Each sequence has as many items as the longest one; those without queries
// are skipped.

#include "ladder/dispatch.h"
#include "ladder/hstu_sequence.h"
#include "tiles/ring.h"
#include "tiles/roles.h"
#include "tiles/tensor_map.h"
#include "tiles/tiles.h"
#include "tiles/warpgroup.h"

namespace {

using ladder::HstuProblem;
using namespace tiles;

/// A block's arrangement for elements T and head dimension d.
template <typename T, int d> struct Arrangement {
  // Consumer warpgroups with 64 rows each, and a producer warpgroup. Per thread, O takes d / 2 registers, S
  // half of a tile's keys, and P a quarter. 512 threads start with 128 registers each: 32 + 3 x 160 = 4 x
  // 128. 384 threads start with 168: 40 + 2 x 232 = 3 x 168.
  static constexpr int consumers = d <= 128 ? 3 : 2, threads = 128 * (consumers + 1);
  static constexpr int block_rows = 64 * consumers;
  static constexpr int producer_registers = consumers == 3 ? 32 : 40;
  static constexpr int consumer_registers = consumers == 3 ? 160 : 232;
  static constexpr int keys = d <= 64 ? 128 : d == 128 ? 80 : 64; // per tile
  static constexpr int q_buffers = d == 256 ? 1 : 2, buffers = d == 256 ? 2 : 3;

  using QTile = SharedTile<T, 64, d>;
  using KTile = SharedTile<T, keys, d>;
  struct Shared {
    Ring<QTile, q_buffers, consumers> q;
    Ring<KTile, buffers> k, v;
  };
  struct Maps {
    tma::JaggedMap<QTile> q;
    tma::JaggedMap<KTile> k, v;
  };
};

template <typename A> struct WorkItem;
template <typename T, int d, typename A> using Sequence = ladder::Sequence<T, d, WorkItem<A>>;
template <typename T, int d, typename A> struct Producer;
template <typename T, int d, typename A> struct Consumer;

template <typename T, int d, typename A>
__global__ void __launch_bounds__(A::threads, 1)
    attend(const __grid_constant__ typename A::Maps maps, const __grid_constant__ HstuProblem problem) {
  const int role = warpgroup::index();

  extern __shared__ __align__(1024) unsigned char bytes[];
  auto &smem = *reinterpret_cast<typename A::Shared *>(bytes);
  if (threadIdx.x == 0) {
    smem.q.init(A::consumers * warpgroup::warps);
    smem.k.init(A::consumers * warpgroup::warps);
    smem.v.init(A::consumers * warpgroup::warps);
    fence_barrier_init();
  }
  __syncthreads();

  if (role == A::consumers) {
    decrease_registers<A::producer_registers>();
    if (warpgroup::warp() == 0)
      Producer<T, d, A>{smem, maps, problem}.run();
  } else {
    increase_registers<A::consumer_registers>();
    Consumer<T, d, A>{smem, problem, role}.run();
  }
}

/// A work item: up to block_rows queries of one head and sequence. The items with the most keys have the
/// lowest numbers.
template <typename A> struct WorkItem {
  int number, heads, batch, max_q_len;

  /// Its head, its sequence, and its number among the sequence's blocks of rows.
  __device__ uint3 operator()() const {
    return {unsigned(number % heads), unsigned(number / heads % batch), unsigned(number / heads / batch)};
  }
  __host__ __device__ int count() const {
    return heads * batch * ((max_q_len + A::block_rows - 1) / A::block_rows);
  }
};

/// Calls work(item) for each of the block's work items that has queries. Blocks take items in snake order:
/// in every second round the last block takes the first one.
template <typename T, int d, typename A, typename Work>
__device__ inline void for_each_item(const HstuProblem &p, const Work &work) {
  for (int round = 0;; round++) {
    const int number = round * gridDim.x + (round % 2 ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
    const WorkItem<A> item{number, p.heads, p.batch, p.max_q_len};
    if (item.number >= item.count())
      return;
    const Sequence<T, d, A> sequence(p, item);
    if (sequence.block_row(A::block_rows) < sequence.q_len)
      work(item);
  }
}

/// The producer, a warp: loads the tiles that the last row of the block's work items sees.
template <typename T, int d, typename A> struct Producer {
  typename A::Shared &smem;
  const typename A::Maps &maps;
  const HstuProblem &problem;
  const bool issues = elect_one();
  Turn<A::q_buffers> q_turn;
  Turn<A::buffers> k_turn, v_turn;

  __device__ void run() {
    for_each_item<T, d, A>(problem, [&](const WorkItem<A> &item) { load(item); });
  }

  __device__ void load(const WorkItem<A> &item) {
    const Sequence<T, d, A> sequence(problem, item);
    const int row = sequence.block_row(A::block_rows), head = item().x;
    const int first = row + sequence.shift(), end = min(sequence.k_len, first + A::block_rows);
    const tma::Segment kv{sequence.k_begin, sequence.k_len, head};

    smem.q.wait_empty(q_turn);
    if (issues)
      smem.q.load_async(q_turn, maps.q, row, tma::Segment{sequence.q_begin, sequence.q_len, head});
    q_turn.advance();
    for (int key = 0; key < end; key += A::keys) {
      smem.k.wait_empty(k_turn);
      if (issues)
        smem.k.load_async(k_turn, maps.k, key, kv);
      k_turn.advance();
      smem.v.wait_empty(v_turn);
      if (issues)
        smem.v.load_async(v_turn, maps.v, key, kv);
      v_turn.advance();
    }
  }
};

/// A consumer: a warpgroup with 64 rows of each work item.
template <typename T, int d, typename A> struct Consumer {
  typename A::Shared &smem;
  const HstuProblem &problem;
  const int consumer;
  const InTurn<A::consumers, 1> in_turn{consumer};
  RegTile<float, 16, A::keys> s;
  RegTile<T, 16, A::keys> p_16;
  RegTile<float, 16, d> o;
  Turn<A::q_buffers> q_turn;
  Turn<A::buffers> k_turn, v_turn;

  __device__ void run() {
    in_turn.start();
    for_each_item<T, d, A>(problem, [&](const WorkItem<A> &item) {
      zero(o);
      auto &q_smem = smem.q.wait_full(q_turn, consumer);
      const Sequence<T, d, A> sequence(problem, item);
      const int first = sequence.block_row(A::block_rows) + sequence.shift(), row = first + 64 * consumer;
      const int keys = row < sequence.k_len ? min(sequence.k_len, row + 64) : 0;
      if (keys > 0)
        attend_tiles(row + warp_row() % 64, keys, q_smem);
      // The tiles that only later rows see
      for (int key = round_up(keys); key < min(sequence.k_len, first + A::block_rows); key += A::keys)
        skip_tile();
      write(item);
      smem.q.release(q_turn);
      q_turn.advance();
    });
    in_turn.stop();
  }

  /// O += P V, for the tiles of the first `keys` keys. The warp's rows begin at position `row`.
  __device__ void attend_tiles(int row, int keys, const typename A::QTile &q_smem) {
    // S = Q K^T and P = silu(alpha S) of the first tile
    in_turn.wait();
    warpgroup::mma_ABt(s, q_smem, smem.k.wait_full(k_turn));
    in_turn.pass();
    warpgroup::mma_wait(s);
    release_k();
    compute_p(row, 0);
    copy(p_16, s);

    for (int key = A::keys; key < keys; key += A::keys) {
      // S = Q K^T, and O += P V with the P of the tile before
      auto &k_smem = smem.k.wait_full(k_turn);
      in_turn.wait();
      warpgroup::mma_ABt(s, q_smem, k_smem);
      warpgroup::mma_AB(o, p_16, smem.v.wait_full(v_turn), o);
      in_turn.pass();
      warpgroup::mma_wait<1>(s);
      release_k();

      // P = silu(alpha S)
      compute_p(row, key);
      warpgroup::mma_wait(o);
      release_v();
      copy(p_16, s);
    }

    // O += P V of the last tile
    warpgroup::mma_AB(o, p_16, smem.v.wait_full(v_turn), o);
    warpgroup::mma_wait(o);
    release_v();
  }

  /// S becomes P = silu(alpha S), 0 where a row does not see a key.
  __device__ void compute_p(int row, int key) {
    silu(s, s, problem.alpha);
    make_causal(s, s, row, key, 0.f);
  }

  /// The calling warp's first row in a work item.
  __device__ static int warp_row() { return uniform(thread_index() / 32 * 16); }

  /// Stores O.
  __device__ void write(const WorkItem<A> &item) {
    RegTile<T, 16, d> o_16;
    mul(o, o, problem.inv_length);
    copy(o_16, o);
    const Sequence<T, d, A> sequence(problem, item);
    store(sequence.o(), o_16, sequence.block_row(A::block_rows) + warp_row());
  }

  /// Releases a tile that these rows do not see.
  __device__ void skip_tile() {
    smem.k.wait_full(k_turn);
    in_turn.wait();
    in_turn.pass();
    release_k();
    smem.v.wait_full(v_turn);
    release_v();
  }
  __device__ static int round_up(int keys) { return (keys + A::keys - 1) / A::keys * A::keys; }

  __device__ void release_k() {
    smem.k.release(k_turn);
    k_turn.advance();
  }
  __device__ void release_v() {
    smem.v.release(v_turn);
    v_turn.advance();
  }
};

template <typename T, int d> void launch_head_dim(const HstuProblem &p, cudaStream_t stream) {
  using A = Arrangement<T, d>;
  constexpr auto kernel = attend<T, d, A>;
  constexpr int smem_bytes = sizeof(typename A::Shared);
  ladder::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem_bytes),
                "h5b_wgmma: shared memory");
  const typename A::Maps maps{
      .q = tma::jagged_map<typename A::QTile>(p.q, p.total_q, p.heads, p.q_stride),
      .k = tma::jagged_map<typename A::KTile>(p.k, p.total_k, p.heads, p.k_stride),
      .v = tma::jagged_map<typename A::KTile>(p.v, p.total_k, p.heads, p.v_stride),
  };
  const int blocks = min(ladder::multiprocessors(), WorkItem<A>{0, p.heads, p.batch, p.max_q_len}.count());
  kernel<<<blocks, A::threads, smem_bytes, stream>>>(maps, p);
  ladder::check(cudaGetLastError(), "h5b_wgmma: launch");
}

} // namespace

void ladder::launch(const HstuProblem &p, cudaStream_t stream) {
  dispatch_16_bit(p, [&](auto element) {
    dispatch_head_dim<32, 64, 128, 256>(p, [&](auto d) { launch_head_dim<decltype(element), d>(p, stream); });
  });
}
