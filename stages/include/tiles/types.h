// Element types, pairs of elements, and the two layouts.
//
// The tensor cores of sm_75 to sm_90 distribute every 16x16 tile over the 32 lanes of a warp in the same way,
// as pairs of adjacent elements:
//
//                 span 0..7   span 8..15
//   lines 0..7    pairs[0]    pairs[2]
//   lines 8..15   pairs[1]    pairs[3]
//
// Of each 8x8 quarter, lane l holds line l / 4, positions 2 * (l % 4) and 2 * (l % 4) + 1 of the span.
//
// In a row-layout tile the lines are rows. In a col-layout tile the lines are columns: it holds its matrix
// the way a row-layout tile holds the transposed matrix. The library is written once, in terms of lines and
// spans. The layout determines which of the two a row is.
#pragma once

#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <type_traits>

#include "ladder/ptx.h"

namespace tiles {

enum class Layout { row, col };

/// The 16-bit element types of tensor-core products.
template <typename T>
concept Element16 = std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16>;

/// An 8-bit float with 4 exponent and 3 mantissa bits, up to 448. wgmma multiplies it at twice the 16-bit
/// rate. Tiles of it are in shared memory or, as operand A of wgmma, in a Fragments8.
struct E4M3 {
  uint8_t bits;
};

template <typename T>
concept Element = Element16<T> || std::is_same_v<T, float>;

/// Two adjacent elements in registers: 16-bit elements share one register, the first in its lower half.
template <Element T> using Pair = std::conditional_t<Element16<T>, uint32_t, float2>;

template <Element T> __device__ inline Pair<T> pack(float2 values) {
  if constexpr (Element16<T>)
    return ladder::ptx::pack<T>(values.x, values.y);
  else
    return values;
}

template <Element T> __device__ inline float2 unpack(Pair<T> pair) {
  if constexpr (std::is_same_v<T, __half>)
    return __half22float2(reinterpret_cast<const __half2 &>(pair));
  else if constexpr (std::is_same_v<T, __nv_bfloat16>) // the upper half of an fp32
    return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u)};
  else
    return pair;
}

template <Element T> __device__ inline float to_float(T value) {
  if constexpr (std::is_same_v<T, __half>)
    return __half2float(value);
  else if constexpr (std::is_same_v<T, __nv_bfloat16>)
    return __bfloat162float(value);
  else
    return value;
}

template <Element T> __device__ inline T from_float(float value) {
  if constexpr (std::is_same_v<T, __half>)
    return __float2half_rn(value);
  else if constexpr (std::is_same_v<T, __nv_bfloat16>)
    return __float2bfloat16_rn(value);
  else
    return value;
}

// threadIdx.x and blockIdx, read from the special registers at every call. From the built-in variables the
// compiler would compute indices once and keep them through the main loop, in registers that the tiles need.
__device__ inline int thread_index() {
  int index;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(index));
  return index;
}
__device__ inline uint3 block_index() {
  uint3 index;
  asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(index.x));
  asm volatile("mov.u32 %0, %%ctaid.y;" : "=r"(index.y));
  asm volatile("mov.u32 %0, %%ctaid.z;" : "=r"(index.z));
  return index;
}

__device__ inline int lane_id() { return threadIdx.x % 32; }

/// `first` or `second`, which may have different types. The other one takes no registers.
template <bool kFirst, typename A, typename B> __device__ inline auto &choose(A &first, B &second) {
  if constexpr (kFirst)
    return first;
  else
    return second;
}

/// Lane 0's value, for a value that is the same in all lanes. The compiler can then keep it, and what is
/// computed from it, in uniform registers instead of one register per lane.
__device__ inline int uniform(int value) { return __shfl_sync(0xffffffffu, value, 0); }

/// The line, and the first position of the span, that the calling lane holds in pairs[pair] of a 16x16 tile.
__device__ inline int pair_line(int pair) { return lane_id() / 4 + pair % 2 * 8; }
__device__ inline int pair_span(int pair) { return lane_id() % 4 * 2 + pair / 2 * 8; }

} // namespace tiles
