// v8_tma: v7_wgmma, whose tiles are brought by TMA.
//
// With cp.async every thread computes addresses and asks for its 16 bytes of a tile. TMA has been told once
// what the tensor looks like; then one thread names a tile, and it comes as a whole, swizzled, with zeros
// where the tensor ends. Whether it has come is known to a barrier in shared memory, which counts its bytes,
// and another one counts the warps that are done with a buffer. Nobody waits for more than he needs.
#include <algorithm>
#include <cmath>

#include "ladder/attention.h"
#include "ladder/dispatch.h"
#include "ladder/head.h"
#include "tiles/ring.h"
#include "tiles/tensor_map.h"
#include "tiles/tiles.h"
#include "tiles/warpgroup.h"

// Options of stage.toml, set when building; 0 leaves them to Arrangement.
#ifndef WARPGROUPS
#define WARPGROUPS 0
#endif
#ifndef KEYS
#define KEYS 0
#endif
#ifndef BUFFERS
#define BUFFERS 2
#endif

namespace {

using ladder::AttentionProblem;
using namespace tiles;

constexpr float kLog2E = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

/// While the maximum has grown by less than a factor of 2^kSlack in the weights, the old one serves, as in
/// v6_lean. More slack than there, since four warps wait for the one that rescales.
constexpr float kSlack = 4.f;

/// A block's arrangement for elements T and head dimension d.
template <typename T, int d> struct Arrangement {
  static constexpr int warpgroups = WARPGROUPS ? WARPGROUPS : d == 128 ? 2 : 3;
  static constexpr int threads = 128 * warpgroups, block_rows = 64 * warpgroups;
  static constexpr int keys =
      KEYS ? KEYS : 128; // of a tile: O takes d / 2 registers, S and P 3 / 4 of the keys
  static constexpr int buffers = BUFFERS;

  using QTile = SharedTile<T, 64, d>;
  using KTile = SharedTile<T, keys, d>;
  struct Shared {
    Ring<QTile, 1, warpgroups> q;
    Ring<KTile, buffers> k, v;
  };
  struct Maps {
    tma::TensorMap<QTile> q;
    tma::TensorMap<KTile> k, v;
  };

  /// Whether O and S, later P, fit into a thread's registers, with 32 for the rest, and the tiles into shared
  /// memory.
  static constexpr bool fits =
      d / 2 + keys / 2 + 32 <= std::min(65536 / threads, 256) && sizeof(Shared) <= 227 * 1024;
};

/// What the rows of queries carry from tile to tile: the number that is taken off their logits, the sum of
/// their weights, and the factor by which O is to follow when the former has changed.
template <typename Vec> struct RowState {
  Vec m, l, rescale;
};

/// Turns a tile of logits into weights, P = exp2(S - m). Returns whether m has changed.
///
/// A positive scale can wait until after the maximum, to be one fused multiply-add with its subtraction: then
/// it is late_scale, which otherwise is 1.
template <RegisterTile S, typename Vec>
__device__ inline bool softmax(S &s, RowState<Vec> &rows, const AttentionProblem &problem, float late_scale,
                               int row, int key) {
  if (problem.scale <= 0.f)
    mul(s, s, problem.scale * kLog2E);
  right_fill(s, s, problem.kv_len - key);
  if (problem.is_causal)
    make_causal(s, s, row, key);
  Vec m_new;
  row_max_in_lane(m_new, s);
  mul(m_new, m_new, late_scale);
  const bool changed = any_above(m_new, rows.m, kSlack);
  if (changed) {
    max_over_lanes(m_new);
    max(m_new, m_new, rows.m);
    sub(rows.rescale, rows.m, m_new);
    exp2(rows.rescale, rows.rescale);
    mul(rows.l, rows.l, rows.rescale);
    copy(rows.m, m_new);
  }
  mul(s, s, late_scale);
  sub_row(s, s, rows.m);
  exp2(s, s);
  row_sum_in_lane(rows.l, s, rows.l);
  return changed;
}

template <typename T, int d, typename A>
__global__ void __launch_bounds__(A::threads, 1)
    attend(const __grid_constant__ typename A::Maps maps, const __grid_constant__ AttentionProblem problem,
           float late_scale) {
  using block = group<A::threads / 32>;
  const int block_row = (gridDim.y - 1 - blockIdx.y) * A::block_rows, row = block_row + 16 * block::warp();
  const int keys = problem.is_causal ? min(problem.kv_len, block_row + A::block_rows) : problem.kv_len;
  const int head = blockIdx.z * problem.heads + blockIdx.x,
            kv_head = blockIdx.z * problem.kv_heads + blockIdx.x / (problem.heads / problem.kv_heads);
  const Head<T, d> gmem(problem, keys);
  const bool producer = threadIdx.x == 0;

  extern __shared__ __align__(1024) unsigned char bytes[];
  auto &smem = *reinterpret_cast<typename A::Shared *>(bytes);
  if (producer) {
    smem.q.init(1);
    smem.k.init(block::warps);
    smem.v.init(block::warps);
    fence_barrier_init();
  }
  block::sync();

  RegTile<float, 16, A::keys> s;
  RegTile<T, 16, A::keys> p;
  RegTile<float, 16, d> o;
  RegTile<T, 16, d> o_16;
  RowState<typename RegTile<float, 16, d>::ColVec> rows;
  zero(o);
  zero(rows.l);
  neg_infty(rows.m);

  Turn<A::buffers> asked, now; // the next buffers to fill, and to use
  if (producer)
    smem.q.load_async({}, maps.q, block_row, head);
  const auto fetch = [&](int key) {
    if (producer && key < keys) {
      smem.k.wait_empty(asked);
      smem.k.load_async(asked, maps.k, key, kv_head);
      smem.v.wait_empty(asked);
      smem.v.load_async(asked, maps.v, key, kv_head);
      asked.advance();
    }
  };
  fetch(0);
  auto &q_smem = smem.q.wait_full({}, warpgroup::index());
  for (int key = 0; key < keys; key += A::keys) {
    fetch(key + A::keys);

    // S = Q K^T
    warpgroup::mma_ABt(s, q_smem, smem.k.wait_full(now));
    warpgroup::mma_wait(s);
    smem.k.release(now);

    // P = exp(S - m)
    if (softmax(s, rows, problem, late_scale, row, key))
      mul_row(o, o, rows.rescale);
    copy(p, s);

    // O += P V
    warpgroup::mma_AB(o, p, smem.v.wait_full(now), o);
    warpgroup::mma_wait(o);
    smem.v.release(now);
    now.advance();
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

template <typename T, int d> void launch_head_dim(const AttentionProblem &p, cudaStream_t stream) {
  using A = Arrangement<T, d>;
  require_rows_fit(p);
  if constexpr (!A::fits) {
    throw std::invalid_argument(
        "v8_tma: at this head_dim the options chosen do not fit into registers or shared memory");
  } else {
    constexpr auto kernel = attend<T, d, A>;
    constexpr int smem_bytes = sizeof(typename A::Shared);
    ladder::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem_bytes),
                  "v8_tma: shared memory");
    const dim3 grid = ladder::launch_grid(p.heads, (p.q_len + A::block_rows - 1) / A::block_rows, p.batch);
    const float late_scale = p.scale > 0.f ? p.scale * kLog2E : 1.f;
    const typename A::Maps maps{
        .q = tma::tensor_map<typename A::QTile>(p.q, p.q_len, p.batch * p.heads),
        .k = tma::tensor_map<typename A::KTile>(p.k, p.kv_len, p.batch * p.kv_heads),
        .v = tma::tensor_map<typename A::KTile>(p.v, p.kv_len, p.batch * p.kv_heads),
    };
    kernel<<<grid, A::threads, smem_bytes, stream>>>(maps, p, late_scale);
    ladder::check(cudaGetLastError(), "v8_tma: launch");
  }
}

} // namespace

void ladder::launch(const AttentionProblem &p, cudaStream_t stream) {
  require_alignment(p, 16);
  dispatch_16_bit(p, [&](auto element) {
    dispatch_head_dim<32, 64, 128>(p, [&](auto d) { launch_head_dim<decltype(element), d>(p, stream); });
  });
}
