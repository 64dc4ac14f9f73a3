// Elements, pairs of them, and the two layouts.
//
// The tensor cores of sm_75 to sm_90 always spread a 16x16 tile over the 32 lanes of a warp in the same way,
// in pairs of neighbours.
//
//                 span 0..7   span 8..15
//   lines 0..7    pairs[0]    pairs[2]
//   lines 8..15   pairs[1]    pairs[3]
//
// Lane l holds two places of the span of each 8x8 quarter, 2 * (l % 4) and the next one, in line l / 4.
//
// In a row-layout tile the lines are rows. In a col-layout tile they are columns: it holds its matrix as a
// row-layout tile holds the transposed matrix. The library is written once, for lines and spans; the layout
// says which of the two a row is.
#pragma once

#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <type_traits>

#include "ladder/ptx.h"

namespace tiles {

enum class Layout { row, col };

/// The elements that the tensor cores multiply.
template <typename T>
concept Element16 = std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16>;

/// An 8-bit number of 4 exponent and 3 mantissa bits, up to 448: what wgmma multiplies twice as fast as 16
/// bits. Tiles of it lie in shared memory or, as wgmma's first factor, in a Fragments8.
struct E4M3 {
  uint8_t bits;
};

template <typename T>
concept Element = Element16<T> || std::is_same_v<T, float>;

/// Two neighbours as they lie in registers: 16-bit ones share one, the first in its lower half.
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

// threadIdx.x and blockIdx, read again at every call. The compiler computes what follows from the built-in
// variables once and keeps it, if need be through the whole main loop, in registers that the tiles need.
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

/// `first` or `second`, which may be of different types: the one that is not chosen takes no registers.
template <bool kFirst, typename A, typename B> __device__ inline auto &choose(A &first, B &second) {
  if constexpr (kFirst)
    return first;
  else
    return second;
}

/// Lane 0's value. For values that all lanes of a warp share without the compiler knowing it: it then keeps
/// them, and what follows from them, in uniform registers instead of one in every lane.
__device__ inline int uniform(int value) { return __shfl_sync(0xffffffffu, value, 0); }

/// The line, and the first place of the span, that the calling lane holds in pairs[pair] of a 16x16 tile.
__device__ inline int pair_line(int pair) { return lane_id() / 4 + pair % 2 * 8; }
__device__ inline int pair_span(int pair) { return lane_id() % 4 * 2 + pair / 2 * 8; }

} // namespace tiles
