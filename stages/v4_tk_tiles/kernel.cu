// v4_tk_tiles: the FlashAttention-2 of v3_swizzle, written in tiles.
//
// tiles/ holds what v2 and v3 spell out: fragments, ldmatrix, mma, swizzles, shuffles. The kernel says the
// algorithm, one operation a line, destination first, and can afford more: S, P and O never leave the
// registers, K and V arrive while the tensor cores work on the keys before them, and sixteen warps, the
// workers, share each tile.
#include <cmath>

#include "head.h"
#include "ladder/dispatch.h"
#include "ladder/problem.h"
#include "tiles/tiles.h"

// What stage.toml offers to choose when building. 0 leaves it to Arrangement.
#ifndef ROWS
#define ROWS 0
#endif
#ifndef WORKERS
#define WORKERS 0
#endif
#ifndef KEYS
#define KEYS 0
#endif
#ifndef PARTS
#define PARTS 0
#endif
#ifndef STAGES
#define STAGES 2
#endif

namespace {

using ladder::AttentionProblem;
using namespace tiles;

constexpr float kLog2E = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

/// What is taken off the logits need not be their maximum, only near it: while the maximum has grown by less
/// than a factor of 2^kSlack in the weights, the old one serves, and O, which has the same factor as l, need
/// not be rescaled: for most tiles. A larger slack saves no more, but the largest weight, 1 and so exact when
/// the maximum is its own, is rounded to 16 bits when it is not, which tells where it outweighs all others.
constexpr float kSlack = 1.f;

/// How a block goes about elements T and head dimension d.
template <typename T, int d> struct Arrangement {
  // Query rows a worker. With 16 there are registers for sixteen workers; with 32 the fragments of K and V,
  // once loaded, serve twice. Sixteen are enough for the speed of FlashAttention-2 but at d = 128, where O
  // alone takes half of their registers.
  static constexpr int rows = ROWS ? ROWS : d == 128 ? 32 : 16;
  static constexpr int workers = WORKERS ? WORKERS : rows == 16 ? 16 : 4; // warps a block
  static constexpr int blocks = workers <= 4 ? 2 : 1; // an SM, for the compiler's share of registers
  // A tile of K and V. Smaller ones do the rest of the loop more often; with larger ones registers spill.
  static constexpr int most_keys() {
    if (d == 32)
      return 64;
    if (d == 64)
      return rows == 16 ? 48 : 64;
    return rows == 16 ? 32 : 48;
  }
  static constexpr int keys = KEYS ? KEYS : most_keys();
  static constexpr int block_rows = workers * rows;

  /// Q is kept in registers, or at d = 128, where these are taken, in shared memory.
  static constexpr bool q_in_registers = d < 128;
  static constexpr int q_bytes = q_in_registers ? 0 : SharedAllocator::bytes<SharedTile<T, rows, d>, workers>;

  // A stage is what is brought between two barriers: as many tiles as fit into 96 KB. One stage is in use,
  // the others are on their way.
  static constexpr int stages = STAGES;
  static constexpr int parts =
      PARTS ? PARTS : (96 * 1024 - q_bytes) / (stages * 2 * sizeof(SharedTile<T, keys, d>));
  static constexpr int stage_keys = parts * keys;
  struct Stage {
    SharedTile<T, keys, d> k[parts ? parts : 1], v[parts ? parts : 1];
  };
  static constexpr int smem_bytes = SharedAllocator::bytes<Stage, stages> + q_bytes;

  /// A worker's rows of Q.
  __device__ static decltype(auto) place_q(SharedAllocator &allocator, int worker) {
    if constexpr (q_in_registers)
      return RegTile<T, rows, d>{};
    else
      return (allocator.allocate<SharedTile<T, rows, d>, workers>()[worker]);
  }
};

/// The share of a block and of one of its workers: from which query row on, and how many keys they see. The
/// last rows, which see the most keys if the mask is causal, are the first to start.
template <typename A> struct Share {
  int block_row, row, block_keys, keys;

  __device__ Share(const AttentionProblem &p, int worker) {
    block_row = (gridDim.y - 1 - blockIdx.y) * A::block_rows;
    row = block_row + worker * A::rows;
    block_keys = p.is_causal ? min(p.kv_len, block_row + A::block_rows) : p.kv_len;
    keys = p.is_causal ? min(p.kv_len, row + A::rows) : p.kv_len;
  }
};

/// Starts to bring a stage's tiles of K and V, from row `key` on.
template <typename Block, typename Stage, typename T, int d>
__device__ inline void fetch(Stage &stage, const Head<T, d> &gmem, int key) {
  for (auto &k_smem : stage.k) {
    const int part = &k_smem - stage.k;
    Block::load_async(k_smem, gmem.k(), key + part * k_smem.rows);
    Block::load_async(stage.v[part], gmem.v(), key + part * k_smem.rows);
  }
  async_commit();
}

// A positive scale can wait until after the maximum, to be one fused multiply-add with its subtraction: then
// it is late_scale, which otherwise is 1.
template <typename T, int d, typename A>
__global__ void __launch_bounds__(A::workers * 32, A::blocks)
    attend(const __grid_constant__ AttentionProblem problem, float late_scale) {
  using block = group<A::workers>;
  const Share<A> share(problem, block::warp());
  const Head<T, d> gmem(problem, share.block_keys);

  extern __shared__ __align__(128) unsigned char smem[];
  SharedAllocator allocator(smem);
  auto &kv_smem = allocator.allocate<typename A::Stage, A::stages>();
  auto &&q = A::place_q(allocator, block::warp());

  RegTile<float, A::rows, A::keys> s;
  RegTile<T, A::rows, A::keys> p_16;
  RegTile<float, A::rows, d> o;
  RegTile<T, A::rows, d> o_16;
  typename RegTile<float, A::rows, d>::ColVec m, m_new, rescale, l;
  load(q, gmem.q(), share.row);
  zero(o);
  zero(l);
  neg_infty(m);

  for (int stage = 0; stage < A::stages - 1; stage++)
    fetch<block>(kv_smem[stage], gmem, stage * A::stage_keys);
  for (int key0 = 0; key0 < share.block_keys; key0 += A::stage_keys) {
    const int stage = key0 / A::stage_keys % A::stages, next = (stage + A::stages - 1) % A::stages;
    block::template async_wait<A::stages - 2>();
    fetch<block>(kv_smem[next], gmem, key0 + (A::stages - 1) * A::stage_keys);
    for (int part = 0, key = key0; part < A::parts && key < share.keys; part++, key += A::keys) {
      mma_ABt(s, q, kv_smem[stage].k[part]);
      if (problem.scale <= 0.f)
        mul(s, s, problem.scale * kLog2E);
      right_fill(s, s, problem.kv_len - key);
      if (problem.is_causal)
        make_causal(s, s, share.row, key);
      row_max_in_lane(m_new, s);
      mul(m_new, m_new, late_scale);
      if (any_above(m_new, m, kSlack)) {
        max_over_lanes(m_new);
        max(m_new, m_new, m);
        sub(rescale, m, m_new);
        exp2(rescale, rescale);
        mul(l, l, rescale);
        mul_row(o, o, rescale);
        copy(m, m_new);
      }
      mul(s, s, late_scale);
      sub_row(s, s, m);
      exp2(s, s);
      row_sum_in_lane(l, s, l);
      copy(p_16, s);
      mma_AB(o, p_16, kv_smem[stage].v[part], o);
    }
  }
  sum_over_lanes(l);
  div_row(o, o, l);
  copy(o_16, o);
  block::store(gmem.o(), o_16, share.block_row);
  log(l, l);
  mul(m, m, kLn2);
  add(l, l, m);
  block::store(gmem.lse(), l, share.block_row);
}

template <typename T, int d> void launch_arrangement(const AttentionProblem &p, cudaStream_t stream) {
  using A = Arrangement<T, d>;
  require_rows_fit(p);
  if constexpr (A::parts == 0 || A::smem_bytes > 99 * 1024) {
    throw std::invalid_argument(
        "v4_tk_tiles: at this head_dim the options chosen do not fit into 99 KB of shared memory");
  } else {
    constexpr auto kernel = attend<T, d, A>;
    ladder::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, A::smem_bytes),
                  "v4_tk_tiles: shared memory");
    const dim3 grid = ladder::launch_grid(p.heads, (p.q_len + A::block_rows - 1) / A::block_rows, p.batch);
    const float late_scale = p.scale > 0.f ? p.scale * kLog2E : 1.f;
    kernel<<<grid, A::workers * 32, A::smem_bytes, stream>>>(p, late_scale);
    ladder::check(cudaGetLastError(), "v4_tk_tiles: launch");
  }
}

} // namespace

void ladder::launch(const AttentionProblem &p, cudaStream_t stream) {
  require_alignment(p, 16);
  dispatch_16_bit(p, [&](auto element) {
    dispatch_head_dim(p, [&](auto d) { launch_arrangement<decltype(element), d>(p, stream); });
  });
}
