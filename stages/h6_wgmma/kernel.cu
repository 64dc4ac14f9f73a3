// h6_wgmma: h2_masks on wgmma and TMA (sm_90a).
//
// v10_pingpong's roles serve here, too: a producer has tiles brought, consumers multiply, and the weights of
// one tile are computed under the products of others. What is left of the softmax, silu, needs nothing of the
// other tiles. What is new is what the producer knows: it reads the mask, and says of each tile that it has
// brought which consumers need it and for which of them the mask cuts it.
#include <algorithm>

#include "fp8.h"
#include "ladder/dispatch.h"
#include "ladder/hstu_sequence.h"
#include "tiles/ring.h"
#include "tiles/roles.h"
#include "tiles/tensor_map.h"
#include "tiles/tiles.h"
#include "tiles/warpgroup.h"

// Options of stage.toml, set when building; 0 leaves them to Arrangement.
#ifndef CONSUMERS
#define CONSUMERS 0
#endif
#ifndef KEYS
#define KEYS 0
#endif
#ifndef BUFFERS
#define BUFFERS 0
#endif

namespace {

using ladder::HstuKeys;
using ladder::HstuMask;
using ladder::HstuProblem;
using namespace tiles;

/// What the producer says of a tile: its first key, and a bit for each consumer. After the last tile nobody
/// sees anything.
struct alignas(16) Visit {
  int key;
  uint16_t seen;          ///< whether one of the consumer's rows sees one of the keys
  uint16_t cut;           ///< whether one of them does not see one of the keys
  float k_scale, v_scale; ///< of fp8

