// Swizzle modes of TMA and wgmma: permutations of 16-byte chunks of shared memory. PTX ISA, "Swizzling
// Modes".
#pragma once

#include <cstdint>

namespace ladder::machine {

/// Chunks are permuted within rows of this many bytes, by the row number modulo 2, 4 or 8.
enum class Swizzle : std::uint32_t { none, b32, b64, b128 };

constexpr std::uint32_t swizzle_span(Swizzle mode) {
  return mode == Swizzle::none ? 16 : 16u << std::uint32_t(mode);
}

/// XORs bits of the shared address itself: b128 XORs bits 4-6 with bits 7-9, b64 bits 4-5 with 7-8, b32 bit 4
/// with 7.
constexpr std::uint32_t swizzled(std::uint32_t address, Swizzle mode, std::uint32_t base_offset = 0) {
  const std::uint32_t mask = swizzle_span(mode) / 16 - 1;
  return address ^ ((((address >> 7) - base_offset) & mask) << 4);
}

} // namespace ladder::machine
