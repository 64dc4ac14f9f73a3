// Encoding of warp-wide exchanges: their members, and the source lanes of a shuffle.
#pragma once

#include "machine/warp.h"

#include <cstdint>

namespace ladder::instructions {

/// Operand index of the register that names the members. Two values stand for no register: the form is not
/// .sync, or the members are a constant in `imm`.
inline constexpr int kMembers = 5;
inline constexpr std::uint32_t kNoMembers = 0xffffffffu, kConstantMembers = 0xfffffffeu;

/// The members that a lane names; all lanes if the form has none.
inline std::uint32_t members_of(machine::Warp &warp, const machine::Instruction &in, int lane) {
  if (in.op[kMembers] == kNoMembers)
    return machine::kAllLanes;
  return in.op[kMembers] == kConstantMembers ? static_cast<std::uint32_t>(in.imm)
                                             : warp.lanes<std::uint32_t>(in.op[kMembers])[lane];
}

enum class Shuffle : std::uint32_t { up, down, bfly, idx };
/// A shuffle's flags: whether it writes a predicate, and above that its mode.
inline constexpr std::uint32_t kWritesPredicate = 1, kShuffleShift = 1;
inline Shuffle shuffle_mode(const machine::Instruction &in) { return Shuffle(in.flags >> kShuffleShift); }

/// The lane that `lane` reads from; bit 5 is set if the requested lane is out of range.
[[gnu::always_inline]] inline std::uint32_t source_lane(Shuffle mode, int lane, std::uint32_t b_bits,
                                                        std::uint32_t c_bits) {
  const int b = static_cast<int>(b_bits & 31);
  const int segment = static_cast<int>(c_bits >> 8 & 31), clamp = static_cast<int>(c_bits & 31);
  const int first = lane & segment, last = first | (clamp & ~segment);
  const int j = mode == Shuffle::up     ? lane - b
                : mode == Shuffle::down ? lane + b
                : mode == Shuffle::bfly ? lane ^ b
                                        : first | (b & ~segment);
  const bool in_range = mode == Shuffle::up ? j >= last : j <= last;
  return static_cast<std::uint32_t>(in_range ? j : lane | 32);
}

} // namespace ladder::instructions