  __device__ bool is_tile() const { return key >= 0; }
  __device__ bool is_seen_by(int consumer) const { return seen >> consumer & 1; }
  __device__ bool is_cut_for(int consumer) const { return cut >> consumer & 1; }
};
constexpr Visit kNoTile{-1, 0, 0, 0.f, 0.f};

/// A block's arrangement for elements T and head dimension d; kFp8: with factors of products in e4m3.
template <typename T, int d, bool kFp8> struct Arrangement {
  static constexpr bool fp8 = kFp8;
  using Elem = std::conditional_t<kFp8, E4M3, T>;

  // Warpgroups that compute, each 64 rows, beside the one that has tiles brought. The registers that this one
  // gives up let O, d / 2 of a thread's, S, half the keys of a tile, and P, a quarter, fit: 512 threads have
  // 128 each, 32 + 3 x 160 = 4 x 128, and 384 have 168 each, 40 + 2 x 232 = 3 x 168.
  static constexpr int consumers = CONSUMERS ? CONSUMERS : d <= (kFp8 ? 64 : 128) ? 3 : 2;
  static constexpr int producer_registers = consumers == 3 ? 32 : 40,
                       consumer_registers = consumers == 3 ? 160 : 232;
  static constexpr int threads = 128 * (consumers + 1), block_rows = 64 * consumers;
  static constexpr int keys = kFp8       ? KeyTiles::rows
                              : KEYS     ? KEYS
                              : d <= 64  ? 128
                              : d == 128 ? 80
                                         : 64; // of a tile
  static constexpr int buffers = BUFFERS ? BUFFERS : d == 256 ? 2 : 3, q_buffers = d == 256 ? 1 : 2;

  /// Whether O leaves in whole rows of 16-byte pieces instead of from registers, a word a lane: at d = 64
  /// that is no faster.
  static constexpr bool stores_rows = !kFp8 && d >= 128;

  using QTile = SharedTile<Elem, 64, d>;
  using KTile = SharedTile<Elem, keys, d>;
  /// wgmma takes 8-bit factors along their columns alone: V comes transposed.
  using VTile = std::conditional_t<kFp8, SharedTile<Elem, d, keys>, KTile>;
  using P = std::conditional_t<kFp8, Fragments8<keys>, RegTile<T, 16, keys>>;
  struct Shared {
    Ring<QTile, q_buffers, consumers> q;
    Ring<KTile, buffers> k;
    Ring<VTile, buffers> v;
    Visit visits[buffers]; // of what is in k
  };
  struct Maps {
    tma::JaggedMap<QTile> q;
    tma::JaggedMap<KTile> k;
    std::conditional_t<kFp8, tma::TensorMap<VTile>, tma::JaggedMap<VTile>> v;
  };

  /// Whether O, S and P fit into a thread's registers, with 32 for the rest, and the tiles into shared
  /// memory.
  static constexpr bool fits =
      d / 2 + keys / 2 + int(sizeof(P)) / 4 + 32 <= consumer_registers && sizeof(Shared) <= 227 * 1024;
};

/// A piece of work, in place of a block: block_rows queries of one head and sequence, if it has as many
/// turns. As in v11_persistent they are dealt there and back, those that see the most keys first.
template <typename A> struct Piece {
  int number, heads, batch, max_q_len;

  __device__ uint3 operator()() const {
    return {unsigned(number % heads), unsigned(number / heads % batch), unsigned(number / heads / batch)};
  }
  __host__ __device__ int turns() const { return (max_q_len + A::block_rows - 1) / A::block_rows; }
  __host__ __device__ int count() const { return heads * batch * turns(); }
};
template <typename T, int d, typename A> using Sequence = ladder::Sequence<T, d, Piece<A>>;

/// Calls work(piece) for each of the block's pieces that has queries.
template <typename T, int d, typename A, typename Work>
__device__ inline void for_each_piece(const HstuProblem &p, const Work &work) {
  for (int round = 0;; round++) {
    const int dealt = round * gridDim.x + (round % 2 ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
    const Piece<A> piece{dealt, p.heads, p.batch, p.max_q_len};
    if (piece.number >= piece.count())
      return;
    const Sequence<T, d, A> sequence(p, piece);
    if (sequence.block_row(A::block_rows) < sequence.q_len)
      work(piece);
  }
}

/// Who sees what of the tile at `key`. The block's rows are at the positions `first` to, at most, `last`.
/// Called by a warp: without intervals its lane c looks at consumer c's rows; with them, where no two rows
/// say what those between them see, the lanes look at each.
template <typename A, bool kIntervals>
__device__ inline Visit look_at(const HstuMask<kIntervals> &mask, int first, int last, int key) {
  Visit visit{key, 0, 0, 1.f, 1.f};
  if constexpr (!kIntervals) {
    const int row = first + 64 * lane_id();
    const bool has_rows = lane_id() < A::consumers && row <= last;
    const HstuKeys keys(mask, row, min(last, row + 63));
    visit.seen = __ballot_sync(0xffffffffu, has_rows && keys.any_in(key, A::keys));
    visit.cut = __ballot_sync(0xffffffffu, !keys.all_in(key, A::keys));
  } else {
    for (int consumer = 0; consumer < A::consumers; consumer++) {
      bool any = false;
      for (int r = first + 64 * consumer + lane_id(); r <= min(last, first + 64 * consumer + 63); r += 32)
        for (int col = 0; col < A::keys; col += 64)
          any |= mask.row_bits(r, key + col, min(64, A::keys - col)) != 0;
      visit.seen |= unsigned(__any_sync(0xffffffffu, any)) << consumer;
    }
    visit.cut = visit.seen; // bounds are data: any tile may be cut
  }
  return visit;
}

/// The producer, a warp: has the tiles brought that a row of the block's pieces sees.
template <typename T, int d, typename A, bool kIntervals>
__device__ inline void produce(typename A::Shared &smem, const typename A::Maps &maps,
                               const HstuProblem &problem, const Quantised &quantised) {
  const bool asks = elect_one();
  Turn<A::q_buffers> q_turn;
  Turn<A::buffers> k_turn, v_turn;
  for_each_piece<T, d, A>(problem, [&](const Piece<A> &piece) {
    const Sequence<T, d, A> sequence(problem, piece);
    const int row = sequence.block_row(A::block_rows), head = piece().x, b = piece().y;
    const auto mask = sequence.template mask<kIntervals>();
    const int first = row + sequence.shift(), last = sequence.k_len - 1;
    const HstuKeys block_keys(mask, first, min(last, first + A::block_rows - 1));
    const tma::Segment kv{sequence.k_begin, sequence.k_len, head};

    smem.q.wait_empty(q_turn);
    if (asks)
      smem.q.load_async(q_turn, maps.q, row, tma::Segment{sequence.q_begin, sequence.q_len, head});
    q_turn.advance();
    for (int key = block_keys.begin / A::keys * A::keys; key < block_keys.end; key += A::keys) {
      Visit visit = look_at<A>(mask, first, last, key);
      if (visit.seen == 0)
        continue;
      int tile = 0;
      if constexpr (A::fp8) {
        tile = KeyTiles{problem.heads}.number(b, kv.first, key, head);
        visit.k_scale = quantised.k_scale[tile];
        visit.v_scale = quantised.v_scale[tile];
      }
      smem.k.wait_empty(k_turn);
      if (asks) {
        smem.visits[k_turn.buffer] = visit;
        smem.k.load_async(k_turn, maps.k, key, kv);
      }
      k_turn.advance();
      smem.v.wait_empty(v_turn);
      if (asks) {
        if constexpr (A::fp8)
          smem.v.load_async(v_turn, maps.v, 0, tile);
        else
          smem.v.load_async(v_turn, maps.v, key, kv);
      }
      v_turn.advance();
    }
    smem.k.wait_empty(k_turn);
    if (asks) {
      smem.visits[k_turn.buffer] = kNoTile;
      smem.k.full[k_turn.buffer].arrive();
    }
    k_turn.advance();
  });
}

/// The calling warp's first row of a piece's: each has 16.
__device__ inline int warp_row() { return uniform(thread_index() / 32 * 16); }

/// S becomes P = silu(alpha S), 0 where the mask hides a key. fp8: times the factors of weights.
template <typename T, int d, typename A, bool kIntervals, RegisterTile S>
__device__ inline void weigh(S &s, const HstuProblem &problem, const Piece<A> &piece, const Visit &visit,
                             bool is_cut, const Factors &factors) {
  if constexpr (A::fp8) {
    silu(s, s, factors.logit * visit.k_scale);
    mul(s, s, factors.weight * visit.v_scale);
  } else {
    silu(s, s, problem.alpha);
  }
  if (!is_cut)
    return;
  // Read where it is needed, in few tiles: in between the tiles need the registers.
  const Sequence<T, d, A> sequence(problem, piece);
  const auto mask = sequence.template mask<kIntervals>();
  const int first = sequence.block_row(A::block_rows) + warp_row() + sequence.shift(),
            last = sequence.k_len - 1;
  const auto only_ends = [&] { return mask.all_before_end(first + 15, visit.key, A::keys); };
  if (only_ends())
    keep_before(s, s, [&](int r) { return mask.end(first + r) - visit.key; });
  if (!only_ends()) // asked again: kept in a register, it has ptxas spill
    keep_bits(s, s, [&](int r) {
      return [=, row = mask.row(min(first + r, last))](int col) {
        return row.bits(visit.key + col, min(64, A::keys - col));
      };
    });
}

/// A consumer, a warpgroup with 64 rows of each piece.
template <typename T, int d, typename A, bool kIntervals>
__device__ inline void consume(typename A::Shared &smem, const HstuProblem &problem,
                               const Quantised &quantised, int consumer) {
  RegTile<float, 16, A::keys> s;
  typename A::P p;
  RegTile<float, 16, d> o;
  RegTile<T, 16, d> o_16;

  const InTurn<A::consumers, 1> in_turn{consumer};
  in_turn.start();
  Turn<A::q_buffers> q_turn;
  Turn<A::buffers> k_turn, v_turn;
  const auto release_k = [&] {
    smem.k.release(k_turn);
    k_turn.advance();
  };
  const auto release_v = [&] {
    smem.v.release(v_turn);
    v_turn.advance();
  };
  const auto next_tile = [&] {
    smem.k.wait_full(k_turn);
    const Visit visit = smem.visits[k_turn.buffer];
    __syncwarp();
    return visit;
  };
  // The next tile that these rows see. Others are given back.
  const auto next_seen = [&] {
    Visit visit = next_tile();
    for (; visit.is_tile() && !visit.is_seen_by(consumer); visit = next_tile()) {
      in_turn.wait();
      in_turn.pass();
      release_k();
      smem.v.wait_full(v_turn);
      release_v();
    }
    return visit;
  };

  const auto begin_pv = [&] {
    const auto &v_smem = smem.v.wait_full(v_turn);
    if constexpr (A::fp8)
      warpgroup::mma_ABt(o, p, v_smem, o);
    else
      warpgroup::mma_AB(o, p, v_smem, o);
  };

  for_each_piece<T, d, A>(problem, [&](const Piece<A> &piece) {
    Factors fp8{};
    if constexpr (A::fp8) {
      const Sequence<T, d, A> sequence(problem, piece);
      fp8 = factors(sequence, quantised, sequence.block_row(A::block_rows) + 64 * consumer);
    }
    zero(o);
    auto &q_smem = smem.q.wait_full(q_turn, consumer);
    for (Visit visit = next_seen(); visit.is_tile(); visit = next_seen()) {
      // S = Q K^T and P = silu(S), of the first of some tiles that these rows see
      in_turn.wait();
      warpgroup::mma_ABt(s, q_smem, smem.k.wait_full(k_turn));
      in_turn.pass();
      warpgroup::mma_wait(s);
      release_k();
      weigh<T, d, A, kIntervals>(s, problem, piece, visit, visit.is_cut_for(consumer), fp8);
      copy(p, s);

      while ((visit = next_tile()).is_seen_by(consumer)) {
        // S = Q K^T, and O += P V with the P of the tile before
        in_turn.wait();
        warpgroup::mma_ABt(s, q_smem, smem.k.wait_full(k_turn));
        begin_pv();
        in_turn.pass();
        warpgroup::mma_wait<1>(s);
        release_k();

        // P = silu(S)
        weigh<T, d, A, kIntervals>(s, problem, piece, visit, visit.is_cut_for(consumer), fp8);
        warpgroup::mma_wait(o);
        release_v();
        copy(p, s);
      }

      // O += P V of the last of them
      begin_pv();
      warpgroup::mma_wait(o);
      release_v();
    }
    release_k(); // what said that there is none

    mul(o, o, A::fp8 ? problem.inv_length / fp8.weight : problem.inv_length);
    copy(o_16, o);
    const Sequence<T, d, A> sequence(problem, piece);
    if constexpr (A::stores_rows) {
      // By way of Q's place, once all warps are done with Q.
      warpgroup::sync(8 + consumer);
      warpgroup::store(q_smem, o_16);
      warpgroup::sync(8 + consumer);
      group<warpgroup::warps>::store(sequence.o(), q_smem, sequence.block_row(A::block_rows) + 64 * consumer);
      fence_async_proxy();
      __syncwarp();
    } else {
      store(sequence.o(), o_16, sequence.block_row(A::block_rows) + warp_row());
    }
    smem.q.release(q_turn);
    q_turn.advance();
  });
  in_turn.stop();
}

template <typename T, int d, typename A, bool kIntervals>
__global__ void __launch_bounds__(A::threads, 1)
    attend(const __grid_constant__ typename A::Maps maps, const __grid_constant__ HstuProblem problem,
           const Quantised quantised) {
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
      produce<T, d, A, kIntervals>(smem, maps, problem, quantised);
  } else {
    increase_registers<A::consumer_registers>();
    consume<T, d, A, kIntervals>(smem, problem, quantised, role);
  }
}

int multiprocessors() {
  int device = 0, count = 0;
  ladder::check(cudaGetDevice(&device), "cudaGetDevice");
  ladder::check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device),
                "cudaDeviceGetAttribute");
  return count;
}

