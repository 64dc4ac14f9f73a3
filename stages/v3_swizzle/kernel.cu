// v3_swizzle: v2_warp_mma without bank conflicts. Tiles are stored swizzled, see Tile; nothing else is new.
//
// A block has four warps, which share each tile of K and V. A warp owns 16 query rows, the height of an mma.
// Their Q, S, P and O are fragments in the warp's registers; only K and V go through shared memory.
//
// mma.m16n8k16 computes D += A B with A (16x16), B (16x8) and D (16x8). Lane l of a warp holds two adjacent
// elements of each 8x8 quarter of A and of each 8x8 half of D: row l / 4, columns 2 * (l % 4) and + 1. In the
// 8x8 halves of B, row and column are swapped. Two neighbouring accumulators D therefore have the layout of
// one operand A: S, rounded to 16 bits, enters O += P V without leaving its registers.
#include <bit>
#include <cmath>
#include <cstdint>

#include "ladder/attention.h"
#include "ladder/dispatch.h"
#include "ladder/ptx.h"

namespace {

using ladder::AttentionProblem;
using namespace ladder::ptx;

constexpr int kThreads = 128, kBr = kThreads / 2; // four warps of 16 rows
constexpr float kLog2E = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

// XORs the B bits of `index` from bit M + S on into the B bits from bit M on.
template <int B, int M, int S> __device__ int swizzle(int index) {
  static_assert(S >= B, "the bits that are XORed in must not change");
  return index ^ ((index >> S) & (((1 << B) - 1) << M));
}

// A row-major tile in shared memory. Every access to a tile goes through at().
//
// One pass over the banks moves 128 bytes: eight segments of 16 bytes. ldmatrix takes one from each of eight
// rows, in the same columns. In row-major order these share banks. So the number of a segment within its
// 128-byte line is XORed with the number of its row (of its line, if several rows share one). Then the eight
// segments cover all banks.
template <typename T, int kRows, int kCols> struct Tile {
  static constexpr int bytes = kRows * kCols * sizeof(T);
  static constexpr unsigned segment = 16 / sizeof(T), line = 128 / sizeof(T), row = kCols; // in elements
  static constexpr int B = std::countr_zero((row < line ? row : line) / segment);
  static constexpr int M = std::countr_zero(segment);
  static constexpr int S = std::countr_zero((row > line ? row : line) / segment);
  static_assert(bytes % 128 == 0, "the next tile starts at bank 0, too");
  uint32_t smem; // the address of its first element

  __device__ uint32_t at(int row, int col) const {
    return smem + swizzle<B, M, S>(row * kCols + col) * sizeof(T);
  }

  // Copies rows of the same width from global memory, 16 bytes per thread. Rows from valid_rows on become 0.
  __device__ void load(const T *gmem, int valid_rows) const {
    constexpr int width = 16 / sizeof(T);
    for (int i = threadIdx.x * width; i < kRows * kCols; i += kThreads * width) {
      const int row = i / kCols, col = i % kCols;
      store_shared(at(row, col), row < valid_rows ? *reinterpret_cast<const uint4 *>(gmem + i) : uint4{});
    }
  }
};

template <int kBc, int d>
__device__ void softmax(float (&s)[kBc / 8][4], float (&o)[d / 8][4], float (&m)[2], float (&l)[2]);

template <typename T, int kHeadDim, int kBc>
__global__ void __launch_bounds__(kThreads) flash_attention_2(const AttentionProblem p) {
  constexpr int d = kHeadDim;
  const int batch = blockIdx.z, head = blockIdx.x;
  // Causal: the last rows see the most keys, so their blocks start first.
  const int block_row = (gridDim.y - 1 - blockIdx.y) * kBr;
  const int64_t first_row = (int64_t(batch) * p.heads + head) * p.q_len;
  const int64_t first_key = (int64_t(batch) * p.kv_heads + head / (p.heads / p.kv_heads)) * p.kv_len;
  const T *q_gmem = static_cast<const T *>(p.q) + first_row * d;
  const T *k_gmem = static_cast<const T *>(p.k) + first_key * d;
  const T *v_gmem = static_cast<const T *>(p.v) + first_key * d;
  T *o_gmem = static_cast<T *>(p.o) + first_row * d;

  extern __shared__ __align__(128) unsigned char smem[];
  const Tile<T, kBc, d> k_smem{shared_address(smem)}, v_smem{k_smem.smem + k_smem.bytes};

  // In each fragment of Q, S, P and O this lane has two rows and, of every 8 columns, col and col + 1.
  const int lane = threadIdx.x % 32, row = block_row + threadIdx.x / 32 * 16 + lane / 4, col = lane % 4 * 2;
  const int rows[2] = {row, row + 8};

  uint32_t q_rmem[d / 16][4]; // Q: 16 rows x d, operand A
  for (int k = 0; k < d; k += 16)
    for (int i = 0; i < 4; i++) {
      const T *pair = q_gmem + int64_t(rows[i % 2]) * d + k + i / 2 * 8 + col;
      q_rmem[k / 16][i] = rows[i % 2] < p.q_len ? *reinterpret_cast<const uint32_t *>(pair) : 0;
    }
  float o_rmem[d / 8][4] = {};                            // O: 16 rows x d
  float m[2] = {-INFINITY, -INFINITY}, l[2] = {0.f, 0.f}; // running row maxima and row sums

  // Causal: no row of this block sees a key beyond its last row, so those tiles are skipped.
  const int kv_end = p.is_causal ? min(p.kv_len, block_row + kBr) : p.kv_len;
  for (int j0 = 0; j0 < kv_end; j0 += kBc) {
    __syncthreads(); // all warps have used the last tiles
    k_smem.load(k_gmem + int64_t(j0) * d, kv_end - j0);
    v_smem.load(v_gmem + int64_t(j0) * d, kv_end - j0);
    __syncthreads();

    // S = Q K^T. A row of K is a column of K^T: K needs no transposition. Tensor cores truncate when they add
    // to an accumulator, which would cost lse its last bits. So each mma starts from 0, and FADDs sum up.
    float s_rmem[kBc / 8][4] = {}; // S: 16 rows x kBc keys
    for (int n = 0; n < kBc; n += 16)
      for (int k = 0; k < d; k += 16) {
        uint32_t k_rmem[4]; // two operands B
        ldmatrix_x4(k_rmem, k_smem.at(n + lane / 16 * 8 + lane % 8, k + lane / 8 % 2 * 8));
        float part[2][4] = {};
        mma_m16n8k16<T>(part[0], q_rmem[k / 16], k_rmem[0], k_rmem[1]);
        mma_m16n8k16<T>(part[1], q_rmem[k / 16], k_rmem[2], k_rmem[3]);
        for (int i = 0; i < 8; i++)
          s_rmem[n / 8 + i / 4][i % 4] += part[i / 4][i % 4];
      }

    // Scaled so that exp(s) becomes exp2(s); -inf where a row does not see a key.
    for (int half = 0; half < 2; half++) {
      const int last_key = p.is_causal ? min(rows[half], p.kv_len - 1) : p.kv_len - 1;
      for (int i = 0; i < kBc / 4; i++) {
        const int key = i / 2 * 8 + i % 2; // relative to j0 + col
        float &s = s_rmem[i / 2][2 * half + i % 2];
        s = key <= last_key - j0 - col ? s * (p.scale * kLog2E) : -INFINITY;
      }
    }
    softmax<kBc, d>(s_rmem, o_rmem, m, l);

    // O += P V. A fragment of V runs down its columns: ldmatrix transposes it.
    for (int k = 0; k < kBc; k += 16) {
      const float (&left)[4] = s_rmem[k / 8], (&right)[4] = s_rmem[k / 8 + 1];
      const uint32_t p_rmem[4] = {pack<T>(left[0], left[1]), pack<T>(left[2], left[3]),
                                  pack<T>(right[0], right[1]), pack<T>(right[2], right[3])};
      for (int n = 0; n < d; n += 16) {
        uint32_t v_rmem[4]; // two operands B
        ldmatrix_x4_trans(v_rmem, v_smem.at(k + lane % 16, n + lane / 16 * 8));
        mma_m16n8k16<T>(o_rmem[n / 8], p_rmem, v_rmem[0], v_rmem[1]);
        mma_m16n8k16<T>(o_rmem[n / 8 + 1], p_rmem, v_rmem[2], v_rmem[3]);
      }
    }
  }

  for (int half = 0; half < 2; half++) {
    if (rows[half] >= p.q_len)
      continue;
    if (lane % 4 == 0)
      p.lse[first_row + rows[half]] = m[half] * kLn2 + logf(l[half]);
    const float inv_l = 1.f / l[half]; // the only normalisation
    for (int n = 0; n < d / 8; n++)
      *reinterpret_cast<uint32_t *>(o_gmem + int64_t(rows[half]) * d + 8 * n + col) =
          pack<T>(o_rmem[n][2 * half] * inv_l, o_rmem[n][2 * half + 1] * inv_l);
  }
}

// Turns the logits S of a tile into P = exp(S - m), with the running maximum m of each row, and rescales what
// O and l have summed under the old maximum. Every row sees key 0 in its first tile, so m is finite from then
// on: -inf - (-inf) does not occur.
template <int kBc, int d>
__device__ void softmax(float (&s)[kBc / 8][4], float (&o)[d / 8][4], float (&m)[2], float (&l)[2]) {
  for (int half = 0; half < 2; half++) { // this lane's two rows, each shared by four lanes
    float m_new = m[half], l_tile = 0.f;
    for (int i = 0; i < kBc / 4; i++)
      m_new = fmaxf(m_new, s[i / 2][2 * half + i % 2]);
    for (int mask = 1; mask < 4; mask *= 2)
      m_new = fmaxf(m_new, __shfl_xor_sync(0xffffffff, m_new, mask));
    const float rescale = exp2_approx(m[half] - m_new);

    for (int i = 0; i < kBc / 4; i++) {
      float &weight = s[i / 2][2 * half + i % 2];
      weight = exp2_approx(weight - m_new);
      l_tile += weight;
    }
    for (int mask = 1; mask < 4; mask *= 2)
      l_tile += __shfl_xor_sync(0xffffffff, l_tile, mask);

    m[half] = m_new;
    l[half] = l[half] * rescale + l_tile;
    for (int i = 0; i < d / 4; i++)
      o[i / 2][2 * half + i % 2] *= rescale;
  }
}

template <typename T, int kHeadDim, int kBc>
void launch_tiles(const AttentionProblem &p, cudaStream_t stream) {
  constexpr int smem_bytes = 2 * Tile<T, kBc, kHeadDim>::bytes; // K and V
  const dim3 grid = ladder::launch_grid(p.heads, (p.q_len + kBr - 1) / kBr, p.batch);
  flash_attention_2<T, kHeadDim, kBc><<<grid, kThreads, smem_bytes, stream>>>(p);
  ladder::check(cudaGetLastError(), "v3_swizzle: launch");
}

} // namespace

void ladder::launch(const AttentionProblem &p, cudaStream_t stream) {
  require_alignment(p, 16);
  dispatch_16_bit(p, [&](auto element) {
    dispatch_head_dim<32, 64, 128>(p, [&](auto d) {
      // Per thread, O takes d / 2 registers and S keys / 2.
      constexpr int keys = d == 32 ? 64 : d == 64 ? 48 : 32;
      launch_tiles<decltype(element), d, keys>(p, stream);
    });
  });
}
