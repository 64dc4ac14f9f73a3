// v2_warp_mma: the FlashAttention-2 of v1b_fa2_loops on tensor cores.
//
// One block does kWarps * 16 query rows of one (batch, head). Its warps share each tile of K and V and
// nothing else: a warp owns 16 query rows, and their O, l and m stay in its registers from the first key to
// the last.
//
// The tensor cores want fragments, and softmax is written for rows: several lanes hold a row of S together,
// in order. So S and P go through shared memory, where tiles turn one into the other (v4 computes on
// fragments):
//   q (16 bit)  rows -> A fragments        s (fp32)    accumulators -> rows, for softmax
//   k (16 bit)  rows -> B fragments        p (16 bit)  rows -> A fragments
//   v (16 bit)  rows -> B fragments        o (16 bit)  accumulators -> rows, for wide stores to global memory
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "ladder/attention.h"
#include "ladder/dispatch.h"
#include "ladder/ptx.h"

namespace {

using ladder::AttentionProblem;
using namespace ladder::ptx;

constexpr int kWarpRows = 16; // query rows a warp: the height of an mma
constexpr float kLog2E = 1.4426950408889634f;

// A row-major tile in shared memory. Every access to a tile goes through at().
template <typename T, int kRows, int kCols> struct Tile {
  static constexpr int bytes = kRows * kCols * sizeof(T);
  uint32_t smem; // the address of its first element

  __device__ uint32_t at(int row, int col) const { return smem + (row * kCols + col) * sizeof(T); }
};

template <typename T, int kHeadDim, int kWarps, int kBc> struct Tiles {
  using Q = Tile<T, kWarpRows, kHeadDim>;
  using K = Tile<T, kBc, kHeadDim>;
  using V = Tile<T, kBc, kHeadDim>;
  using S = Tile<float, kWarpRows, kBc>;
  using P = Tile<T, kWarpRows, kBc>;
  using O = Tile<T, kWarpRows, kHeadDim>;
  // A warp's q, s and o take turns in the same bytes: q is in registers before there is an s, o comes last.
  static constexpr int qso_bytes = std::max({Q::bytes, S::bytes, O::bytes});
  static constexpr int smem_bytes = K::bytes + V::bytes + kWarps * (qso_bytes + P::bytes);
};

// Fills a tile from a row-major matrix of the same width, 16 bytes a thread. Rows past valid_rows become 0.
template <int kThreads, typename T, int kRows, int kCols>
__device__ void load_tile(Tile<T, kRows, kCols> tile, const T *gmem, int valid_rows, int thread) {
  constexpr int width = 16 / sizeof(T), step = kThreads * width / kCols;
  const int row = thread * width / kCols, col = thread * width % kCols;
  gmem += row * kCols + col;
#pragma unroll
  for (int r = 0; r < kRows; r += step) {
    const uint4 zeros = {};
    store_shared(tile.at(row + r, col),
                 row + r < valid_rows ? *reinterpret_cast<const uint4 *>(gmem + r * kCols) : zeros);
  }
}

// The way back, by one warp. Rows past valid_rows stay unwritten.
template <typename T, int kRows, int kCols>
__device__ void store_tile(T *gmem, Tile<T, kRows, kCols> tile, int valid_rows, int lane) {
  constexpr int width = 16 / sizeof(T), step = 32 * width / kCols;
  const int row = lane * width / kCols, col = lane * width % kCols;
  gmem += row * kCols + col;
#pragma unroll
  for (int r = 0; r < kRows; r += step)
    if (row + r < valid_rows)
      *reinterpret_cast<uint4 *>(gmem + r * kCols) = load_shared<uint4>(tile.at(row + r, col));
}

template <typename T, int kHeadDim, int kWarps, int kBc>
__global__ void __launch_bounds__(kWarps * 32) flash_attention_2(const AttentionProblem p) {
  static_assert(kBc % 64 == 0, "16 lanes share a row of s, each reads 4 columns at a time");
  using Tiles = Tiles<T, kHeadDim, kWarps, kBc>;
  constexpr int d = kHeadDim, kThreads = kWarps * 32, kBr = kWarps * kWarpRows;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int head = blockIdx.y, batch = blockIdx.z;
  const int block_row = blockIdx.x * kBr, warp_row = block_row + warp * kWarpRows;

  const int64_t first_row = (int64_t(batch) * p.heads + head) * p.q_len + warp_row;
  const int64_t first_key = (int64_t(batch) * p.kv_heads + head / (p.heads / p.kv_heads)) * p.kv_len;
  const T *q_gmem = static_cast<const T *>(p.q) + first_row * d;
  const T *k_gmem = static_cast<const T *>(p.k) + first_key * d;
  const T *v_gmem = static_cast<const T *>(p.v) + first_key * d;

  extern __shared__ __align__(128) unsigned char smem[];
  const uint32_t block_smem = shared_address(smem);
  const uint32_t warp_smem =
      block_smem + Tiles::K::bytes + Tiles::V::bytes + warp * (Tiles::qso_bytes + Tiles::P::bytes);
  const typename Tiles::K k_smem{block_smem};
  const typename Tiles::V v_smem{block_smem + Tiles::K::bytes};
  const typename Tiles::Q q_smem{warp_smem};
  const typename Tiles::S s_smem{warp_smem};
  const typename Tiles::O o_smem{warp_smem};
  const typename Tiles::P p_smem{warp_smem + Tiles::qso_bytes};

  // Where this lane reads and writes. In an accumulator: rows frag_row and frag_row + 8, columns frag_col and
  // + 1 of every 8. In softmax, two rows a step: row t for the lanes 0-15, row t + 8 for the lanes 16-31;
  // four columns of every 64.
  const int frag_row = lane / 4, frag_col = lane % 4 * 2;
  const int half_row = lane / 16 * 8, half_col = lane % 16 * 4;
  // Which row of the four 8x8 tiles of an ldmatrix this lane gives the address of. As operand A (q, p) or,
  // transposed, as two operands B (v) they come upper left, lower left, upper right, lower right; as two
  // operands B (k) upper left, upper right, lower left, lower right.
  const int a_row = lane % 16, a_col = lane / 16 * 8;
  const int b_row = lane / 16 * 8 + lane % 8, b_col = lane / 8 % 2 * 8;

  load_tile<32>(q_smem, q_gmem, p.q_len - warp_row, lane);
  __syncwarp();
  uint32_t q_rmem[d / 16][4];
#pragma unroll
  for (int k = 0; k < d; k += 16)
    ldmatrix_x4(q_rmem[k / 16], q_smem.at(a_row, k + a_col));

  float o_rmem[d / 8][4] = {};
  float m_rmem = -INFINITY, l_rmem = 0.f; // of row half_row + lane % 8

  // Row half_row + t sees the keys below min(kv_len, key_limit + t).
  const int key_limit = p.is_causal ? warp_row + half_row + 1 : p.kv_len;
  // Causal: no row of this block sees a key beyond its own last row, so these tiles are skipped.
  const int kv_end = p.is_causal ? min(p.kv_len, block_row + kBr) : p.kv_len;
  for (int kv0 = 0; kv0 < kv_end; kv0 += kBc) {
    __syncthreads(); // all warps are done with the last tiles
    load_tile<kThreads>(k_smem, k_gmem + int64_t(kv0) * d, p.kv_len - kv0, threadIdx.x);
    load_tile<kThreads>(v_smem, v_gmem + int64_t(kv0) * d, p.kv_len - kv0, threadIdx.x);
    __syncthreads();

    // S = Q K^T, 16 keys a step. A row of K is a column of K^T: K needs no transposing. Tensor cores truncate
    // when they add to an accumulator; with logits in the hundreds lse would feel it. So they add up short
    // sums, and the sums are added here. (Unrolled, this loop and that over P V are no faster: other warps
    // fill the gaps.)
#pragma unroll 1
    for (int n = 0; n < kBc; n += 16) {
      float s_rmem[2][4] = {};
#pragma unroll
      for (int k = 0; k < d; k += 16) {
        uint32_t k_rmem[4];
        ldmatrix_x4(k_rmem, k_smem.at(n + b_row, k + b_col));
        float part[2][4] = {};
        mma_m16n8k16<T>(part[0], q_rmem[k / 16], k_rmem[0], k_rmem[1]);
        mma_m16n8k16<T>(part[1], q_rmem[k / 16], k_rmem[2], k_rmem[3]);
#pragma unroll
        for (int i = 0; i < 8; i++)
          s_rmem[i / 4][i % 4] += part[i / 4][i % 4];
      }
#pragma unroll
      for (int i = 0; i < 2; i++) {
        const int col = n + 8 * i + frag_col;
        store_shared(s_smem.at(frag_row, col), float2{s_rmem[i][0], s_rmem[i][1]});
        store_shared(s_smem.at(frag_row + 8, col), float2{s_rmem[i][2], s_rmem[i][3]});
      }
    }
    __syncwarp();

    // P = exp(S - m) with the running maximum m. Every row sees key 0, in its first tile: m is finite from
    // there on, and -inf is never subtracted from -inf. m is taken off before log2(e) is multiplied in: the
    // other way round, rounding hurts when logits are in the hundreds.
    float rescale = 1.f; // of the row that m and l are of
#pragma unroll
    for (int t = 0; t < 8; t++) {
      const int row = half_row + t;
      const int visible = min(p.kv_len, key_limit + t) - kv0;
      const float m_old = __shfl_sync(0xffffffff, m_rmem, lane / 16 * 16 + t);
      float m_new = m_old;
      float s[kBc / 64][4];
#pragma unroll
      for (int c = 0; c < kBc / 64; c++) {
        const float4 s_row = load_shared<float4>(s_smem.at(row, 64 * c + half_col));
        const float values[4] = {s_row.x, s_row.y, s_row.z, s_row.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
          s[c][i] = 64 * c + half_col + i < visible ? values[i] * p.scale : -INFINITY;
          m_new = fmaxf(m_new, s[c][i]);
        }
      }
#pragma unroll
      for (int mask = 8; mask > 0; mask /= 2)
        m_new = fmaxf(m_new, __shfl_xor_sync(0xffffffff, m_new, mask));

      float l_tile = 0.f;
#pragma unroll
      for (int c = 0; c < kBc / 64; c++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
          s[c][i] = exp2_approx((s[c][i] - m_new) * kLog2E);
          l_tile += s[c][i];
        }
        store_shared(p_smem.at(row, 64 * c + half_col),
                     uint2{pack<T>(s[c][0], s[c][1]), pack<T>(s[c][2], s[c][3])});
      }
#pragma unroll
      for (int mask = 8; mask > 0; mask /= 2)
        l_tile += __shfl_xor_sync(0xffffffff, l_tile, mask);

      if (lane % 8 == t) {
        rescale = exp2_approx((m_old - m_new) * kLog2E);
        m_rmem = m_new;
        l_rmem = l_rmem * rescale + l_tile;
      }
    }
    __syncwarp();

    // O = O * rescale + P V. A fragment of V runs down its columns: it is transposed while it is loaded.
    const float rescale_upper = __shfl_sync(0xffffffff, rescale, frag_row);
    const float rescale_lower = __shfl_sync(0xffffffff, rescale, frag_row + 16);
#pragma unroll
    for (int n = 0; n < d / 8; n++) {
      o_rmem[n][0] *= rescale_upper;
      o_rmem[n][1] *= rescale_upper;
      o_rmem[n][2] *= rescale_lower;
      o_rmem[n][3] *= rescale_lower;
    }
#pragma unroll 1
    for (int k = 0; k < kBc; k += 16) {
      uint32_t p_rmem[4];
      ldmatrix_x4(p_rmem, p_smem.at(a_row, k + a_col));
#pragma unroll
      for (int n = 0; n < d; n += 16) {
        uint32_t v_rmem[4];
        ldmatrix_x4_trans(v_rmem, v_smem.at(k + a_row, n + a_col));
        mma_m16n8k16<T>(o_rmem[n / 8], p_rmem, v_rmem[0], v_rmem[1]);
        mma_m16n8k16<T>(o_rmem[n / 8 + 1], p_rmem, v_rmem[2], v_rmem[3]);
      }
    }
  }

