// Shared by mma and wgmma: elements, accumulators and the transposition of B.
#pragma once

#include "instructions/elementwise.h"
#include "instructions/float8_type.h"
#include "instructions/multiply.h"

#include <array>
#include <cstdint>
#include <cstring>

namespace ladder::instructions {

// --- 8-bit floats

template <class Format> struct Float8Elements {
  using Value = float;
  static constexpr int kPerRegister = 4;
  static void unpack(const std::uint32_t *lanes, float *values) {
    static const auto kFloats = [] {
      std::array<float, 256> floats;
      for (std::uint32_t bits = 0; bits < 256; ++bits)
        floats[bits] = Format::to_float(bits);
      return floats;
    }();
    const auto *const bytes = reinterpret_cast<const std::uint8_t *>(lanes);
    for (int i = 0; i < 128; ++i)
      values[i] = kFloats[bytes[i]];
  }
};

// --- accumulators

/// D = C + product, in rows of 8 columns. 8 rows of f32, s32 or f64 take two registers: lane 4 * g + t has
/// columns 2t and 2t + 1 of row g, one in each.
template <typename Elements> struct PairAccumulator {
  using Value = typename Elements::Value;
  static constexpr int kRegistersOf8Rows = 2;
  static void finish(Value *const *d, const Value *const *c, const Value *product, bool saturate) {
    Value *const d_even = d[0], *const d_odd = d[1];
    const Value *const c_even = c[0], *const c_odd = c[1];
    LADDER_LANES_ARE_INDEPENDENT
    for (int lane = 0; lane < 32; ++lane) {
      const Value even = add_products(c_even[lane], product[2 * lane], saturate);
      const Value odd = add_products(c_odd[lane], product[2 * lane + 1], saturate);
      d_even[lane] = even;
      d_odd[lane] = odd;
    }
  }
};

/// For f16 one register holds both columns.
struct HalfAccumulator {
  using Value = float;
  static constexpr int kRegistersOf8Rows = 1;
  static void finish(Value *const *d, const Value *const *c, const Value *product, bool) {
    float sums[64];
    F16Elements::unpack(reinterpret_cast<const std::uint32_t *>(c[0]), sums);
    for (int i = 0; i < 64; ++i)
      sums[i] += product[i];
    F16Elements::pack(sums, reinterpret_cast<std::uint32_t *>(d[0]));
  }
};

// --- transposition

/// to[k][n] = from[n][k] for 8 values of n and `Width` values of k.
template <int Width, typename T> [[gnu::always_inline]] inline void transpose(const T *from, T *to) {
  if constexpr (sizeof(T) == 4) {
    typedef T Four [[gnu::vector_size(16)]];
    typedef std::int32_t Places [[gnu::vector_size(16)]];
    for (int n = 0; n < 8; n += 4)
      for (int k = 0; k < Width; k += 4) {
        Four row[4];
        for (int i = 0; i < 4; ++i)
          std::memcpy(&row[i], from + (n + i) * Width + k, sizeof(Four));
        const Four low02 = __builtin_shuffle(row[0], row[2], Places{0, 4, 1, 5});
        const Four high02 = __builtin_shuffle(row[0], row[2], Places{2, 6, 3, 7});
        const Four low13 = __builtin_shuffle(row[1], row[3], Places{0, 4, 1, 5});
        const Four high13 = __builtin_shuffle(row[1], row[3], Places{2, 6, 3, 7});
        const Four column[4] = {__builtin_shuffle(low02, low13, Places{0, 4, 1, 5}),
                                __builtin_shuffle(low02, low13, Places{2, 6, 3, 7}),
                                __builtin_shuffle(high02, high13, Places{0, 4, 1, 5}),
                                __builtin_shuffle(high02, high13, Places{2, 6, 3, 7})};
        for (int i = 0; i < 4; ++i)
          std::memcpy(to + (k + i) * 8 + n, &column[i], sizeof(Four));
      }
  } else {
    for (int n = 0; n < 8; ++n)
      for (int k = 0; k < Width; ++k)
        to[k * 8 + n] = from[n * Width + k];
  }
}

} // namespace ladder::instructions
