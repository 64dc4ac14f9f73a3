// Matrix products with AVX-512: the same sums as in mma.cpp and wmma.cpp, with half the instructions.
#pragma once

#include "machine/code.h"

#include <cstdint>

namespace ladder::instructions {

enum class HalfFormat { f16, bf16 };

/// Returns the handler of mma.m16n8k8 or k16 with f32 accumulators; nullptr if the CPU lacks AVX-512.
machine::Handler mma_avx512(HalfFormat format, int k);

/// Parts of a warpgroup's product of 16-bit floats with f32 accumulators, k 16. An image is 8 rows of 8
/// elements, 64-byte aligned, as in a fragment register.
struct HalfProduct {
  /// Converts images of B, each 8 columns of 8 elements along k.
  void (*unpack)(const std::uint32_t *images, int count, bool negate, float *values);
  /// 16 rows of D, `groups` times 8 columns: D = A * B, plus D if it accumulates. `a` has the images of a
  /// fragment's four registers, `b` two images per group along k, `d` four registers per group.
  void (*multiply)(const std::uint32_t *a, const float *b, int groups, float *const *d, bool accumulates);
};
/// nullptr if the CPU lacks AVX-512.
const HalfProduct *half_product_avx512(HalfFormat format);

/// Returns the handler of wmma.mma.m16n16k16 with f32 accumulators; nullptr if the CPU lacks AVX-512.
machine::Handler wmma_avx512(HalfFormat format);

} // namespace ladder::instructions
