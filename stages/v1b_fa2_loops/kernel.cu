// v1b_fa2_loops: v1_minimal with the loops of FlashAttention-2 (Dao 2023, algorithm 1).
//
// The grid is parallel over queries: one block per tile of Q of one (batch, head). The block loops over the
// tiles of K and V. A row's m and l stay in registers, and its O in shared memory, from the first key to the
// last: none of them goes through global memory between tiles, and O is divided by l once. As in v1, one
// thread owns one query row, and lane i of a warp reads row i of a row-major tile.
#include <cmath>
#include <cstdint>

#include "ladder/attention.h"
#include "ladder/launch.h"

namespace {

using ladder::AttentionProblem;

// Shared memory holds few blocks per SM. Without the minimum of 1 block, ptxas assumes more blocks, limits
// the registers and spills.
template <int kHeadDim, int kBr, int kBc>
__global__ void __launch_bounds__(kBr, 1) flash_attention_2(const AttentionProblem p) {
  constexpr int d = kHeadDim;
  const int batch = blockIdx.z, head = blockIdx.x;
  // Causal: the last rows see the most keys, so their blocks start first.
  const int block_row = (gridDim.y - 1 - blockIdx.y) * kBr, row = block_row + threadIdx.x;
  const bool has_row = row < p.q_len; // threads without a row only help to load K and V
  const int64_t first_row = (int64_t(batch) * p.heads + head) * p.q_len;
  const int64_t first_key = (int64_t(batch) * p.kv_heads + head / (p.heads / p.kv_heads)) * p.kv_len;
  const float *q_gmem = static_cast<const float *>(p.q) + first_row * d;
  const float *k_gmem = static_cast<const float *>(p.k) + first_key * d;
  const float *v_gmem = static_cast<const float *>(p.v) + first_key * d;
  float *o_gmem = static_cast<float *>(p.o) + first_row * d;

  extern __shared__ float smem[];
  float *k_smem = smem;                                            // (kBc, d)
  float *v_smem = k_smem + kBc * d;                                // (kBc, d)
  float *q_row = v_smem + kBc * d + threadIdx.x * d;               // this thread's row of (kBr, d)
  float *o_row = q_row + kBr * d;                                  // this thread's row of (kBr, d)
  float *s_row = v_smem + (kBc + 2 * kBr) * d + threadIdx.x * kBc; // this thread's row of (kBr, kBc)

  // Only its owner accesses a row of q, s and o, so none of them needs a barrier.
  float m = -INFINITY, l = 0.f; // running row maximum and row sum
  for (int x = 0; x < d; x++) {
    q_row[x] = has_row ? q_gmem[int64_t(row) * d + x] : 0.f;
    o_row[x] = 0.f;
  }

  // Causal: no row of this block sees a key beyond its last row, so those tiles are skipped.
  const int kv_end = p.is_causal ? min(p.kv_len, block_row + kBr) : p.kv_len;
  for (int j0 = 0; j0 < kv_end; j0 += kBc) {
    const int keys = min(kBc, p.kv_len - j0);
    for (int i = threadIdx.x; i < keys * d; i += kBr) { // a tile is contiguous in global memory
      k_smem[i] = k_gmem[int64_t(j0) * d + i];
      v_smem[i] = v_gmem[int64_t(j0) * d + i];
    }
    __syncthreads();

    if (has_row) {
      const int last_key = p.is_causal ? row : p.kv_len - 1; // the last key that this row sees
      float m_new = m;
      for (int y = 0; y < keys; y++) {
        float s = 0.f;
        // A sum of short sums: at d = 128 its rounding error is half that of one long sum.
        for (int x0 = 0; x0 < d; x0 += 16) {
          float part = 0.f;
          // If this loop were unrolled, ptxas would merge adjacent accesses to shared memory, and the
          // hardware's counts would not be those of the source. The same holds for each loop with this
          // pragma.
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
      const float rescale = expf(m - m_new); // of sums under the old maximum
      l *= rescale;
#pragma unroll 1
      for (int y = 0; y < keys; y++) {
        const float weight = expf(s_row[y] - m_new);
        s_row[y] = weight;
        l += weight;
      }
      for (int x = 0; x < d; x++) {
        float pv = 0.f;
#pragma unroll 1
        for (int y = 0; y < keys; y++)
          pv += s_row[y] * v_smem[y * d + x];
        o_row[x] = o_row[x] * rescale + pv;
      }
      m = m_new;
    }
    __syncthreads(); // all warps have used K and V before the next tile overwrites them
  }

  if (has_row) {
    p.lse[first_row + row] = m + logf(l);
    const float inv_l = 1.f / l; // the only normalisation
#pragma unroll 1
    for (int x = 0; x < d; x++)
      o_gmem[int64_t(row) * d + x] = o_row[x] * inv_l;
  }
}

template <int kHeadDim, int kBr, int kBc> void launch_tiles(const AttentionProblem &p, cudaStream_t stream) {
  constexpr int smem_bytes = (2 * kBc * kHeadDim + 2 * kBr * kHeadDim + kBr * kBc) * sizeof(float);
  static_assert(smem_bytes <= 64 * 1024, "a block on sm_75 has at most 64 KB");
  constexpr auto kernel = flash_attention_2<kHeadDim, kBr, kBc>;
  ladder::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem_bytes),
                "v1b_fa2_loops: shared memory");
  const dim3 grid = ladder::launch_grid(p.heads, (p.q_len + kBr - 1) / kBr, p.batch);
  kernel<<<grid, kBr, smem_bytes, stream>>>(p);
  ladder::check(cudaGetLastError(), "v1b_fa2_loops: launch");
}

} // namespace

void ladder::launch(const AttentionProblem &p, cudaStream_t stream) {
  if (p.dtype != DType::f32)
    refuse("v1b_fa2_loops supports dtype f32 only");
  dispatch_head_dim<32, 64, 128>(p, [&](auto d) {
    // Br and Bc are independent. Together they fit into the 64 KB of a block on sm_75.
    if constexpr (d == 128)
      launch_tiles<d, 32, 16>(p, stream);
    else
      launch_tiles<d, 64, 32>(p, stream);
  });
}
