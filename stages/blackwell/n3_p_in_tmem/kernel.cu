// n3_p_in_tmem: n2_o_in_tmem with P in tensor memory.
//
// Operand A of a product may be there, two 16-bit elements per column. P takes the place of S: a warp stores
// its rows once it has loaded S. So P needs no shared memory and no fence of the asynchronous proxy.
#include <cmath>

#include "ladder/attention.h"
#include "ladder/dispatch.h"
#include "ladder/head.h"
#include "tiles/ring.h"
#include "tiles/tensor_map.h"
#include "tiles/tensor_memory.h"
#include "tiles/tiles.h"

namespace {

using ladder::AttentionProblem;
using namespace tiles;

constexpr float kLog2E = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

/// m follows the maximum only when a weight exp(s - m) would exceed 2^kSlack.
constexpr float kSlack = 4.f;

/// Row statistics of a warp's rows. m: the running maximum of the logits, or up to kSlack less. l: this
/// lane's part of the row sum of the weights.
template <typename Vec> struct RowState {
  Vec m, l;
};

/// Tile sizes for elements T and head dimension d. Each of 8 warps has 16 of the 128 rows.
template <typename T, int d> struct Arrangement {
  static constexpr int threads = 256, block_rows = 128, keys = 128; // keys per tile
  using Tile = SharedTile<T, 128, d>;
  struct Shared {
    Ring<Tile, 1> q;
    Ring<Tile, 2> k, v;
    Barrier s_done, pv_done; // a commit's arrival
    uint32_t tensor_memory;
  };
  static constexpr int columns = 256; // of tensor memory: S and P, then O
  struct Maps {
    tma::TensorMap<Tile> q, k, v;
  };
};

template <typename T, int d, typename A>
__global__ void __launch_bounds__(A::threads, 1)
    attend(const __grid_constant__ typename A::Maps maps, const __grid_constant__ AttentionProblem problem,
           float late_scale) {
  // Causal: the last rows see the most keys, so their blocks start first.
  const int block_row = (gridDim.y - 1 - blockIdx.y) * A::block_rows, row = block_row + tmem::warp_row();
  // Causal: no row sees a key beyond itself.
  const int keys = problem.is_causal ? min(problem.kv_len, block_row + A::block_rows) : problem.kv_len;
  const Head<T, d> gmem(problem, keys);
  const int head = blockIdx.z * problem.heads + blockIdx.x;
  const int kv_head = blockIdx.z * problem.kv_heads + blockIdx.x / (problem.heads / problem.kv_heads);
  const bool issuer = threadIdx.x == 0; // of TMA loads and of products

  extern __shared__ __align__(1024) unsigned char bytes[];
  auto &smem = *reinterpret_cast<typename A::Shared *>(bytes);
  if (threadIdx.x / 32 == 0)
    tmem::allocate<A::columns>(smem.tensor_memory);
  if (issuer) {
    smem.q.init(1);
    smem.k.init(1);
    smem.v.init(1);
    smem.s_done.init(1);
    smem.pv_done.init(1);
    fence_barrier_init();
  }
  __syncthreads();
  const tmem::Tile<A::columns> tensor_memory{smem.tensor_memory};
  const auto s_tmem = tensor_memory.template columns<A::keys>(0);
  const tmem::OperandTile<T, A::keys> p_tmem{s_tmem.address};
  const auto o_tmem = tensor_memory.template columns<d>(A::keys);

  RegTile<T, 16, d> o_16;
  RegTile<float, 16, A::keys> s; // S of a warp
  RegTile<T, 16, A::keys> p_16;  // P, rounded: operand A
  RegTile<float, 16, d> o;       // O of a warp
  RowState<typename RegTile<float, 16, d>::ColVec> rows;
  zero(rows.l);
  neg_infty(rows.m);

  Turn<2> turn, fill_turn; // the buffers to use and to fill next
  const auto prefetch = [&](int key) {
    if (issuer && key < keys) {
      smem.k.wait_empty(fill_turn);
      smem.k.load_async(fill_turn, maps.k, key, kv_head);
      smem.v.wait_empty(fill_turn);
      smem.v.load_async(fill_turn, maps.v, key, kv_head);
      fill_turn.advance();
    }
  };
  if (issuer)
    smem.q.load_async({}, maps.q, block_row, head);
  prefetch(0);
  for (int key = 0; key < keys; key += A::keys, turn.advance()) {
    prefetch(key + A::keys);
    const uint32_t parity = key / A::keys & 1;

    // S = Q K^T
    if (issuer) {
      tmem::mma_ABt(s_tmem, smem.q.wait_full({}), smem.k.wait_full(turn), false);
      tmem::commit(smem.s_done);
    }
    smem.s_done.wait(parity);
    tmem::fence_after_sync();
    tmem::load(s, s_tmem);
    tmem::wait_loads(s);
    if (issuer)
      smem.k.release(turn);
    // P = exp(S - m)
    softmax(s, o, rows, problem, late_scale, row, key, o_tmem);

    // O += P V
    copy(p_16, s);
    tmem::store(p_tmem, p_16);
    tmem::wait_stores();
    tmem::fence_before_sync();
    __syncthreads();
    if (issuer) {
      tmem::fence_after_sync();
      tmem::mma_AB(o_tmem, p_tmem, smem.v.wait_full(turn), key > 0);
      tmem::commit(smem.pv_done);
    }
    smem.pv_done.wait(parity);
    tmem::fence_after_sync();
    if (issuer)
      smem.v.release(turn);
  }
  tmem::load(o, o_tmem);
  tmem::wait_loads(o);
  __syncthreads();
  if (threadIdx.x / 32 == 0)
    tmem::deallocate<A::columns>(tensor_memory.address);

  sum_over_lanes(rows.l);
  div_row(o, o, rows.l);
  copy(o_16, o);
  store(gmem.o(), o_16, row);
  log(rows.l, rows.l);
  mul(rows.m, rows.m, kLn2);
  add(rows.l, rows.l, rows.m);
  store(gmem.lse(), rows.l, row);
}

/// Turns the logits S of a tile, whose first row and key are given, into weights P = exp(S - m). If m
/// changes, O and l are rescaled. `o` is for the rows of O that the warp loads.
///
/// `late_scale`, by which S is multiplied after the maximum, is scale * log2(e), so exp(s) becomes exp2(s).
/// For a scale of 0 or below it is 1, and S is scaled before the maximum.
template <RegisterTile S, RegisterTile O, typename Vec, typename OTile>
__device__ inline void softmax(S &s, O &o, RowState<Vec> &rows, const AttentionProblem &problem,
                               float late_scale, int row, int key, OTile o_tmem) {
  if (problem.scale <= 0.f)
    mul(s, s, problem.scale * kLog2E);
  right_fill(s, s, problem.kv_len - key);
  if (problem.is_causal)
    make_causal(s, s, row, key);

  Vec m_new, rescale;
  row_max_in_lane(m_new, s);
  mul(m_new, m_new, late_scale);
  if (any_above(m_new, rows.m, kSlack)) {
    max_over_lanes(m_new);
    max(m_new, m_new, rows.m);
    sub(rescale, rows.m, m_new);
    exp2(rescale, rescale);
    mul(rows.l, rows.l, rescale);
    if (key > 0) {
      tmem::load(o, o_tmem);
      tmem::wait_loads(o);
      mul_row(o, o, rescale);
      tmem::store(o_tmem, o);
      tmem::wait_stores();
    }
    copy(rows.m, m_new);
  }
  mul(s, s, late_scale);
  sub_row(s, s, rows.m);
  exp2(s, s);
  row_sum_in_lane(rows.l, s, rows.l);
}

template <typename T, int d> void launch_head_dim(const AttentionProblem &p, cudaStream_t stream) {
  using A = Arrangement<T, d>;
  constexpr int smem_bytes = sizeof(typename A::Shared);
  constexpr auto kernel = attend<T, d, A>;
  ladder::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem_bytes),
                "n3_p_in_tmem: shared memory");
  const dim3 grid = ladder::launch_grid(p.heads, (p.q_len + A::block_rows - 1) / A::block_rows, p.batch);
  const float late_scale = p.scale > 0.f ? p.scale * kLog2E : 1.f;
  using Tile = typename A::Tile;
  const typename A::Maps maps{
      .q = tma::tensor_map<Tile>(p.q, p.q_strides, p.q_len, p.heads, p.batch),
      .k = tma::tensor_map<Tile>(p.k, p.k_strides, p.kv_len, p.kv_heads, p.batch),
      .v = tma::tensor_map<Tile>(p.v, p.v_strides, p.kv_len, p.kv_heads, p.batch),
  };
  kernel<<<grid, A::threads, smem_bytes, stream>>>(maps, p, late_scale);
  ladder::check(cudaGetLastError(), "n3_p_in_tmem: launch");
}

} // namespace

void ladder::launch(const AttentionProblem &p, cudaStream_t stream) {
  require_alignment(p, 16);
  require_rows_fit(p);
  dispatch_16_bit(p, [&](auto element) {
    dispatch_head_dim<64, 128>(p, [&](auto d) { launch_head_dim<decltype(element), d>(p, stream); });
  });
}
