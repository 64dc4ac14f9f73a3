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
      : at_(MatrixDescriptor::decode(descriptor)), mn_major_(mn_major) {
    span_ = swizzle_span(at_.swizzle);
  }

  /// The chunk's address in shared memory.
  std::uint32_t chunk(std::uint32_t group, std::uint32_t row, std::uint32_t c) const {
    std::uint32_t address = at_.start + row * span_;
    if (at_.swizzle == Swizzle::none)
      address += group * at_.stride + c * at_.leading;
    else if (mn_major_)
      address += group / (span_ / 16) * at_.leading + group % (span_ / 16) * 16 + c * at_.stride;
    else
      address += group * at_.stride + c * 16;
    return swizzled(address, at_.swizzle, at_.base_offset);
  }
  const MatrixDescriptor &descriptor() const { return at_; }

private:
  MatrixDescriptor at_;
  bool mn_major_;
  std::uint32_t span_;
};

} // namespace ladder::instructions