  // The only normalisation. O / l goes out through shared memory.
  if (const int row = half_row + lane % 8; lane % 16 < 8 && warp_row + row < p.q_len)
    p.lse[first_row + row] = m_rmem + logf(l_rmem);

  const float inv_l_upper = __shfl_sync(0xffffffff, 1.f / l_rmem, frag_row);
  const float inv_l_lower = __shfl_sync(0xffffffff, 1.f / l_rmem, frag_row + 16);
#pragma unroll
  for (int n = 0; n < d / 8; n++) {
    const int col = 8 * n + frag_col;
    store_shared(o_smem.at(frag_row, col), pack<T>(o_rmem[n][0] * inv_l_upper, o_rmem[n][1] * inv_l_upper));
    store_shared(o_smem.at(frag_row + 8, col),
                 pack<T>(o_rmem[n][2] * inv_l_lower, o_rmem[n][3] * inv_l_lower));
  }
  __syncwarp();
  store_tile(static_cast<T *>(p.o) + first_row * d, o_smem, p.q_len - warp_row, lane);
}

template <typename T, int kHeadDim, int kWarps, int kBc>
void launch_tiles(const AttentionProblem &p, cudaStream_t stream) {
  constexpr int smem_bytes = Tiles<T, kHeadDim, kWarps, kBc>::smem_bytes, kBr = kWarps * kWarpRows;
  static_assert(smem_bytes <= 64 * 1024, "a block of an sm_75 has no more");
  constexpr auto kernel = flash_attention_2<T, kHeadDim, kWarps, kBc>;
  ladder::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem_bytes),
                "v2_warp_mma: shared memory");
  const dim3 grid = ladder::launch_grid((p.q_len + kBr - 1) / kBr, p.heads, p.batch);
  kernel<<<grid, kWarps * 32, smem_bytes, stream>>>(p);
  ladder::check(cudaGetLastError(), "v2_warp_mma: launch");
}

} // namespace

void ladder::launch(const AttentionProblem &p, cudaStream_t stream) {
  require_alignment(p, 16);
  dispatch_16_bit(p, [&](auto element) {
    dispatch_head_dim<32, 64, 128>(p, [&](auto d) { launch_tiles<decltype(element), d, 4, 64>(p, stream); });
  });
}
