// How the machine code's memory accesses differ from the PTX's: ptxas merges scalar accesses to shared memory
// at neighbouring addresses into one wide access, and drops loads of what a register already holds.
#pragma once

#include "machine/code.h"

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

namespace ladder::instructions {

/// A machine instruction that accesses memory.
struct MachineAccess {
  enum class Kind {
    global_load,
    load, ///< this and the following: shared memory
    store,
    atomic,    ///< ATOMS
    increment, ///< ATOMS.POPC.INC
  };
  Kind kind = Kind::load;
  unsigned bytes = 0; ///< per lane
  bool operator==(const MachineAccess &) const = default;
};

/// By PTX line; several if code was unrolled or duplicated.
using MachineAccesses = std::unordered_map<int, std::vector<MachineAccess>>;

// Bits of Instruction::flags for loads and stores: how to count an access. All zero: as written.
inline constexpr std::uint32_t kNotCounted = 1u << 15;   ///< ptxas drops it, or another access counts for it
inline constexpr std::uint32_t kUnknownWidth = 1u << 16; ///< the machine code's widths differ or do not fit
inline constexpr std::uint32_t kCountedAs8 = 1u << 17, kCountedAs16 = 1u << 18;
inline constexpr int kBackShift = 19; ///< 4 bits: this address minus the wide access's start, in bytes
inline constexpr std::uint32_t kMergeFlags = 0xfu << 15;
// For atomics:
inline constexpr std::uint32_t kIsNative = 1u << 15;    ///< one ATOMS
inline constexpr std::uint32_t kIsIncrement = 1u << 16; ///< one ATOMS.POPC.INC

/// Returns the code with these flags set; the same code if the machine code splits accesses as the PTX does.
std::shared_ptr<const machine::Code> divide_accesses(std::shared_ptr<const machine::Code> code,
                                                     const MachineAccesses &accesses);

} // namespace ladder::instructions
