// h1_silu: HSTU attention. No maximum, no sum, no rescaling: the weights are silu of the logits, and tiles of
// keys simply add up. What is new is the batch: sequences of any length, one behind the other.
#include "arrangement.h"
#include "ladder/dispatch.h"
#include "ladder/hstu.h"
#include "tiles/tiles.h"

namespace {

using ladder::HstuProblem;
using namespace tiles;

/// The rows of one sequence and head. Of k and v the first `keys` rows: what is past them reads as zero, and
/// nothing is fetched for it. silu(0) is 0, so rows of zeros need no mask.
template <typename T, int d> struct Sequence {
  const HstuProblem &p;
  int q_begin, q_len, k_begin, k_len;

  __device__ explicit Sequence(const HstuProblem &problem, int b = block_index().y)
      : p(problem), q_begin(uniform(p.cu_seqlens_q[b])), q_len(uniform(p.cu_seqlens_q[b + 1]) - q_begin),
        k_begin(uniform(p.cu_seqlens_k[b])), k_len(uniform(p.cu_seqlens_k[b + 1]) - k_begin) {}

  __device__ StridedMatrix<const T, d> q() const {
    return {static_cast<const T *>(p.q) + int64_t(q_begin) * p.q_stride + block_index().x * d, q_len,
            p.q_stride};
  }
  __device__ StridedMatrix<const T, d> k(int keys) const {
    return {static_cast<const T *>(p.k) + int64_t(k_begin) * p.k_stride + block_index().x * d, keys,
            p.k_stride};
  }
  __device__ StridedMatrix<const T, d> v(int keys) const {
    return {static_cast<const T *>(p.v) + int64_t(k_begin) * p.v_stride + block_index().x * d, keys,
            p.v_stride};
  }
  __device__ StridedMatrix<T, d> o() const {
    const int stride = p.heads * d;
    return {static_cast<T *>(p.o) + int64_t(q_begin) * stride + block_index().x * d, q_len, stride};
  }
};

template <typename T, int d, typename A>
__global__ void __launch_bounds__(A::workers * 32, A::blocks)
    attend(const __grid_constant__ HstuProblem problem) {
  using block = group<A::workers>;
  const Sequence<T, d> sequence(problem);
  // The last rows, which see the most keys, are the first to start.
  const int block_row = (gridDim.z - 1 - blockIdx.z) * A::block_rows,
            row = block_row + block::warp() * A::rows;
  if (block_row >= sequence.q_len)
    return;
  // Query i stands at position i + shift: the queries are the last of the sequence's tokens.
  const int shift = sequence.k_len - sequence.q_len;
  const int block_keys = min(sequence.k_len, block_row + A::block_rows + shift);
  const int keys = row < sequence.q_len ? min(sequence.k_len, row + A::rows + shift) : 0;
  const auto k_gmem = sequence.k(block_keys), v_gmem = sequence.v(block_keys);

  extern __shared__ __align__(128) unsigned char smem[];
  SharedAllocator allocator(smem);
  auto &kv_smem = allocator.allocate<typename A::Buffer, 2>();
  typename A::Query q = A::place_q(allocator, block::warp());

  RegTile<float, A::rows, A::keys> s;
  RegTile<T, A::rows, A::keys> p_16;
  RegTile<float, A::rows, d> o;
  RegTile<T, A::rows, d> o_16;
  load(q, sequence.q(), row);
  zero(o);

  const auto fetch = [&](typename A::Buffer &buffer, int key) {
    block::load_async(buffer.k, k_gmem, key);
    block::load_async(buffer.v, v_gmem, key);
    async_commit();
  };
  fetch(kv_smem[0], 0);
  for (int key = 0, turn = 0; key < block_keys; key += A::keys, turn ^= 1) {
    block::async_wait();
    fetch(kv_smem[turn ^ 1], key + A::keys);
    if (key >= keys)
      continue;
    mma_ABt(s, q, kv_smem[turn].k);
    silu(s, s, problem.alpha);
    make_causal(s, s, row + shift, key, 0.f);
    copy(p_16, s);
    mma_AB(o, p_16, kv_smem[turn].v, o);
  }
  mul(o, o, problem.inv_length);
  copy(o_16, o);
  // Read anew: through the main loop the registers belong to the tiles.
  block::store(Sequence<T, d>(problem).o(), o_16, (gridDim.z - 1 - block_index().z) * A::block_rows);
}

template <typename T, int d> void launch_arrangement(const HstuProblem &p, cudaStream_t stream) {
  using A = Arrangement<T, d>;
  if constexpr (A::smem_bytes > 99 * 1024) {
    throw std::invalid_argument(
        "h1_silu: at this head_dim the options chosen do not fit into 99 KB of shared memory");
  } else {
    constexpr auto kernel = attend<T, d, A>;
    ladder::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, A::smem_bytes),
                  "h1_silu: shared memory");
    const dim3 grid =
        ladder::launch_grid(p.heads, p.batch, (p.max_q_len + A::block_rows - 1) / A::block_rows);
    kernel<<<grid, A::workers * 32, A::smem_bytes, stream>>>(p);
    ladder::check(cudaGetLastError(), "h1_silu: launch");
  }
}

} // namespace

void ladder::launch(const HstuProblem &p, cudaStream_t stream) {
  dispatch_16_bit(p, [&](auto element) {
    dispatch_head_dim<32, 64, 128, 256>(p,
                                        [&](auto d) { launch_arrangement<decltype(element), d>(p, stream); });
  });
}
