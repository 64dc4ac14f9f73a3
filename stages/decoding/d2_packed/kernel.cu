// d2_packed: d1_split_kv with the query heads of a group in one tile.
//
// The heads of a GQA group read the same keys, and one head fills only one of the 16 rows of a tile of Q.
// With all heads of the group in the tile, a block reads each key once for the whole group. There are fewer
// blocks, so each loads more tiles ahead.
#include <cfloat>
#include <cmath>

#include "ladder/decoding.h"
#include "ladder/dispatch.h"
#include "ladder/workspace.h"
#include "tiles/tiles.h"

namespace {

using ladder::DecodingProblem;
using namespace tiles;

constexpr float kLog2E = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

/// m before the first key. It is finite, so that s - m is -inf and not NaN for a row that has seen none.
constexpr float kLowest = -FLT_MAX;

/// Tile sizes for elements T, head dimension d and tiles of kRows rows of Q.
template <typename T, int d, int kRows> struct Arrangement {
  static constexpr int workers = d == 256 ? 2 : 4, threads = 32 * workers;
  static constexpr int rows = kRows, keys = 16; // of a worker's tile
  static constexpr int step = workers * keys;   // keys of the block's tiles
  static constexpr int buffers = 3;
  struct KV {
    SharedTile<T, keys, d> k, v;
  };
  /// A worker's part of 16 rows of O, in its last buffer after its last use.
  using Partial = SharedTile<float, 16, d>;
  using Stats = SharedVec<float, rows>;
  static constexpr int tile_bytes = SharedAllocator::bytes<KV[workers], buffers>;
  static constexpr int smem_bytes = tile_bytes + SharedAllocator::bytes<Stats, workers>;
  static_assert(sizeof(Partial) == sizeof(KV));
  static constexpr int blocks = 227 * 1024 / (smem_bytes + 1024); // per SM of an H200
};

/// The outputs of the splits: o (splits, batch, heads, q_len, d) and lse (splits, batch, heads, q_len) in
/// fp32, each for the keys of its split alone.
struct Parts {
  float *o, *lse;
};

/// The work of a block: up to kRows rows of one group, whose heads' queries are consecutive rows; and the
/// keys of one split, `begin` to `end` - 1. A sequence's steps of keys are distributed evenly: the last
/// splits may have none.
template <typename T, int d, int kRows> struct Share {
  const DecodingProblem &p;
  int length, begin, end;

  __device__ Share(const DecodingProblem &problem, int step)
      : p(problem), length(uniform(p.seqused_k[blockIdx.z])) {
    const int steps = (length + step - 1) / step, of_split = (steps + gridDim.x - 1) / gridDim.x;
    begin = min(length, int(blockIdx.x) * of_split * step);
    end = min(length, begin + of_split * step);
  }

  /// The rows of the group, and the tiles that they take.
  __host__ __device__ static int group_rows(const DecodingProblem &p) {
    return p.heads / p.kv_heads * p.q_len;
  }
  __host__ __device__ static int tiles(const DecodingProblem &p) {
    return (group_rows(p) + kRows - 1) / kRows;
  }
  __device__ int kv_head() const { return blockIdx.y / tiles(p); }
  __device__ int tile_row() const { return blockIdx.y % tiles(p) * kRows; }

  /// The number of rows of q, o and lse, and the number of rows before the first one.
  __device__ int rows() const { return min(kRows, group_rows(p) - tile_row()); }
  __device__ int64_t first_row() const {
    return (int64_t(blockIdx.z) * p.kv_heads + kv_head()) * group_rows(p) + tile_row();
  }
  /// The query of a row.
  __device__ int query(int row) const { return (tile_row() + row) % p.q_len; }
  /// One past the last key of this split that a query sees.
  __device__ int end_key(int query) const {
    return p.is_causal ? min(end, length - p.q_len + query + 1) : end;
  }

  __device__ GlobalMatrix<const T, d> q() const {
    return {static_cast<const T *>(p.q) + first_row() * d, rows()};
  }
  /// The head's keys, or values, from `key` on. Rows beyond the split read as zeros.
  __device__ StridedMatrix<const T, d> tile(const void *cache, const ladder::Strides &strides,
                                            int key) const {
    const int64_t offset = blockIdx.z * strides.batch + kv_head() * strides.head + key * strides.row;
    return {static_cast<const T *>(cache) + offset, end - key, int(strides.row)};
  }
};

template <typename A, RegisterTile O, RegisterVector Vec>
__device__ void merge_workers(typename A::KV (&kv)[A::workers], typename A::Stats (&stats)[A::workers], O &o,
                              Vec &m, Vec &l);
template <typename T, int d, int kRows, RegisterTile O, RegisterVector Vec>
__device__ void write(const Share<T, d, kRows> &share, const Parts &parts, O &o, Vec &m, Vec &l);

template <typename T, int d, typename A>
__global__ void __launch_bounds__(A::threads)
    attend(const __grid_constant__ DecodingProblem problem, const Parts parts) {
  using Work = Share<T, d, A::rows>;

  extern __shared__ __align__(128) unsigned char smem[];
  SharedAllocator allocator(smem);
  auto &kv_smem = allocator.allocate<typename A::KV[A::workers], A::buffers>();
  auto &stats = allocator.allocate<typename A::Stats, A::workers>();
  const int worker = group<A::workers>::warp();

  RegTile<T, A::rows, d> q;
  RegTile<float, A::rows, A::keys> s;
  RegTile<T, A::rows, A::keys> p_16;
  RegTile<float, A::rows, d> o;
  typename RegTile<float, A::rows, d>::ColVec m, m_new, rescale, l;
  const auto prefetch = [&](const Work &share, int buffer, int key) {
    if (key < share.end) {
      load_async(kv_smem[buffer][worker].k, share.tile(problem.k_cache, problem.k_strides, key));
      load_async(kv_smem[buffer][worker].v, share.tile(problem.v_cache, problem.v_strides, key));
    }
    async_commit();
  };
  const auto load_first = [&](const Work &share) {
    for (int ahead = 0; ahead < A::buffers - 1; ahead++)
      prefetch(share, ahead, share.begin + worker * A::keys + ahead * A::step);
    load(q, share.q());
  };
  const auto attend_tiles = [&](const Work &share) {
    zero(o);
    zero(l);
    fill(m, kLowest);
    int key = share.begin + worker * A::keys;
    for (int now = 0; key < share.end; key += A::step, now = (now + 1) % A::buffers) {
      async_wait<A::buffers - 2>();
      __syncwarp(); // these tiles have arrived, and all lanes have used the last ones
      prefetch(share, (now + A::buffers - 1) % A::buffers, key + (A::buffers - 1) * A::step);

      // S = Q K^T, scaled so that exp(s) becomes exp2(s); -inf where a row does not see a key.
      mma_ABt(s, q, kv_smem[now][worker].k);
      mul(s, s, problem.scale * kLog2E);
      if (key + A::keys > share.end_key(0))
        keep_before(s, s, [&](int row) { return share.end_key(share.query(row)) - key; }, -INFINITY);

      // P = exp(S - m) with the running maximum m. Sums under the old maximum are rescaled.
      row_max(m_new, s, m);
      sub(rescale, m, m_new);
      exp2(rescale, rescale);
      mul(l, l, rescale);
      mul_row(o, o, rescale);
      copy(m, m_new);
      sub_row(s, s, m);
      exp2(s, s);
      row_sum(l, s, l);

      // O += P V
      copy(p_16, s);
      mma_AB(o, p_16, kv_smem[now][worker].v, o);
    }
  };

  const Work share(problem, A::step);
  load_first(share);
  attend_tiles(share);
  merge_workers<A>(kv_smem[A::buffers - 1], stats, o, m, l);
  if (worker == 0)
    write(share, parts, o, m, l);
}

/// Merges the workers' O, m and l into the first worker's.
template <typename A, RegisterTile O, RegisterVector Vec>
__device__ void merge_workers(typename A::KV (&kv)[A::workers], typename A::Stats (&stats)[A::workers], O &o,
                              Vec &m, Vec &l) {
  using block = group<A::workers>;
  auto &parts = reinterpret_cast<typename A::Partial(&)[A::workers]>(kv);
  Vec other, largest = m;
  store(stats[block::warp()], m);
  block::sync();
  for (int worker = 0; worker < A::workers; worker++) {
    load(other, stats[worker]);
    max(largest, largest, other);
  }
  sub(m, m, largest);
  exp2(m, m);
  mul(l, l, m);
  mul_row(o, o, m);
  copy(m, largest);
  block::sync(); // all have read the maxima and finished with their tiles
  store(stats[block::warp()], l);
#pragma unroll // otherwise O would be in local memory
  for (auto &rows : o.pairs) {
    block::sum_to_first(reinterpret_cast<RegTile<float, 16, O::cols> &>(rows), parts);
    block::sync();
  }
  for (int worker = 1; worker < A::workers; worker++) {
    load(other, stats[worker]);
    add(l, l, other); // the first worker's
  }
}

/// Stores o and lse: as the result if there is one split, otherwise as a part of it.
template <typename T, int d, int kRows, RegisterTile O, RegisterVector Vec>
__device__ void write(const Share<T, d, kRows> &share, const Parts &parts, O &o, Vec &m, Vec &l) {
  const DecodingProblem &p = share.p;
  Vec divisor;
  add(divisor, l, FLT_MIN); // l is 0 or at least 1: changes only 0 / 0, to 0
  div_row(o, o, divisor);
  log(l, l);
  mul(m, m, kLn2);
  add(l, l, m);
  const int64_t all_rows = int64_t(p.batch) * p.heads * p.q_len;
  if (gridDim.x == 1) {
    RegTile<T, kRows, d> o_16;
    copy(o_16, o);
    store(GlobalMatrix<T, d>{static_cast<T *>(p.o) + share.first_row() * d, share.rows()}, o_16);
    store(GlobalVec<float>{p.lse + share.first_row(), share.rows()}, l);
  } else {
    const int64_t row = blockIdx.x * all_rows + share.first_row();
    store(GlobalMatrix<float, d>{parts.o + row * d, share.rows()}, o);
    store(GlobalVec<float>{parts.lse + row, share.rows()}, l);
  }
}

/// Merges a row of the parts: o = sum of exp(lse_s - lse) o_s over the splits s, in this order, and lse =
/// log(sum of exp(lse_s)). Called by a warp.
template <typename T, int d>
__device__ void merge_row(const DecodingProblem &p, const Parts &parts, int64_t row, int splits) {
  constexpr int columns = d / 32; // of a lane
  struct __align__(columns % 4 == 0 ? 16 : 8) Floats {
    float x[columns];
  };
  const int64_t all_rows = int64_t(p.batch) * p.heads * p.q_len;
  float largest = kLowest, sum = 0.f;
#pragma unroll 8
  for (int split = 0; split < splits; split++)
    largest = fmaxf(largest, parts.lse[split * all_rows + row]);
  Floats o = {};
#pragma unroll 8
  for (int split = 0; split < splits; split++) {
    const int64_t place = split * all_rows + row;
    const float weight = ladder::ptx::exp2_approx((parts.lse[place] - largest) * kLog2E);
    const Floats part = *reinterpret_cast<const Floats *>(parts.o + place * d + lane_id() * columns);
    sum += weight;
    for (int i = 0; i < columns; i++)
      o.x[i] += weight * part.x[i];
  }
  const float inverse = 1.f / (sum + FLT_MIN); // sum is 0, or at least 1
  T *out = static_cast<T *>(p.o) + row * d + lane_id() * columns;
  for (int i = 0; i < columns; i += 2)
    *reinterpret_cast<uint32_t *>(out + i) = pack<T>({o.x[i] * inverse, o.x[i + 1] * inverse});
  if (lane_id() == 0)
    p.lse[row] = largest + logf(sum);
}

constexpr int kMergers = 4; // warps of a block that merges, a row each

template <typename T, int d>
__global__ void __launch_bounds__(32 * kMergers)
    merge(const __grid_constant__ DecodingProblem problem, const Parts parts, int splits) {
  const int64_t row = int64_t(blockIdx.x) * kMergers + threadIdx.x / 32;
  if (row < int64_t(problem.batch) * problem.heads * problem.q_len)
    merge_row<T, d>(problem, parts, row, splits);
}

/// The number of splits for `blocks` blocks per split, whose sequences have up to `steps` steps of keys,
/// where `slots` blocks run at a time. Blocks run in waves, so splits cost
///   waves(blocks * splits) * (steps per split + kOverhead)
/// steps: a last wave that is nearly empty costs as much as a full one. Returns the fewest splits among the
/// cheapest.
int splits_for(int64_t blocks, int steps, int slots) {
  constexpr int kOverhead = 2; // steps per block: the first tiles' latency, and its part of the merge
  int best = 1;
  int64_t least = INT64_MAX;
  for (int splits = 1; splits <= min(steps, slots); splits++) {
    const int64_t waves = (blocks * splits + slots - 1) / slots;
    const int64_t cost = waves * ((steps + splits - 1) / splits + kOverhead);
    if (cost < least) {
      least = cost;
      best = splits;
    }
  }
  return best;
}

template <typename T, int d, int kRows> void launch_rows(const DecodingProblem &p, cudaStream_t stream) {
  using A = Arrangement<T, d, kRows>;
  constexpr auto kernel = attend<T, d, A>;
  ladder::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, A::smem_bytes),
                "d2_packed: shared memory");
  const int64_t heads = p.kv_heads * Share<T, d, kRows>::tiles(p),
                rows = int64_t(p.batch) * p.heads * p.q_len;
  const int steps = (p.kv_len + A::step - 1) / A::step;
  const int splits =
      p.num_splits ? p.num_splits : splits_for(p.batch * heads, steps, A::blocks * ladder::multiprocessors());
  const dim3 grid = ladder::launch_grid(splits, heads, p.batch);
  if (splits == 1) {
    kernel<<<grid, A::threads, A::smem_bytes, stream>>>(p, Parts{});
  } else {
    const ladder::Workspace<float> parts(splits * rows * (d + 1), stream, "d2_packed: workspace");
    const Parts of_splits{parts.data(), parts.data() + splits * rows * d};
    kernel<<<grid, A::threads, A::smem_bytes, stream>>>(p, of_splits);
    merge<T, d><<<ladder::launch_grid((rows + kMergers - 1) / kMergers, 1), 32 * kMergers, 0, stream>>>(
        p, of_splits, splits);
  }
  ladder::check(cudaGetLastError(), "d2_packed: launch");
}

} // namespace

void ladder::launch(const DecodingProblem &p, cudaStream_t stream) {
  if (p.block_table != nullptr)
    ladder::refuse("d2_packed takes no pages");
  dispatch_16_bit(p, [&](auto element) {
    dispatch_head_dim<64, 128, 256>(p, [&](auto d) {
      if (d < 256 && p.heads / p.kv_heads * p.q_len > 16)
        launch_rows<decltype(element), d, d == 256 ? 16 : 32>(p, stream);
      else
        launch_rows<decltype(element), d, 16>(p, stream);
    });
  });
}
