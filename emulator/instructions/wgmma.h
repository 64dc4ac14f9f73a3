// How a wgmma.mma_async is encoded, for those who look at it: its flags.
#pragma once

#include "machine/swizzle.h"
#include "machine/warp.h"

#include <cstdint>
#include <vector>

namespace ladder::instructions {

inline constexpr std::uint32_t kWgmmaAInRegisters = 1u << 0;
inline constexpr std::uint32_t kWgmmaTransposesA = 1u << 4; ///< A lies MN-major
inline constexpr std::uint32_t kWgmmaTransposesB = 1u << 5;
inline constexpr std::uint32_t kWgmmaHalves = 1u << 7; ///< operands of 16 bits

/// 16 bytes of an operand in shared memory.
struct OperandChunk {
  std::uint32_t address;
  machine::Swizzle swizzle; ///< of its matrix descriptor
};
/// All that a product reads of shared memory: A's chunks unless A is in registers, then B's.
std::vector<OperandChunk> operand_chunks(machine::Warp &warp, const machine::Instruction &in);

} // namespace ladder::instructions
