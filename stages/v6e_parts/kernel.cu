// v6e_parts: v6_late_scale with several tiles per buffer, and 32 query rows per warp at d = 128.
//
// A buffer holds as many tiles as fit: six at d = 32, four at d = 64, one at d = 128. The workers of a block
// wait for each other once per buffer instead of once per tile. At d = 128 a warp has 32 rows, so each
// fragment of K and V serves two mma.
#include <cmath>

#include "ladder/attention.h"
#include "ladder/dispatch.h"
#include "ladder/head.h"
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

/// Tile sizes for elements T and head dimension d.
template <typename T, int d> struct Arrangement {
  static constexpr int rows = d == 128 ? 32 : 16, workers = d == 128 ? 4 : 16, blocks = d == 128 ? 2 : 1;
  static constexpr int block_rows = workers * rows, threads = 32 * workers;
  static constexpr int keys = d == 32 ? 64 : 48; // per tile
  using KV = SharedTile<T, keys, d>;

  static constexpr bool q_in_registers = d < 128;
  using Q = SharedTile<T, rows, d>;
  static constexpr int q_bytes = q_in_registers ? 0 : SharedAllocator::bytes<Q, workers>;
  /// Tiles per buffer: as many as fit into 96 KB, with two buffers of K and two of V.
  static constexpr int parts = (96 * 1024 - q_bytes) / (4 * int(sizeof(KV))), buffer_keys = parts * keys;
  using Buffer = KV[parts];
  static constexpr int smem_bytes = 2 * SharedAllocator::bytes<Buffer, 2> + q_bytes;
};

template <typename T, int d, typename A>
__global__ void __launch_bounds__(A::threads, A::blocks)
    attend(const __grid_constant__ AttentionProblem problem, float late_scale) {
  using block = group<A::threads / 32>;
  // Causal: the last rows see the most keys, so their blocks start first.
  const int block_row = (gridDim.y - 1 - blockIdx.y) * A::block_rows;
  const int row = block_row + block::warp() * A::rows;
  // Causal: query i sees keys 0 to i, so the block skips later tiles. A worker with earlier rows skips more.
  const int block_keys = problem.is_causal ? min(problem.kv_len, block_row + A::block_rows) : problem.kv_len;
  const int keys = problem.is_causal ? min(problem.kv_len, row + A::rows) : problem.kv_len;
  const Head<T, d> gmem(problem, block_keys);

  extern __shared__ __align__(128) unsigned char smem[];
  SharedAllocator allocator(smem);
  auto &k_smem = allocator.allocate<typename A::Buffer, 2>();
  auto &v_smem = allocator.allocate<typename A::Buffer, 2>();
  auto &q_smem = allocator.allocate<typename A::Q, A::workers>()[block::warp()];

  RegTile<T, A::rows, d> q_rmem, o_16;
  RegTile<float, A::rows, A::keys> s; // S of a warp
  RegTile<T, A::rows, A::keys> p_16;  // P, rounded: operand A
  RegTile<float, A::rows, d> o;       // O of a warp
  RowState<typename RegTile<float, A::rows, d>::ColVec> rows;
  auto &q = choose<A::q_in_registers>(q_rmem, q_smem);
  load(q, gmem.q(), row);
  zero(o);
  zero(rows.l);
  neg_infty(rows.m);

  const auto prefetch = [&](int buffer, int key) {
    if (key >= block_keys)
      return;
    for (int part = 0; part < A::parts; part++) {
      block::load_async(k_smem[buffer][part], gmem.k(), key + part * A::keys);
      block::load_async(v_smem[buffer][part], gmem.v(), key + part * A::keys);
    }
    async_commit();
  };
  prefetch(0, 0);
  for (int key0 = 0, now = 0; key0 < block_keys; key0 += A::buffer_keys, now = 1 - now) {
    block::async_wait(); // these tiles have arrived, and all workers have used the last ones
    prefetch(1 - now, key0 + A::buffer_keys);
    for (int part = 0, key = key0; part < A::parts && key < keys; part++, key += A::keys) {
      // S = Q K^T
      mma_ABt(s, q, k_smem[now][part]);

      // P = exp(S - m)
      softmax(s, o, rows, problem, late_scale, row, key);

      // O += P V
      copy(p_16, s);
      mma_AB(o, p_16, v_smem[now][part], o);
    }
  }

  sum_over_lanes(rows.l);
  div_row(o, o, rows.l);
  copy(o_16, o);
  store(gmem.o(), o_16, row);
  log(rows.l, rows.l);
  mul(rows.m, rows.m, kLn2);
  add(rows.l, rows.l, rows.m);
  store(gmem.lse(), rows.l, row);
}

/// Replaces the logits S of a tile by the weights P = exp(S - m). `row` and `key` are the tile's first row
/// and first key. If m changes, O and l are rescaled.
///
/// `late_scale` is scale * log2(e), so exp(s) becomes exp2(s). S is multiplied by it after the maximum. For
/// scale <= 0 it is 1, and S is scaled before: a negative factor would turn the maximum into the minimum.
template <RegisterTile S, RegisterTile O, typename Vec>
__device__ inline void softmax(S &s, O &o, RowState<Vec> &rows, const AttentionProblem &problem,
                               float late_scale, int row, int key) {
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
    mul_row(o, o, rescale);
    copy(rows.m, m_new);
  }
  mul(s, s, late_scale);
  sub_row(s, s, rows.m);
  exp2(s, s);
  row_sum_in_lane(rows.l, s, rows.l);
}

template <typename T, int d> void launch_head_dim(const AttentionProblem &p, cudaStream_t stream) {
  using A = Arrangement<T, d>;
  constexpr auto kernel = attend<T, d, A>;
  constexpr int smem_bytes = A::smem_bytes;
  ladder::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem_bytes),
                "v6e_parts: shared memory");
  const dim3 grid = ladder::launch_grid(p.heads, (p.q_len + A::block_rows - 1) / A::block_rows, p.batch);
  const float late_scale = p.scale > 0.f ? p.scale * kLog2E : 1.f;
  kernel<<<grid, A::threads, smem_bytes, stream>>>(p, late_scale);
  ladder::check(cudaGetLastError(), "v6e_parts: launch");
}

} // namespace

void ladder::launch(const AttentionProblem &p, cudaStream_t stream) {
  require_alignment(p, 16);
  require_rows_fit(p);
  dispatch_16_bit(p, [&](auto element) {
    dispatch_head_dim<32, 64, 128>(p, [&](auto d) { launch_head_dim<decltype(element), d>(p, stream); });
  });
}
