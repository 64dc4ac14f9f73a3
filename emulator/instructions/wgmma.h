// Flags in the encoding of wgmma.mma_async, for the sanitizer.
#pragma once

#include "machine/swizzle.h"
#include "machine/warp.h"

#include <cstdint>
#include <vector>

namespace ladder::instructions {

inline constexpr std::uint32_t kWgmmaAInRegisters = 1u << 0;
inline constexpr std::uint32_t kWgmmaTransposesA = 1u << 4; ///< A is MN-major
inline constexpr std::uint32_t kWgmmaTransposesB = 1u << 5;
inline constexpr std::uint32_t kWgmmaHalves = 1u << 7; ///< 16-bit operands

/// A 16-byte chunk of an operand in shared memory.
struct OperandChunk {
  std::uint32_t address;    ///< as the program sees it
  machine::Swizzle swizzle; ///< from the operand's matrix descriptor
};
/// All chunks that a product reads from shared memory: A's unless A is in registers, then B's.
std::vector<OperandChunk> operand_chunks(machine::Warp &warp, const machine::Instruction &in);

} // namespace ladder::instructions
