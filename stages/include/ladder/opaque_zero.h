// A zero that the compiler cannot see. It makes an instruction depend on values that it does not need, so
// that ptxas does not move it before them.
#pragma once

#include <cstring>

#include "tiles/types.h"

namespace ladder {

/// 0, computed from the signs of all values of a tile, none of which is negative. The sign of a NaN is 0,
/// too: ex2 returns 0x7fffffff.
template <tiles::RegisterTile S> __device__ inline uint32_t opaque_zero(const S &src) {
  uint32_t bits = 0;
#pragma unroll
  for (const auto &block : src.pairs[0])
#pragma unroll
    for (const float2 &pair : block)
      bits |= __float_as_uint(pair.x) | __float_as_uint(pair.y);
  return bits >> 31; // the sign
}

/// 0, computed from all words of 16-bit tiles: their OR, and then the AND with `zero`. That is 0, too, but
/// the compiler must not know it: a parameter of the kernel.
template <tiles::RegisterTile... S> __device__ inline uint32_t opaque_zero(uint32_t zero, const S &...tiles) {
  uint32_t bits = 0;
  const auto add = [&](const auto &tile) {
#pragma unroll
    for (const auto &block : tile.pairs[0])
#pragma unroll
      for (const auto &pair : block) {
        uint32_t word;
        memcpy(&word, &pair, 4);
        bits |= word;
      }
  };
  (add(tiles), ...);
  return bits & zero;
}

} // namespace ladder
