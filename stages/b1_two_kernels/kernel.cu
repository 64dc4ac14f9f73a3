// b1_two_kernels: the gradients of FlashAttention-2, without an addition across blocks.
//
// The forward pass kept lse but not P: P = exp(scale q k^T - lse) is computed again, tile by tile. dK and dV
// are sums over the queries, so one kernel has the keys outside and the queries inside; dQ is a sum over the
// keys, so another has the queries outside and the keys inside. Each computes P and dP for itself: seven
// products instead of five, but no block adds to another's output.
#include <cmath>

#include "ladder/backward_rows.h"
#include "scalar.h"

namespace {

using ladder::AttentionBackwardProblem;
using ladder::RowStatistics;
using namespace tiles;

constexpr float kLog2E = 1.4426950408889634f;
constexpr int kWarps = 4, kBuffers = 2;

/// dK and dV: a warp has `rows` keys.
template <typename T, int d> struct KeysOutside {
  static constexpr int rows = d == 128 ? 16 : 32, block_keys = kWarps * rows; // dK and dV are in registers
  static constexpr int queries = d == 64 ? 32 : 64;                           // a tile
  struct Resident {
    SharedTile<T, block_keys, d> k, v;
  };
  struct Buffer {
    SharedTile<T, queries, d> q, d_o;
    SharedVec<float, queries> lse, delta;
  };
  static constexpr int smem_bytes =
      SharedAllocator::bytes<Resident> + SharedAllocator::bytes<Buffer, kBuffers>;
};

/// dQ: a warp has `rows` queries.
template <typename T, int d> struct QueriesOutside {
  static constexpr int rows = 32, block_queries = kWarps * rows;
  static constexpr int keys = d == 128 ? 32 : 64; // a tile
  struct Resident {
    SharedTile<T, block_queries, d> q, d_o;
  };
  struct Buffer {
    SharedTile<T, keys, d> k, v;
  };
  static constexpr int smem_bytes =
      SharedAllocator::bytes<Resident> + SharedAllocator::bytes<Buffer, kBuffers>;
};

template <typename T, int d>
__global__ void __launch_bounds__(kWarps * 32)
    gradients_of_keys(const __grid_constant__ AttentionBackwardProblem p, const RowStatistics statistics) {
  using A = KeysOutside<T, d>;
  using block = group<kWarps>;
  const int block_key = block_index().x * A::block_keys, warp_key = block::warp() * A::rows;
  const int group_heads = p.heads / p.kv_heads;
  const int kv_head = blockIdx.z * p.kv_heads + blockIdx.y;

  extern __shared__ __align__(128) unsigned char smem[];
  SharedAllocator allocator(smem);
  auto &resident = allocator.allocate<typename A::Resident>();
  auto &buffers = allocator.allocate<typename A::Buffer, kBuffers>();

  // For each head that reads this block's keys, the query tiles that see one of them, last ones first.
  const int tiles = (p.q_len + A::queries - 1) / A::queries;
  const int seen_by = max(0, tiles - (p.is_causal ? block_key / A::queries : 0));
  const auto query_head = [&](int step) { return kv_head * group_heads + step / seen_by; };
  const auto first_query = [&](int step) { return (tiles - 1 - step % seen_by) * A::queries; };
  const auto fetch = [&](int step) {
    if (step < group_heads * seen_by) {
      const ladder::BackwardHead<T, d> gmem{p, query_head(step), kv_head};
      auto &buffer = buffers[step % kBuffers];
      block::load_async(buffer.q, gmem.q(), first_query(step));
      block::load_async(buffer.d_o, gmem.d_o(), first_query(step));
      block::load_async(buffer.lse, statistics.lse_of(query_head(step)), first_query(step));
      block::load_async(buffer.delta, statistics.delta_of(query_head(step)), first_query(step));
    }
    async_commit();
  };

  // All transposed, keys by queries: P^T and dS^T leave their products as first factors of the next ones.
  RegTile<float, A::rows, A::queries> p_t, ds_t;
  RegTile<T, A::rows, A::queries> p_16, ds_16;
  typename RegTile<float, A::rows, A::queries>::RowVec lse, delta;
  RegTile<float, A::rows, d> dk, dv;
  RegTile<T, A::rows, d> out;
  zero(dk);
  zero(dv);

  block::load_async(resident.k, ladder::BackwardHead<T, d>{p, 0, kv_head}.k(), block_key);
  block::load_async(resident.v, ladder::BackwardHead<T, d>{p, 0, kv_head}.v(), block_key);
  fetch(0);
  for (int step = 0; step < group_heads * seen_by; step++) {
    const auto &buffer = buffers[step % kBuffers];
    block::async_wait();
    fetch(step + 1);
    zero(p_t);
    mma_ABt(p_t, part<A::rows, d>(resident.k, warp_key), buffer.q, p_t);
    load(lse, buffer.lse);
    mul(p_t, p_t, p.scale * kLog2E);
    sub_col(p_t, p_t, lse);
    if (p.is_causal)
      make_causal_t(p_t, p_t, block_key + warp_key, first_query(step));
    exp2(p_t, p_t);
    copy(p_16, p_t);
    mma_AB(dv, p_16, buffer.d_o, dv);
    zero(ds_t);
    mma_ABt(ds_t, part<A::rows, d>(resident.v, warp_key), buffer.d_o, ds_t);
    load(delta, buffer.delta);
    sub_col(ds_t, ds_t, delta);
    mul(ds_t, ds_t, p_t);
    copy(ds_16, ds_t);
    mma_AB(dk, ds_16, buffer.q, dk);
  }
  const ladder::BackwardHead<T, d> gmem{p, 0, kv_head};
  copy(out, dv);
  store(gmem.dv(), out, block_key + warp_key);
  mul(dk, dk, p.scale);
  copy(out, dk);
  store(gmem.dk(), out, block_key + warp_key);
}

template <typename T, int d>
__global__ void __launch_bounds__(kWarps * 32)
    gradient_of_queries(const __grid_constant__ AttentionBackwardProblem p, const RowStatistics statistics) {
  using A = QueriesOutside<T, d>;
  using block = group<kWarps>;
  const int block_query = (gridDim.x - 1 - blockIdx.x) * A::block_queries,
            warp_query = block::warp() * A::rows;
  const int keys = p.is_causal ? min(p.kv_len, block_query + A::block_queries) : p.kv_len;
  const int64_t query_head = int64_t(blockIdx.z) * p.heads + blockIdx.y;
  const int64_t kv_head = int64_t(blockIdx.z) * p.kv_heads + blockIdx.y / (p.heads / p.kv_heads);
  const ladder::BackwardHead<T, d> gmem{p, query_head, kv_head};

  extern __shared__ __align__(128) unsigned char smem[];
  SharedAllocator allocator(smem);
  auto &resident = allocator.allocate<typename A::Resident>();
  auto &buffers = allocator.allocate<typename A::Buffer, kBuffers>();
  const auto fetch = [&](int key) {
    auto &buffer = buffers[key / A::keys % kBuffers];
    block::load_async(buffer.k, gmem.k(), key);
    block::load_async(buffer.v, gmem.v(), key);
    async_commit();
  };

  RegTile<float, A::rows, A::keys> weights, ds;
  RegTile<T, A::rows, A::keys> ds_16;
  typename RegTile<float, A::rows, A::keys>::ColVec lse, delta;
  RegTile<float, A::rows, d> dq;
  RegTile<T, A::rows, d> out;
  zero(dq);
  load(lse, statistics.lse_of(query_head), block_query + warp_query);
  load(delta, statistics.delta_of(query_head), block_query + warp_query);

  block::load_async(resident.q, gmem.q(), block_query);
  block::load_async(resident.d_o, gmem.d_o(), block_query);
  fetch(0);
  for (int key = 0; key < keys; key += A::keys) {
    const auto &buffer = buffers[key / A::keys % kBuffers];
    block::async_wait();
    fetch(key + A::keys);
    zero(weights);
    mma_ABt(weights, part<A::rows, d>(resident.q, warp_query), buffer.k, weights);
    mul(weights, weights, p.scale * kLog2E);
    sub_row(weights, weights, lse);
    right_fill(weights, weights, p.kv_len - key);
    if (p.is_causal)
      make_causal(weights, weights, block_query + warp_query, key);
    exp2(weights, weights);
    zero(ds);
    mma_ABt(ds, part<A::rows, d>(resident.d_o, warp_query), buffer.v, ds);
    sub_row(ds, ds, delta);
    mul(ds, ds, weights);
    copy(ds_16, ds);
    mma_AB(dq, ds_16, buffer.k, dq);
  }
  mul(dq, dq, p.scale);
  copy(out, dq);
  store(gmem.dq(), out, block_query + warp_query);
}

template <typename T, int d> void launch_tiles(const AttentionBackwardProblem &p, cudaStream_t stream) {
  RowStatistics statistics(p);
  const size_t rows = size_t(p.batch) * p.heads * statistics.padded_len;
  const ladder::Workspace<float> workspace(2 * rows, stream, "b1_two_kernels: workspace");
  statistics.lse_log2 = workspace.data();
  statistics.delta = workspace.data() + rows;
  ladder::row_statistics<T, d>
      <<<ladder::row_grid<T, d>(rows), ladder::kRowThreads, 0, stream>>>(p, statistics);
  ladder::check(cudaGetLastError(), "b1_two_kernels: launch");

  using K = KeysOutside<T, d>;
  using Q = QueriesOutside<T, d>;
  static_assert(K::smem_bytes <= 99 * 1024 && Q::smem_bytes <= 99 * 1024);
  constexpr auto of_keys = gradients_of_keys<T, d>;
  constexpr auto of_queries = gradient_of_queries<T, d>;
  ladder::check(cudaFuncSetAttribute(of_keys, cudaFuncAttributeMaxDynamicSharedMemorySize, K::smem_bytes),
                "b1_two_kernels: shared memory");
  ladder::check(cudaFuncSetAttribute(of_queries, cudaFuncAttributeMaxDynamicSharedMemorySize, Q::smem_bytes),
                "b1_two_kernels: shared memory");
  const dim3 key_grid =
      ladder::launch_grid((p.kv_len + K::block_keys - 1) / K::block_keys, p.kv_heads, p.batch);
  const dim3 query_grid =
      ladder::launch_grid((p.q_len + Q::block_queries - 1) / Q::block_queries, p.heads, p.batch);
  of_keys<<<key_grid, kWarps * 32, K::smem_bytes, stream>>>(p, statistics);
  ladder::check(cudaGetLastError(), "b1_two_kernels: launch");
  of_queries<<<query_grid, kWarps * 32, Q::smem_bytes, stream>>>(p, statistics);
  ladder::check(cudaGetLastError(), "b1_two_kernels: launch");
}

} // namespace

void ladder::launch(const AttentionBackwardProblem &p, cudaStream_t stream) {
  if (p.dtype == DType::f32)
    return dispatch_head_dim<32, 64, 128>(p, [&](auto) { launch_scalar(p, stream); });
  require_alignment(p, 16);
  dispatch_16_bit(p, [&](auto element) {
    dispatch_head_dim<32, 64, 128>(p, [&](auto d) { launch_tiles<decltype(element), d>(p, stream); });
  });
}
