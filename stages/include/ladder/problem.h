// What the problems of all operations share.
#pragma once

namespace ladder {

enum class DType { f32, f16, bf16 };

} // namespace ladder
