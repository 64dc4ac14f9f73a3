// Encoding of cp.async. Operands: op[0] the destination address (its offset in imm), op[1] the source address
// (its offset in more[0..1], low half first), op[2] the source size or the ignore-src predicate.
#pragma once

#include "instructions/addressing.h"

#include <cstdint>

namespace ladder::instructions::async_copy {

/// 3 bits: Binder::Address::Base of the source.
inline constexpr std::uint32_t kSourceBaseShift = kAddressFlagBits;
inline constexpr std::uint32_t kSourceGeneric = 1u << 11;
inline constexpr std::uint32_t kSizeShift = 12; ///< 5 bits: bytes to write
inline constexpr std::uint32_t kHasSourceSize = 1u << 17;
inline constexpr std::uint32_t kHasIgnore = 1u << 18;
inline constexpr std::uint32_t kIgnoreNegated = 1u << 19;

inline unsigned bytes_written(const machine::Instruction &in) { return in.flags >> kSizeShift & 31; }

/// Bytes that a lane reads from its source; the rest of the destination is zero-filled.
inline unsigned bytes_read(machine::Warp &warp, const machine::Instruction &in, int lane) {
  if (in.flags & kHasIgnore) {
    const std::uint32_t ignored = warp.predicate(in.op[2]) ^ (in.flags & kIgnoreNegated ? ~0u : 0u);
    return ignored >> lane & 1 ? 0 : bytes_written(in);
  }
  return in.flags & kHasSourceSize ? warp.lanes<std::uint32_t>(in.op[2])[lane] : bytes_written(in);
}

/// The source addresses of the lanes.
inline void source_addresses(machine::Warp &warp, const machine::Instruction &in,
                             std::uint64_t (&addresses)[32]) {
  const std::uint32_t *const more = warp.more(in);
  const auto offset = std::int64_t(more[0] | std::uint64_t(more[1]) << 32);
  lane_addresses(warp, Binder::Address::Base(in.flags >> kSourceBaseShift & 7), in.op[1], offset, addresses);
}

} // namespace ladder::instructions::async_copy
