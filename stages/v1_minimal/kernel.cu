// v1_minimal: FlashAttention-1 (Dao et al. 2022, algorithm 1) with as little code as possible.
//
// One block per (batch, head). The outer loop loads a tile of K and V into shared memory. The inner loop
// walks over all tiles of Q and adds these keys to their rows of O. One thread owns one query row: its row of
// Q, of S and of O. So lane i of a warp reads row i of a row-major tile. The 32 addresses are a row apart and
// lie in one bank: 32 wavefronts per load.
#include <cmath>
#include <cstdint>

#include "ladder/attention.h"
#include "ladder/launch.h"
#include "ladder/workspace.h"

namespace {

using ladder::AttentionProblem;

// Shared memory holds few blocks per SM. Without the minimum of 1 block, ptxas assumes more blocks, limits
// the registers and spills.
template <int kHeadDim, int kBr, int kBc>
__global__ void __launch_bounds__(kBr, 1)
    flash_attention_1(const AttentionProblem p, float *m_workspace, float *l_workspace) {
  constexpr int d = kHeadDim;
  const int batch = blockIdx.x, head = blockIdx.y;
  const int64_t first_row = (int64_t(batch) * p.heads + head) * p.q_len;
  const int64_t first_key = (int64_t(batch) * p.kv_heads + head / (p.heads / p.kv_heads)) * p.kv_len;
  const float *q_gmem = static_cast<const float *>(p.q) + first_row * d;
  const float *k_gmem = static_cast<const float *>(p.k) + first_key * d;
  const float *v_gmem = static_cast<const float *>(p.v) + first_key * d;
  float *o_gmem = static_cast<float *>(p.o) + first_row * d;
  float *m_gmem = m_workspace + first_row; // running row maximum
  float *l_gmem = l_workspace + first_row; // running row sum

  extern __shared__ float smem[];
  float *k_smem = smem;                                        // (kBc, d)
  float *v_smem = k_smem + kBc * d;                            // (kBc, d)
  float *q_row = v_smem + kBc * d + threadIdx.x * d;           // this thread's row of (kBr, d)
  float *s_row = v_smem + (kBc + kBr) * d + threadIdx.x * kBc; // this thread's row of (kBr, kBc)

  // Only its owner accesses a row of q, s, o, m and l, so none of them needs a barrier.
  for (int row = threadIdx.x; row < p.q_len; row += kBr) {
    m_gmem[row] = -INFINITY;
    l_gmem[row] = 0.f;
    for (int x = 0; x < d; x++)
      o_gmem[int64_t(row) * d + x] = 0.f;
  }

  for (int j0 = 0; j0 < p.kv_len; j0 += kBc) {
    const int keys = min(kBc, p.kv_len - j0);
    for (int i = threadIdx.x; i < keys * d; i += kBr) { // a tile is contiguous in global memory
      k_smem[i] = k_gmem[int64_t(j0) * d + i];
      v_smem[i] = v_gmem[int64_t(j0) * d + i];
    }
    __syncthreads();

    // Causal: rows above this tile's first key see none of its keys, so their query tiles are skipped.
    for (int i0 = p.is_causal ? j0 / kBr * kBr : 0; i0 < p.q_len; i0 += kBr) {
      const int row = i0 + threadIdx.x;
      if (row >= p.q_len)
        break;
      // If this loop were unrolled, ptxas would merge adjacent accesses to shared memory, and the hardware's
      // counts would not be those of the source. The same holds for each loop with this pragma.
#pragma unroll 1
      for (int x = 0; x < d; x++)
        q_row[x] = q_gmem[int64_t(row) * d + x];

      const int last_key = p.is_causal ? row : p.kv_len - 1; // the last key that this row sees
      const float m_old = m_gmem[row];
      float m_new = m_old;
      for (int y = 0; y < keys; y++) {
        float s = 0.f;
        // A sum of short sums: at d = 128 its rounding error is half that of one long sum.
        for (int x0 = 0; x0 < d; x0 += 16) {
          float part = 0.f;
#pragma unroll 1
          for (int x = x0; x < x0 + 16; x++)
            part += q_row[x] * k_smem[y * d + x];
          s += part;
        }
        s = j0 + y > last_key ? -INFINITY : s * p.scale;
        s_row[y] = s;
        m_new = fmaxf(m_new, s);
      }

      // m_new is finite, because each row sees key 0 in its first tile: -inf - (-inf) does not occur.
      float l_tile = 0.f;
#pragma unroll 1
      for (int y = 0; y < keys; y++) {
        const float weight = expf(s_row[y] - m_new);
        s_row[y] = weight;
        l_tile += weight;
      }
      const float l_old = l_gmem[row] * expf(m_old - m_new);
      const float l_new = l_old + l_tile;
      const float inv_l = 1.f / l_new;
      for (int x = 0; x < d; x++) {
        float pv = 0.f;
#pragma unroll 1
        for (int y = 0; y < keys; y++)
          pv += s_row[y] * v_smem[y * d + x];
        float &o = o_gmem[int64_t(row) * d + x];
        o = (l_old * o + pv) * inv_l;
      }
      m_gmem[row] = m_new;
      l_gmem[row] = l_new;
    }
    __syncthreads(); // all warps have used K and V before the next tile overwrites them
  }

  for (int row = threadIdx.x; row < p.q_len; row += kBr)
    p.lse[first_row + row] = m_gmem[row] + logf(l_gmem[row]);
}

template <int kHeadDim, int kBr, int kBc> void launch_tiles(const AttentionProblem &p, cudaStream_t stream) {
  constexpr int smem_bytes = (2 * kBc * kHeadDim + kBr * kHeadDim + kBr * kBc) * sizeof(float);
  static_assert(smem_bytes <= 64 * 1024, "a block on sm_75 has at most 64 KB");
  constexpr auto kernel = flash_attention_1<kHeadDim, kBr, kBc>;
  ladder::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem_bytes),
                "v1_minimal: shared memory");
  const dim3 grid = ladder::launch_grid(p.batch, p.heads);
  const size_t rows = (size_t(p.batch) * p.heads * p.q_len + 7) / 8 * 8; // l starts at a 32-byte sector
  const ladder::Workspace<float> m_and_l(2 * rows, stream, "v1_minimal: workspace");
  kernel<<<grid, kBr, smem_bytes, stream>>>(p, m_and_l.data(), m_and_l.data() + rows);
  ladder::check(cudaGetLastError(), "v1_minimal: launch");
}

} // namespace

void ladder::launch(const AttentionProblem &p, cudaStream_t stream) {
  if (p.dtype != DType::f32)
    refuse("v1_minimal supports dtype f32 only");
  dispatch_head_dim<32, 64, 128>(p, [&](auto d) {
    // Br and Bc are independent. Together they fit into the 64 KB of a block on sm_75.
    if constexpr (d == 128)
      launch_tiles<d, 64, 16>(p, stream);
    else
      launch_tiles<d, 128, 32>(p, stream);
  });
}