template <typename T, int d, typename A>
void launch_with(const HstuProblem &p, const typename A::Maps &maps, const Quantised &quantised,
                 cudaStream_t stream) {
  const auto kernel = p.intervals ? attend<T, d, A, true> : attend<T, d, A, false>;
  constexpr int smem_bytes = sizeof(typename A::Shared);
  ladder::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem_bytes),
                "h6_wgmma: shared memory");
  const int blocks = std::min(multiprocessors(), Piece<A>{0, p.heads, p.batch, p.max_q_len}.count());
  kernel<<<blocks, A::threads, smem_bytes, stream>>>(maps, p, quantised);
  ladder::check(cudaGetLastError(), "h6_wgmma: launch");
}

template <typename T, int d, bool kFp8> void launch_head_dim(const HstuProblem &p, cudaStream_t stream) {
  using A = Arrangement<T, d, kFp8>;
  using QTile = typename A::QTile;
  using KTile = typename A::KTile;
  using VTile = typename A::VTile;
  if constexpr (!A::fits) {
    throw std::invalid_argument(
        "h6_wgmma: at this head_dim the options chosen do not fit into registers or shared memory");
  } else if constexpr (kFp8) {
    const Quantisation<T, d> quantisation(p, stream);
    const Quantised &e4m3 = quantisation.out;
    const int stride = p.heads * d;
    launch_with<T, d, A>(p,
                         {
                             .q = tma::jagged_map<QTile>(e4m3.q, p.total_q, p.heads, stride),
                             .k = tma::jagged_map<KTile>(e4m3.k, p.total_k, p.heads, stride),
                             .v = tma::tensor_map<VTile>(e4m3.v, d, quantisation.k_tiles(p) * p.heads),
                         },
                         e4m3, stream);
  } else {
    launch_with<T, d, A>(p,
                         {
                             .q = tma::jagged_map<QTile>(p.q, p.total_q, p.heads, p.q_stride),
                             .k = tma::jagged_map<KTile>(p.k, p.total_k, p.heads, p.k_stride),
                             .v = tma::jagged_map<VTile>(p.v, p.total_k, p.heads, p.v_stride),
                         },
                         {}, stream);
  }
}

} // namespace

void ladder::launch(const HstuProblem &p, cudaStream_t stream) {
  dispatch_16_bit(p, [&](auto element) {
    using T = decltype(element);
    if (p.fp8)
      dispatch_head_dim<32, 64, 128>(p, [&](auto d) { launch_head_dim<T, d, true>(p, stream); });
    else
      dispatch_head_dim<32, 64, 128, 256>(p, [&](auto d) { launch_head_dim<T, d, false>(p, stream); });
  });
}
