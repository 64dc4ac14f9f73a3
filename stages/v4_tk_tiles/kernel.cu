// v4_tk_tiles: the FlashAttention-2 of v3_swizzle, written in tiles.
//
// tiles/ holds what v2 and v3 spelled out: fragments, ldmatrix, mma, swizzles, shuffles. The kernel says the
// algorithm, one operation a line, destination first, and can then afford more: P and O never leave the
// registers, K and V arrive while the tensor cores work on the tiles before them, and sixteen warps, the
// workers, share each tile.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "ladder/dispatch.h"
#include "ladder/problem.h"
#include "tiles/tiles.h"

// What may be chosen when building (stage.toml lists the values); 0 leaves it to `Arrangement`.
#ifndef WORKERS
#define WORKERS 16
#endif
#ifndef ROWS
#define ROWS 16
#endif
#ifndef KEYS
#define KEYS 0
#endif
#ifndef STAGES
#define STAGES 0
#endif
#ifndef PARTS
#define PARTS 0
#endif
#ifndef Q_IN_REGISTERS
#define Q_IN_REGISTERS -1
#endif

namespace {

using ladder::AttentionProblem;
using namespace tiles;

constexpr float kLog2E = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

/// How a block goes about it, for a head dimension of d.
template <int d> struct Arrangement {
  static constexpr int workers = WORKERS;                       // warps
  static constexpr int rows = ROWS;                             // query rows a worker
  static constexpr int keys = KEYS ? KEYS : d == 128 ? 32 : 64; // of a tile of K and V
  static constexpr int stages =
      STAGES ? STAGES : 2; // tiles of K and V in shared memory: one in use, the others on their way
  static constexpr int parts = PARTS ? PARTS : d == 128 ? 1 : 2; // tiles of a stage
  static constexpr bool q_in_registers = Q_IN_REGISTERS >= 0 ? Q_IN_REGISTERS : d < 128;
  static constexpr int block_rows = workers * rows;
};

/// The tensors of one (batch, head), as the tile library wants them.
template <typename T, int d> struct Head {
  const AttentionProblem &p;
  int64_t query, key; // rows before the first one in q, o and lse, and in k and v

  __device__ Head(const AttentionProblem &problem, int batch, int head)
      : p(problem), query((int64_t(batch) * p.heads + head) * p.q_len),
        key((int64_t(batch) * p.kv_heads + head / (p.heads / p.kv_heads)) * p.kv_len) {}

  __device__ GlobalMatrix<const T, d> q() const { return {static_cast<const T *>(p.q) + query * d, p.q_len}; }
  __device__ GlobalMatrix<const T, d> k() const { return {static_cast<const T *>(p.k) + key * d, p.kv_len}; }
  __device__ GlobalMatrix<const T, d> v() const { return {static_cast<const T *>(p.v) + key * d, p.kv_len}; }
  __device__ GlobalMatrix<T, d> o() const { return {static_cast<T *>(p.o) + query * d, p.q_len}; }
  __device__ GlobalVec<float> lse() const { return {p.lse + query, p.q_len}; }
};

template <typename T, int d, typename A> constexpr int smem_bytes() {
  constexpr int kv = 2 * SharedAllocator::bytes<SharedTile<T, A::keys, d>[A::parts], A::stages>;
  return kv + (A::q_in_registers ? 0 : SharedAllocator::bytes<SharedTile<T, A::rows, d>, A::workers>);
}

/// Starts to bring a stage's tiles of K and V, from row `key` on.
template <typename Block, typename Tiles, typename T, int d>
__device__ inline void fetch(Tiles &k_smem, Tiles &v_smem, const Head<T, d> &gmem, int key) {
  for (auto &tile : k_smem) {
    Block::load_async(tile, gmem.k(), key + int(&tile - k_smem) * tile.rows);
    Block::load_async(v_smem[&tile - k_smem], gmem.v(), key + int(&tile - k_smem) * tile.rows);
  }
  async_commit();
}

template <typename T, int d, typename A>
__global__ void __launch_bounds__(A::workers * 32) attend(const __grid_constant__ AttentionProblem problem) {
  using block = group<A::workers>;
  const Head<T, d> gmem(problem, blockIdx.z, blockIdx.x);
  const int block_row = (gridDim.y - 1 - blockIdx.y) * A::block_rows; // the longest causal blocks start first
  const int row = block_row + block::warp() * A::rows;
  const int keys =
      problem.is_causal ? min(problem.kv_len, row + A::rows) : problem.kv_len; // that this worker sees
  const int block_keys = problem.is_causal ? min(problem.kv_len, block_row + A::block_rows) : problem.kv_len;
  constexpr int stage_keys = A::parts * A::keys;
  const float scale =
      problem.scale > 0.f ? problem.scale * kLog2E : 1.f; // only a positive factor may wait for the maximum

  extern __shared__ __align__(128) unsigned char smem[];
  SharedAllocator allocator(smem);
  auto &k_smem = allocator.allocate<SharedTile<T, A::keys, d>[A::parts], A::stages>();
  auto &v_smem = allocator.allocate<SharedTile<T, A::keys, d>[A::parts], A::stages>();
  auto &q_smem = allocator.allocate<SharedTile<T, A::rows, d>, A::workers>()[block::warp()];

  RegTile<T, A::rows, d> q, o_16;
  RegTile<T, A::rows, A::keys> p_16;
  RegTile<float, A::rows, A::keys> s;
  RegTile<float, A::rows, d> o;
  typename RegTile<float, A::rows, d>::ColVec m, m_scaled, l, rescale;
  if constexpr (A::q_in_registers)
    load(q, gmem.q(), row);
  else
    load_async(q_smem, gmem.q(), row);
  zero(o);
  zero(l);
  neg_infty(m);

  for (int stage = 0; stage < A::stages - 1; stage++)
    fetch<block>(k_smem[stage], v_smem[stage], gmem, stage * stage_keys);
  for (int key0 = 0; key0 < block_keys; key0 += stage_keys) {
    const int stage = key0 / stage_keys % A::stages, last = (stage + A::stages - 1) % A::stages;
    async_wait<A::stages - 2>();
    block::sync();
    fetch<block>(k_smem[last], v_smem[last], gmem, key0 + (A::stages - 1) * stage_keys);
    for (int part = 0, key = key0; part < A::parts && key < keys; part++, key += A::keys) {
      zero(s);
      if constexpr (A::q_in_registers)
        mma_ABt(s, q, k_smem[stage][part], s);
      else
        mma_ABt(s, q_smem, k_smem[stage][part], s);
      if (problem.scale <= 0.f)
        mul(s, s, problem.scale * kLog2E);
      if (key + A::keys > problem.kv_len)
        right_fill(s, s, problem.kv_len - key);
      if (problem.is_causal && key + A::keys > row + 1)
        make_causal(s, s, row, key);
      mul(rescale, m, scale);
      row_max(m, s, m);
      mul(m_scaled, m, scale);
      mul(s, s, scale);
      sub_row(s, s, m_scaled);
      exp2(s, s);
      sub(rescale, rescale, m_scaled);
      exp2(rescale, rescale);
      mul(l, l, rescale);
      row_sum(l, s, l);
      copy(p_16, s);
      mul_row(o, o, rescale);
      mma_AB(o, p_16, v_smem[stage][part], o);
    }
  }
  one(rescale);
  div(rescale, rescale, l);
  mul_row(o, o, rescale);
  copy(o_16, o);
  store(gmem.o(), o_16, row);
  log(l, l);
  mul(m, m, scale * kLn2);
  add(l, l, m);
  store(gmem.lse(), l, row);
}

template <typename T, int d> void launch_arrangement(const AttentionProblem &p, cudaStream_t stream) {
  using A = Arrangement<d>;
  constexpr int bytes = smem_bytes<T, d, A>();
  static_assert(bytes <= 99 * 1024, "a block of an sm_86 has no more");
  constexpr auto kernel = attend<T, d, A>;
  ladder::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
                "v4_tk_tiles: shared memory");
  kernel<<<dim3(p.heads, (p.q_len + A::block_rows - 1) / A::block_rows, p.batch), A::workers * 32, bytes,
           stream>>>(p);
  ladder::check(cudaGetLastError(), "v4_tk_tiles: launch");
}

} // namespace

void ladder::launch(const AttentionProblem &p, cudaStream_t stream) {
  require_alignment(p, 16);
  dispatch_16_bit(p, [&](auto element) {
    dispatch_head_dim(p, [&](auto d) { launch_arrangement<decltype(element), d>(p, stream); });
  });
}
