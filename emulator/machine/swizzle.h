// The swizzles that TMA writes and wgmma reads: 16-byte chunks of shared memory change places.
// PTX ISA, "Swizzling Modes".
#pragma once

#include <cstdint>

namespace ladder::machine {

/// Chunks change places within rows of this many bytes, by the row's number modulo 2, 4 or 8.
enum class Swizzle : std::uint32_t { none, b32, b64, b128 };

constexpr std::uint32_t swizzle_span(Swizzle mode) {
  return mode == Swizzle::none ? 16 : 16u << std::uint32_t(mode);
}

/// The XOR works on the bits of the shared address itself: of 128 bytes bits 4-6 by bits 7-9, of 64 bits 4-5
/// by 7-8, of 32 bit 4 by 7.
constexpr std::uint32_t swizzled(std::uint32_t address, Swizzle mode, std::uint32_t base_offset = 0) {
  const std::uint32_t mask = swizzle_span(mode) / 16 - 1;
  return address ^ ((((address >> 7) - base_offset) & mask) << 4);
}

} // namespace ladder::machine
