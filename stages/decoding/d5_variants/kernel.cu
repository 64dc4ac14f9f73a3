// d5_variants: d4_one_launch with a sliding window, attention sinks and softcap.
//
// A window hides the keys before it: the splits begin at the first tile that a query sees. A sink is a key
// whose logit is known and whose value is 0: it belongs to the first split, where m starts at the sink and l
// at 1, and merges count it like any key. A softcap c makes the logits c tanh(s / c), before the mask.
#include <cfloat>
#include <cmath>

#include "ladder/arrivals.h"
#include "ladder/decoding.h"
#include "ladder/dispatch.h"
#include "ladder/merge_parts.h"
#include "ladder/workspace.h"
#include "tiles/tiles.h"

namespace {

using ladder::DecodingProblem;
using ladder::Parts;
using namespace tiles;

constexpr float kLog2E = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

/// Keys of a worker's tile.
constexpr int kTile = 16;

/// m before the first key. It is finite, so that s - m is -inf and not NaN for a row that has seen none.
constexpr float kLowest = -FLT_MAX;

/// Tile sizes for elements T, head dimension d and tiles of kRows rows of Q.
template <typename T, int d, int kRows> struct Arrangement {
  static constexpr int workers = d == 256 ? 2 : 4, threads = 32 * workers;
  static constexpr int rows = kRows, keys = kTile; // of a worker's tile
  static constexpr int step = workers * keys;      // keys of the block's tiles
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
};

/// The keys of a sequence are split into parts of kSplit keys, or of a multiple of it if these would be more
/// than kMostSplits. A warp merges the parts: each lane has the lse of one.
constexpr int kSplit = 1024, kMostSplits = 32;
static_assert(kMostSplits <= 32);
__host__ __device__ inline int keys_of_split(int length) {
  return (length <= kSplit ? 1 : (length + kSplit * kMostSplits - 1) / (kSplit * kMostSplits)) * kSplit;
}
/// The number of parts; a sequence without keys has one.
__host__ __device__ inline int splits_of(int length) {
  return length <= kSplit ? 1 : (length + keys_of_split(length) - 1) / keys_of_split(length);
}
/// The most parts of any sequence of up to `length` keys: a shorter sequence may have more than a longer one.
__host__ __device__ inline int most_splits(int length) {
  return min(kMostSplits, (length + kSplit - 1) / kSplit);
}

/// A work item: up to kRows rows of one group, whose heads' queries are consecutive rows; and the keys of one
/// split, `begin` to `end` - 1. `tile_row` is the first of the rows in the group. Items are numbered by
/// sequence, group, tile of rows and split. After the last item come items without a sequence.
struct Item {
  int sequence = -1, tile_number, kv_head, tile_row, split, splits, length, begin = 0, end = 0;
};

/// An item of a problem.
template <typename T, int d, int kRows> struct Share : Item {
  const DecodingProblem &p;

  /// Lane i adds up the items of every 32nd sequence from i on.
  __device__ static Item find(const DecodingProblem &p, int number) {
    const int items_of_split = p.kv_heads * tiles(p);
    for (int first = 0; first < p.batch; first += 32) {
      const int own = first + lane_id() < p.batch ? p.seqused_k[first + lane_id()] : -1;
      const int items = own < 0 ? 0 : splits_of(own - first_key(p, own)) * items_of_split;
      int end_item = items;
      for (int distance = 1; distance < 32; distance *= 2) {
        const int before = __shfl_up_sync(0xffffffffu, end_item, distance);
        end_item += lane_id() < distance ? 0 : before;
      }
      const unsigned after = __ballot_sync(0xffffffffu, number < end_item);
      if (after == 0) {
        number -= __shfl_sync(0xffffffffu, end_item, 31);
        continue;
      }
      const int lane = __ffs(after) - 1;
      number -= __shfl_sync(0xffffffffu, end_item - items, lane);
      Item found;
      found.sequence = first + lane;
      found.length = __shfl_sync(0xffffffffu, own, lane);
      const int hidden = first_key(p, found.length), seen = found.length - hidden;
      found.splits = splits_of(seen);
      found.split = number % found.splits;
      found.tile_number = number / found.splits;
      found.kv_head = found.tile_number / tiles(p);
      found.tile_row = found.tile_number % tiles(p) * kRows;
      found.begin = hidden + found.split * keys_of_split(seen);
      found.end = min(found.length, found.begin + keys_of_split(seen));
      return found;
    }
    return {};
  }

  /// The rows of the group, and the tiles that they take.
  __host__ __device__ static int group_rows(const DecodingProblem &p) {
    return p.heads / p.kv_heads * p.q_len;
  }
  __host__ __device__ static int tiles(const DecodingProblem &p) {
    return (group_rows(p) + kRows - 1) / kRows;
  }

  /// The number of rows of q, o and lse, and the number of rows before the first one.
  __device__ int rows() const { return min(kRows, group_rows(p) - tile_row); }
  __device__ int64_t first_row() const {
    return (int64_t(sequence) * p.kv_heads + kv_head) * group_rows(p) + tile_row;
  }
  /// The query head of a row; for out-of-range rows that of the last row.
  __device__ int head(int row) const {
    return min(p.heads - 1, (kv_head * group_rows(p) + tile_row + row) / p.q_len);
  }
  /// The query of a row.
  __device__ int query(int row) const { return (tile_row + row) % p.q_len; }
  /// The first key of the first tile that a query of a sequence sees.
  __device__ static int first_key(const DecodingProblem &p, int length) {
    return p.window < 0 ? 0 : max(0, length - p.q_len - p.window) / kTile * kTile;
  }
  /// The first key that a query sees; it may be negative.
  __device__ int begin_key(int query) const { return length - p.q_len + query - p.window; }
  /// Bit i: whether key + i, of a tile, is in the window of a row.
  __device__ uint64_t window_bits(int row, int key) const {
    return ~uint64_t(0) << min(max(begin_key(query(row)) - key, 0), kTile);
  }
  /// The key after the last one of this split that a query sees.
  __device__ int end_key(int query) const {
    return p.is_causal ? min(end, length - p.q_len + query + 1) : end;
  }

  __device__ GlobalMatrix<const T, d> q() const {
    return {static_cast<const T *>(p.q) + first_row() * d, rows()};
  }
  /// The page of a key, even of an out-of-range key. Without a table, each sequence is a page.
  __device__ int page(int key) const {
    if (p.block_table == nullptr)
      return sequence;
    return key < end ? p.block_table[int64_t(sequence) * p.table_width + key / p.page_size] : 0;
  }
  /// The head's keys, or values, from `key` on, in its page. Rows beyond the split read as zeros.
  __device__ StridedMatrix<const T, d> tile(const void *cache, const ladder::Strides &strides, int page,
                                            int key) const {
    const int row = p.block_table == nullptr ? key : key % p.page_size;
    const int64_t offset = page * strides.batch + kv_head * strides.head + row * strides.row;
    return {static_cast<const T *>(cache) + offset, end - key, int(strides.row)};
  }
};

template <typename T, int d, int kRows, RegisterVector Vec>
__device__ void start(const Share<T, d, kRows> &share, bool is_first, Vec &m, Vec &l);
template <typename A, RegisterTile O, RegisterVector Vec>
__device__ void merge_workers(typename A::KV (&kv)[A::workers], typename A::Stats (&stats)[A::workers], O &o,
                              Vec &m, Vec &l);
template <typename T, int d, int kRows, RegisterTile O, RegisterVector Vec>
__device__ bool write(const Share<T, d, kRows> &share, const Parts &parts, unsigned *arrivals, O &o, Vec &m,
                      Vec &l);

template <typename T, int d, typename A>
__global__ void __launch_bounds__(A::threads)
    attend(const __grid_constant__ DecodingProblem problem, const Parts parts, unsigned *arrivals) {
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
  int issued, pages; // tiles of an item, and the page of the lane's tile among every 32
  const auto prefetch = [&](const Work &share, int buffer, int key) {
    if (key < share.end) {
      if (issued % 32 == 0)
        pages = share.page(key + lane_id() * A::step);
      const int page = __shfl_sync(0xffffffffu, pages, issued++ % 32);
      load_async(kv_smem[buffer][worker].k, share.tile(problem.k_cache, problem.k_strides, page, key));
      load_async(kv_smem[buffer][worker].v, share.tile(problem.v_cache, problem.v_strides, page, key));
    }
    async_commit();
  };
  const auto load_first = [&](const Work &share) {
    issued = 0;
    for (int ahead = 0; ahead < A::buffers - 1; ahead++)
      prefetch(share, ahead, share.begin + worker * A::keys + ahead * A::step);
    if (share.sequence >= 0)
      load(q, share.q());
  };
  const auto attend_tiles = [&](const Work &share) {
    zero(o);
    start(share, worker == 0, m, l);
    int key = share.begin + worker * A::keys;
    for (int now = 0; key < share.end; key += A::step, now = (now + 1) % A::buffers) {
      async_wait<A::buffers - 2>();
      __syncwarp(); // these tiles have arrived, and all lanes have used the last ones
      prefetch(share, (now + A::buffers - 1) % A::buffers, key + (A::buffers - 1) * A::step);

      // S = Q K^T, scaled so that exp(s) becomes exp2(s); -inf where a row does not see a key.
      mma_ABt(s, q, kv_smem[now][worker].k);
      if (problem.softcap > 0.f) {
        mul(s, s, problem.scale / problem.softcap);
        tanh(s, s);
        mul(s, s, problem.softcap * kLog2E);
      } else {
        mul(s, s, problem.scale * kLog2E);
      }
      if (key + A::keys > share.end_key(0))
        keep_before(s, s, [&](int row) { return share.end_key(share.query(row)) - key; }, -INFINITY);
      if (problem.window >= 0 && key < share.begin_key(problem.q_len - 1))
        keep_bits(s, s, [&](int row) { return share.window_bits(row, key); }, -INFINITY);

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

  Item next = Work::find(problem, blockIdx.x);
  load_first(Work{next, problem});
  for (int number = blockIdx.x + gridDim.x; next.sequence >= 0; number += gridDim.x) {
    const Work share{next, problem};
    next = Work::find(problem, number);
    attend_tiles(share);
    __syncwarp(); // all lanes have used the last tiles
    // The next item's first tiles and Q are loaded while this one's parts are merged in the last buffer.
    load_first(Work{next, problem});
    merge_workers<A>(kv_smem[A::buffers - 1], stats, o, m, l);
    if (__syncthreads_or(worker == 0 && write(share, parts, arrivals, o, m, l)))
      ladder::merge_tile<T, d, A::workers>(problem, parts, share, worker);
  }
}

/// m and l before the first key: those of the sink for one worker of the first split, otherwise of no key.
template <typename T, int d, int kRows, RegisterVector Vec>
__device__ void start(const Share<T, d, kRows> &share, bool is_first, Vec &m, Vec &l) {
  const bool has_sink = share.p.sinks != nullptr && share.split == 0 && is_first;
  fill(l, has_sink ? 1.f : 0.f);
  fill(m, kLowest);
  for (int i = 0; has_sink && i < Vec::length / 16; i++)
    for (int slot = 0; slot < Vec::per_lane; slot++)
      m.values[i][slot] = fmaxf(kLowest, share.p.sinks[share.head(16 * i + Vec::entry(slot))] * kLog2E);
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
  block::sync(); // all have read the maxima, and used their tiles
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

/// Stores o and lse: as the result if there is one split, otherwise as a part of it. Returns whether all
/// parts of these rows are now stored.
template <typename T, int d, int kRows, RegisterTile O, RegisterVector Vec>
__device__ bool write(const Share<T, d, kRows> &share, const Parts &parts, unsigned *arrivals, O &o, Vec &m,
                      Vec &l) {
  const DecodingProblem &p = share.p;
  Vec divisor;
  add(divisor, l, FLT_MIN); // l is 0, or at least 1: so 0 / 0 becomes 0
  div_row(o, o, divisor);
  log(l, l);
  mul(m, m, kLn2);
  add(l, l, m);
  const int64_t all_rows = int64_t(p.batch) * p.heads * p.q_len;
  if (share.splits == 1) {
    RegTile<T, kRows, d> o_16;
    copy(o_16, o);
    store(GlobalMatrix<T, d>{static_cast<T *>(p.o) + share.first_row() * d, share.rows()}, o_16);
    store(GlobalVec<float>{p.lse + share.first_row(), share.rows()}, l);
    return false;
  } else {
    const int64_t row = share.split * all_rows + share.first_row();
    store(GlobalMatrix<float, d>{parts.o + row * d, share.rows()}, o);
    store(GlobalVec<float>{parts.lse + row, share.rows()}, l);
  }
  const int64_t tile = int64_t(share.sequence) * p.kv_heads * share.tiles(p) + share.tile_number;
  return ladder::is_last_arrival(arrivals + tile, share.splits);
}

/// The number of blocks that run at the same time.
template <typename A> int slots(const void *kernel) {
  int per_multiprocessor;
  ladder::check(
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_multiprocessor, kernel, A::threads, A::smem_bytes),
      "d5_variants: occupancy");
  return int(ladder::multiprocessors()) * per_multiprocessor;
}

template <typename T, int d, int kRows> void launch_rows(const DecodingProblem &p, cudaStream_t stream) {
  using A = Arrangement<T, d, kRows>;
  constexpr auto kernel = attend<T, d, A>;
  ladder::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, A::smem_bytes),
                "d5_variants: shared memory");
  const int64_t tiles = int64_t(p.batch) * p.kv_heads * Share<T, d, kRows>::tiles(p);
  const int64_t rows = int64_t(p.batch) * p.heads * p.q_len, splits = most_splits(p.kv_len);
  const ladder::Workspace<float> parts(splits * rows * (d + 1), stream, "d5_variants: workspace");
  const ladder::Arrivals arrivals(tiles, stream, "d5_variants: arrivals");
  const int blocks = min(tiles * splits, int64_t(slots<A>(reinterpret_cast<const void *>(kernel))));
  kernel<<<blocks, A::threads, A::smem_bytes, stream>>>(p, {parts.data(), parts.data() + splits * rows * d},
                                                        arrivals.data());
  ladder::check(cudaGetLastError(), "d5_variants: launch");
}

} // namespace

void ladder::launch(const DecodingProblem &p, cudaStream_t stream) {
  if (p.num_splits)
    ladder::refuse("d5_variants takes no num_splits: its splits have a fixed size");
  dispatch_16_bit(p, [&](auto element) {
    dispatch_head_dim<64, 128, 256>(p, [&](auto d) {
      if (d < 256 && p.heads / p.kv_heads * p.q_len > 16)
        launch_rows<decltype(element), d, d == 256 ? 16 : 32>(p, stream);
      else
        launch_rows<decltype(element), d, 16>(p, stream);
    });
  });
}
