// What the problems of all operations share.
#pragma once

#include <cstdint>

namespace ladder {

enum class DType { f32, f16, bf16 };

/// How many elements lie from one batch, head and row of a tensor (batch, heads, rows, head_dim) to the next.
/// The elements of a row lie side by side.
struct Strides {
  int64_t batch, head, row;
};

} // namespace ladder
