// Matrix descriptors of wgmma: the layout of an operand in shared memory. PTX ISA, "Asynchronous Warpgroup
// Level Matrix Shared Memory Layout" and "Matrix Descriptor Format".
#pragma once

#include "machine/swizzle.h"

#include <cstdint>

namespace ladder::instructions {

using machine::Swizzle;
using machine::swizzle_span;
using machine::swizzled;

struct MatrixDescriptor {
  std::uint32_t start = 0, leading = 0, stride = 0; ///< bytes
  std::uint32_t base_offset = 0;
  Swizzle swizzle = Swizzle::none;

  static MatrixDescriptor decode(std::uint64_t bits) {
    constexpr Swizzle kModes[] = {Swizzle::none, Swizzle::b128, Swizzle::b64, Swizzle::b32};
    return {.start = std::uint32_t(bits & 0x3fff) << 4,
            .leading = std::uint32_t(bits >> 16 & 0x3fff) << 4,
            .stride = std::uint32_t(bits >> 32 & 0x3fff) << 4,
            .base_offset = std::uint32_t(bits >> 49 & 7),
            .swizzle = kModes[bits >> 62]};
  }
};

/// An operand of a product as 16-byte chunks. K-major: chunk (group, row, c) is the c-th half of row 8 *
/// group + row. MN-major: elements 8 * group .. + 7 of line 8 * c + row along k.
class OperandPlaces {
public:
  OperandPlaces(std::uint64_t descriptor, bool mn_major)
      : OperandPlaces(MatrixDescriptor::decode(descriptor), mn_major) {}
  OperandPlaces(const MatrixDescriptor &at, bool mn_major) : at_(at), mn_major_(mn_major) {
    span_ = swizzle_span(at_.swizzle);
  }

  /// Where the descriptor's offsets alone would put the chunk.
  std::uint32_t plain_chunk(std::uint32_t group, std::uint32_t row, std::uint32_t c) const {
    return first(group, c) + row * span_;
  }
  /// The chunk's address in shared memory.
  std::uint32_t chunk(std::uint32_t group, std::uint32_t row, std::uint32_t c) const {
    return swizzled(plain_chunk(group, row, c), at_.swizzle, at_.base_offset);
  }
  /// Calls f(row, address) for the eight rows of a group's chunk.
  template <typename F> void for_rows(std::uint32_t group, std::uint32_t c, F f) const {
    const std::uint32_t bits = span_ / 16 - 1; // how many chunks of a line the swizzle permutes
    std::uint32_t address = first(group, c);
    for (std::uint32_t row = 0; row < 8; ++row, address += span_)
      f(row, address ^ ((address >> 7) - at_.base_offset & bits) << 4);
  }
  /// An upper bound for the end of the two chunks along k. A chunk stays in its 128-byte line when swizzled.
  std::uint32_t end(std::uint32_t groups) const {
    constexpr std::uint32_t kLine = 128;
    const std::uint32_t last = groups - 1, abreast = span_ / 16;
    std::uint32_t address = at_.start + 7 * span_;
    if (at_.swizzle == Swizzle::none)
      address += last * at_.stride + at_.leading;
    else if (mn_major_)
      address += last / abreast * at_.leading + (abreast - 1) * 16 + at_.stride;
    else
      address += last * at_.stride + 16;
    return (address + kLine) / kLine * kLine;
  }
  std::uint32_t begin() const { return at_.start / 128 * 128; }
  const MatrixDescriptor &descriptor() const { return at_; }

private:
  /// The address of row 0, before the swizzle.
  std::uint32_t first(std::uint32_t group, std::uint32_t c) const {
    if (at_.swizzle == Swizzle::none)
      return at_.start + group * at_.stride + c * at_.leading;
    if (!mn_major_)
      return at_.start + group * at_.stride + c * 16;
    const std::uint32_t abreast = span_ / 16;
    return at_.start + group / abreast * at_.leading + group % abreast * 16 + c * at_.stride;
  }

  MatrixDescriptor at_;
  bool mn_major_;
  std::uint32_t span_;
};

} // namespace ladder::instructions
