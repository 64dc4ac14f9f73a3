// How the machine code divides a kernel's accesses to shared memory, where it is another way than the PTX
// does: ptxas makes one wide access of scalar ones at neighbouring addresses.
#pragma once

#include "machine/code.h"

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

namespace ladder::instructions {

/// An instruction of the machine code that accesses shared memory.
struct MachineAccess {
  enum class Kind {
    load,
    store,
    atomic,    ///< ATOMS
    increment, ///< ATOMS.POPC.INC
  };
  Kind kind = Kind::load;
  unsigned bytes = 0; ///< a lane
  bool operator==(const MachineAccess &) const = default;
};

/// By PTX line; more than one where code was unrolled or copied.
using MachineAccesses = std::unordered_map<int, std::vector<MachineAccess>>;

// In Instruction::flags of loads and stores: how an access counts. All zero: as what it is.
inline constexpr std::uint32_t kPartOfAnother = 1u << 15; ///< counted with another instruction
inline constexpr std::uint32_t kUnknownWidth = 1u << 16;  ///< the machine code's widths differ or do not fit
inline constexpr std::uint32_t kCountedAs8 = 1u << 17, kCountedAs16 = 1u << 18;
inline constexpr int kBackShift = 19; ///< 4 bits: bytes from the wide access's begin to this one's address
inline constexpr std::uint32_t kMergeFlags = 0xfu << 15;
// In those of atomics:
inline constexpr std::uint32_t kIsNative = 1u << 15;    ///< one ATOMS
inline constexpr std::uint32_t kIsIncrement = 1u << 16; ///< one ATOMS.POPC.INC

/// The code with these flags set; the same code when the machine code divides accesses as the PTX does.
std::shared_ptr<const machine::Code> divide_accesses(std::shared_ptr<const machine::Code> code,
                                                     const MachineAccesses &accesses);

} // namespace ladder::instructions
