// Single PTX instructions as functions, and the only place that chooses by GPU architecture. Layouts are
// those of the PTX manual, "Matrix multiply-accumulate operation using mma instruction".
#pragma once

#include <cstdint>
#include <cstring>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <type_traits>

namespace ladder::ptx {

/// The address of a variable in shared memory, as the instructions below take it.
__device__ inline uint32_t shared_address(const void *smem) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(smem));
}

/// Writes 4, 8 or 16 bytes to shared memory in one instruction. Through a pointer the compiler may split and
/// merge accesses, and the hardware's counts would no longer be those of the source.
template <typename V> __device__ inline void store_shared(uint32_t address, V value) {
  static_assert(sizeof(V) == 4 || sizeof(V) == 8 || sizeof(V) == 16);
  uint32_t words[sizeof(V) / 4];
  memcpy(words, &value, sizeof(V));
  if constexpr (sizeof(V) == 4)
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(words[0]) : "memory");
  else if constexpr (sizeof(V) == 8)
    asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(address), "r"(words[0]), "r"(words[1]) : "memory");
  else
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(words[0]), "r"(words[1]),
                 "r"(words[2]), "r"(words[3])
                 : "memory");
}

/// Reads 16 bytes of shared memory in one instruction.
template <typename V> __device__ inline V load_shared(uint32_t address) {
  static_assert(sizeof(V) == 16);
  uint32_t words[4];
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(address)
               : "memory");
  V value;
  memcpy(&value, words, sizeof(V));
  return value;
}

/// Loads four 8x8 tiles of 16-bit elements from shared memory; lanes 8i..8i+7 give the addresses of the 8
/// rows (16 bytes each) of tile i. tiles[i] then holds, of tile i, row lane / 4, columns lane % 4 * 2 and
/// + 1.
__device__ inline void ldmatrix_x4(uint32_t (&tiles)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(tiles[0]), "=r"(tiles[1]), "=r"(tiles[2]), "=r"(tiles[3])
               : "r"(address)
               : "memory");
}

/// As ldmatrix_x4, each tile transposed: tiles[i] holds rows lane % 4 * 2 and + 1 of column lane / 4.
__device__ inline void ldmatrix_x4_trans(uint32_t (&tiles)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(tiles[0]), "=r"(tiles[1]), "=r"(tiles[2]), "=r"(tiles[3])
               : "r"(address)
               : "memory");
}

/// acc += a b on the tensor cores: a is 16x16 (four 8x8 tiles: upper left, lower left, upper right, lower
/// right), b is 16x8 (two tiles, upper and lower), acc is 16x8 in fp32: acc[0..1] at row lane / 4, columns
/// lane % 4 * 2 and + 1; acc[2..3] eight rows below. T is the element type of a and b. GPUs before sm_80 have
/// only half the depth and no bf16.
template <typename T>
__device__ inline void mma_m16n8k16(float (&acc)[4], const uint32_t (&a)[4], uint32_t b_upper,
                                    uint32_t b_lower) {
  static_assert(std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16>);
#if __CUDA_ARCH__ >= 800
  if constexpr (std::is_same_v<T, __half>)
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, "
                 "%9}, {%0, %1, %2, %3};"
                 : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b_upper), "r"(b_lower));
  else
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
                 "{%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b_upper), "r"(b_lower));
#else
  if constexpr (std::is_same_v<T, __half>) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
        : "r"(a[0]), "r"(a[1]), "r"(b_upper));
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
        : "r"(a[2]), "r"(a[3]), "r"(b_lower));
  } else {
    __trap(); // dispatch_16_bit refuses bf16 before any such launch
  }
#endif
}

/// Reads a number that another block writes by store_release. Its writes before that store are then visible.
__device__ inline int load_acquire(const int *gmem) {
  int value;
  asm volatile("ld.acquire.gpu.global.b32 %0, [%1];"
               : "=r"(value)
               : "l"(__cvta_generic_to_global(gmem))
               : "memory");
  return value;
}

/// Writes a number for load_acquire in another block. The earlier writes of the calling thread, and those of
/// other threads before a common barrier, become visible with it.
__device__ inline void store_release(int *gmem, int value) {
  asm volatile("st.release.gpu.global.b32 [%0], %1;" ::"l"(__cvta_generic_to_global(gmem)), "r"(value)
               : "memory");
}

/// 2^x by the special-function unit, relative error 2^-22; 0 for x = -inf, subnormal results become 0.
__device__ inline float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// tanh(x) by the special-function unit, relative error up to 2^-11 (PTX manual, "tanh").
__device__ inline float tanh_approx(float x) {
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// Two fp32 values rounded to T and packed, `low` in the lower half.
template <typename T> __device__ inline uint32_t pack(float low, float high) {
  static_assert(std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16>);
  if constexpr (std::is_same_v<T, __half>) {
    const __half2 pair = __floats2half2_rn(low, high);
    return reinterpret_cast<const uint32_t &>(pair);
  } else {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return reinterpret_cast<const uint32_t &>(pair);
  }
}

} // namespace ladder::ptx
