// Matrix products with AVX-512: the same sums as in mma.cpp and wmma.cpp, with half the instructions.
#pragma once

#include "machine/code.h"

namespace ladder::instructions {

enum class HalfFormat { f16, bf16 };

/// Returns the handler of mma.m16n8k8 or k16 with f32 accumulators; nullptr if the CPU lacks AVX-512.
machine::Handler mma_avx512(HalfFormat format, int k);

/// product = a * b, each 16 x 16, row-major and 64-byte aligned.
using Product16 = void (*)(const float *a, const float *b, float *product);
/// nullptr if the CPU lacks AVX-512.
Product16 product16_avx512();

} // namespace ladder::instructions
