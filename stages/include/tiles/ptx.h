// PTX instructions of the tile library, beside those of ladder/ptx.h.
#pragma once

#include <cstring>

#include "tiles/types.h"

namespace tiles::ptx {

using ladder::ptx::shared_address;

/// Reads or writes 2, 4, 8 or 16 bytes of shared memory in one instruction. Through pointers the compiler may
/// merge and split accesses, and the counts would no longer be those of the source.
template <typename V> __device__ inline V load_shared(const void *smem) {
  const uint32_t address = shared_address(smem);
  V value;
  if constexpr (sizeof(V) == 2) {
    uint16_t half;
    asm volatile("ld.shared.b16 %0, [%1];" : "=h"(half) : "r"(address) : "memory");
    memcpy(&value, &half, 2);
  } else if constexpr (sizeof(V) == 4) {
    uint32_t word;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(word) : "r"(address) : "memory");
    memcpy(&value, &word, 4);
  } else if constexpr (sizeof(V) == 8) {
    uint32_t words[2];
    asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];"
                 : "=r"(words[0]), "=r"(words[1])
                 : "r"(address)
                 : "memory");
    memcpy(&value, words, 8);
  } else {
    value = ladder::ptx::load_shared<V>(address);
  }
  return value;
}

template <typename V> __device__ inline void store_shared(void *smem, V value) {
  if constexpr (sizeof(V) == 2) {
    uint16_t half;
    memcpy(&half, &value, 2);
    asm volatile("st.shared.b16 [%0], %1;" ::"r"(shared_address(smem)), "h"(half) : "memory");
  } else {
    ladder::ptx::store_shared(shared_address(smem), value);
  }
}

/// Stores four 8x8 tiles of 16-bit elements, given as fragments like those of ldmatrix_x4; lanes 8i..8i+7
/// give the addresses of the 8 rows of tile i. Before sm_90, which has an instruction for it, each lane
/// stores its own pairs.
__device__ inline void stmatrix_x4(void *row_smem, const uint32_t (&tiles)[4]) {
  const uint32_t address = shared_address(row_smem);
#if __CUDA_ARCH__ >= 900
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "r"(tiles[0]), "r"(tiles[1]), "r"(tiles[2]), "r"(tiles[3])
               : "memory");
#else
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const uint32_t row = __shfl_sync(0xffffffffu, address, 8 * i + lane_id() / 4);
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(row + lane_id() % 4 * 4), "r"(tiles[i]) : "memory");
  }
#endif
}

/// Four numbers rounded to e4m3, the first in the lowest byte; values beyond 448 become 448.
__device__ inline uint32_t pack_e4m3(float2 first, float2 second) {
  uint32_t word;
  asm("{.reg .b16 low, high;"
      "cvt.rn.satfinite.e4m3x2.f32 low, %2, %1;"
      "cvt.rn.satfinite.e4m3x2.f32 high, %4, %3;"
      "mov.b32 %0, {low, high};}"
      : "=r"(word)
      : "f"(first.x), "f"(first.y), "f"(second.x), "f"(second.y));
  return word;
}

/// The same word in another register: the compiler cannot know that both have one value.
__device__ inline uint32_t word_apart(uint32_t word) {
  uint32_t copy;
  asm volatile("mov.b32 %0, %1;" : "=r"(copy) : "r"(word));
  return copy;
}

/// Transposes the 8x8 tile of 16-bit elements given as a fragment.
__device__ inline uint32_t movmatrix_trans(uint32_t tile) {
  uint32_t transposed;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(tile));
  return transposed;
}

/// As stmatrix_x4, but transposed: lanes 8i..8i+7 give the addresses of the columns of tile i.
__device__ inline void stmatrix_x4_trans(void *column_smem, const uint32_t (&tiles)[4]) {
#if __CUDA_ARCH__ >= 900
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                   shared_address(column_smem)),
               "r"(tiles[0]), "r"(tiles[1]), "r"(tiles[2]), "r"(tiles[3])
               : "memory");
#else
  const uint32_t transposed[4] = {movmatrix_trans(tiles[0]), movmatrix_trans(tiles[1]),
                                  movmatrix_trans(tiles[2]), movmatrix_trans(tiles[3])};
  stmatrix_x4(column_smem, transposed);
#endif
}

/// Issues a copy of 16 bytes from global to shared memory, bypassing the registers, or of 16 zero bytes if
/// not valid; both addresses are multiples of 16.
__device__ inline void copy_async_16(void *smem, const void *gmem, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(smem)),
               "l"(__cvta_generic_to_global(gmem)), "r"(valid ? 16 : 0)
               : "memory");
}

__device__ inline void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

template <int kPending> __device__ inline void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

/// *gmem += value, atomically, without returning the old value.
__device__ inline void atomic_add(float *gmem, float value) {
  asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" ::"l"(__cvta_generic_to_global(gmem)), "f"(value)
               : "memory");
}

/// The same for four adjacent floats at a multiple of 16 bytes, each of them atomically; from sm_90 on.
__device__ inline void atomic_add(float *gmem, float4 values) {
  asm volatile(
      "red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(gmem)),
      "f"(values.x), "f"(values.y), "f"(values.z), "f"(values.w)
      : "memory");
}

/// Waits until `threads` threads, a multiple of 32, have arrived at named barrier `number` (0 to 15; 0 is
/// that of __syncthreads).
__device__ inline void barrier(int number, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

/// Arrives at a named barrier without waiting.
__device__ inline void barrier_arrive(int number, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

__device__ inline void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

} // namespace tiles::ptx
