// "Video Instructions": only those that CUDA's byte and halfword SIMD intrinsics compile to.
#include "instructions/elementwise.h"

#include <cstdlib>

namespace ladder::instructions {

namespace {

/// |a - b| for each part of two words. If Adds, returns the sum of these and c, else packs them into a word.
template <class A, class B, bool Adds> struct AbsoluteDifferences {
  static_assert(sizeof(A) == sizeof(B));
  std::uint32_t operator()(std::uint32_t a, std::uint32_t b, std::uint32_t c) const {
    constexpr unsigned kBits = 8 * sizeof(A);
    std::uint32_t result = Adds ? c : 0;
    for (unsigned shift = 0; shift < 32; shift += kBits) {
      const int difference = static_cast<A>(a >> shift) - static_cast<B>(b >> shift);
      const auto part = static_cast<std::uint32_t>(difference < 0 ? -difference : difference);
      result += Adds ? part : (part & ((1u << kBits) - 1)) << shift;
    }
    return result;
  }
};

template <class A, class B> bool bind_with_sum(Binder &b) {
  using Word = std::uint32_t;
  return b.has("add") ? bind_elementwise<AbsoluteDifferences<A, B, true>, Word, Word, Word, Word>(b)
                      : bind_elementwise<AbsoluteDifferences<A, B, false>, Word, Word, Word, Word>(b);
}

/// vabsdiff2 and vabsdiff4 on whole registers, without saturation.
template <class Unsigned, class Signed> bool bind_absolute_differences(Binder &b) {
  only(b, {"add"});
  const bool a = b.type(1) == ptx::Type::s32, other = b.type(2) == ptx::Type::s32;
  if (a)
    return other ? bind_with_sum<Signed, Signed>(b) : bind_with_sum<Signed, Unsigned>(b);
  return other ? bind_with_sum<Unsigned, Signed>(b) : bind_with_sum<Unsigned, Unsigned>(b);
}

constexpr TableEntry kTable[] = {
    {"vabsdiff2", bind_absolute_differences<std::uint16_t, std::int16_t>},
    {"vabsdiff4", bind_absolute_differences<std::uint8_t, std::int8_t>},
};

} // namespace

std::span<const TableEntry> video_table() { return kTable; }

} // namespace ladder::instructions
