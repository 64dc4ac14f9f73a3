// mbarrier objects, as stored in shared memory.
#pragma once

#include "instructions/addressing.h"
#include "machine/block.h"
#include "machine/fault.h"

#include <cstdint>
#include <cstring>
#include <string>

namespace ladder::instructions {

/// The 64 bits of an mbarrier object; the manual leaves the layout open. A phase completes once no arrivals
/// are pending and no bytes are expected.
struct Mbarrier {
  std::uint32_t expected = 0; ///< arrivals that the next phase expects, 20 bits
  std::uint32_t pending = 0;  ///< arrivals that this phase still needs, 20 bits
  std::int32_t bytes = 0;     ///< tx-count, 21 bits
  std::uint32_t phase = 0;    ///< parity of the current, incomplete phase

  static constexpr std::uint32_t kMaxCount = (1u << 20) - 1;
  static constexpr std::int32_t kMaxBytes = (1 << 20) - 1;
  /// Matches neither zeros nor the fill pattern of uninitialised shared memory.
  static constexpr std::uint64_t kTag = 1;

  std::uint64_t pack() const {
    return expected | std::uint64_t(pending) << 20 | (std::uint64_t(std::uint32_t(bytes)) & 0x1fffff) << 40 |
           std::uint64_t(phase) << 61 | kTag << 62;
  }
  static bool is_valid(std::uint64_t bits) { return bits >> 62 == kTag; }
  static Mbarrier unpack(std::uint64_t bits) {
    Mbarrier barrier;
    barrier.expected = bits & kMaxCount;
    barrier.pending = bits >> 20 & kMaxCount;
    barrier.bytes = std::int32_t(std::uint32_t(bits >> 40) << 11) >> 11;
    barrier.phase = bits >> 61 & 1;
    return barrier;
  }
};

/// A flag of the instructions that wait for a phase: by its parity, not by a state.
inline constexpr std::uint32_t kWaitsByParity = 1u << (kAddressFlagBits + 2);

/// For messages: what the current phase still lacks.
inline std::string describe_mbarrier(std::uint64_t bits) {
  if (!Mbarrier::is_valid(bits))
    return "was never initialised";
  const Mbarrier barrier = Mbarrier::unpack(bits);
  std::string text = "is in phase " + std::to_string(barrier.phase) + " and waits for " +
                     std::to_string(barrier.pending) + " of " + std::to_string(barrier.expected) +
                     " arrivals";
  if (barrier.bytes > 0)
    text += " and " + std::to_string(barrier.bytes) + " bytes";
  if (barrier.bytes < 0)
    text += "; " + std::to_string(-barrier.bytes) + " more bytes have arrived than expected";
  return text;
}

inline Mbarrier load_mbarrier(const std::uint8_t *host, std::uint64_t shared_address, int lane) {
  std::uint64_t bits;
  std::memcpy(&bits, host, sizeof bits);
  if (!Mbarrier::is_valid(bits))
    throw machine::FaultError(machine::FaultKind::bad_operand, "no initialised mbarrier is at this address",
                              lane)
        .at(shared_address);
  return Mbarrier::unpack(bits);
}

/// Advances to the next phase if this one is complete.
inline void settle(machine::Block &block, Mbarrier &barrier) {
  if (barrier.pending != 0 || barrier.bytes != 0)
    return;
  barrier.phase ^= 1;
  barrier.pending = barrier.expected;
  block.note_progress();
}

inline void expect_bytes(Mbarrier &barrier, std::int64_t bytes, int lane) {
  const std::int64_t sum = barrier.bytes + bytes;
  if (sum > Mbarrier::kMaxBytes || sum < -Mbarrier::kMaxBytes)
    throw machine::FaultError(machine::FaultKind::bad_operand, "the tx-count of an mbarrier is out of range",
                              lane);
  barrier.bytes = std::int32_t(sum);
}

} // namespace ladder::instructions
