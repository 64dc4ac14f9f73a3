// A kernel ready to run: its functions' instructions in one array, each with its handler and frame offsets.
#pragma once

#include "program/program.h"

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace ladder::machine {

class Warp;
struct Instruction;

/// Carries out one instruction for the lanes of `warp.active()`, which is never empty.
using Handler = void (*)(Warp &warp, const Instruction &instruction);

inline constexpr std::uint32_t kNoGuard = 0xffffffffu;

/// One decoded instruction: a cache line. Operands are byte offsets into the warp's frame; what each means is
/// agreed between the handler and the function that bound it.
struct alignas(64) Instruction {
  Handler execute = nullptr;
  std::uint32_t guard = kNoGuard; ///< offset of the guard predicate
  std::uint32_t guard_invert = 0; ///< xor-ed to it
  std::uint32_t op[6] = {};       ///< frame offsets: destinations first, then sources
  std::int64_t imm = 0;           ///< an address offset, a branch target, ...
  std::uint32_t flags = 0;        ///< handler specific
  std::uint32_t more_begin = 0;   ///< first of its entries in Code::more, where op[] is too small
  std::uint32_t prologue = 0;     ///< kPrologue... bits: what the warp does before it executes this
  std::uint32_t site = 0;         ///< of an access to memory: its number among those of the kernel
};
inline constexpr std::uint32_t kPrologueGuard = 1;      ///< the guard restricts the lanes
inline constexpr std::uint32_t kPrologueReconverge = 2; ///< some branch reconverges here
inline constexpr std::uint32_t kPrologueSettle = 4;     ///< touches what a product of a warpgroup writes
static_assert(sizeof(Instruction) == 64);

/// How to set up the frame of a function.
struct FrameLayout {
  std::uint32_t entry = 0;             ///< index of its first instruction in Code::instructions
  std::uint32_t register_bytes = 0;    ///< registers (not initialised: a fresh frame holds zeros)
  std::uint32_t frame_bytes = 0;       ///< registers, then constants
  std::vector<std::uint8_t> constants; ///< copied to frame + register_bytes; broadcast over the lanes
  struct SpecialSlot {
    program::Special special;
    std::uint32_t offset;
    bool wide; ///< 32 lanes of uint64_t instead of uint32_t
  };
  std::vector<SpecialSlot> specials;  ///< those that do not change while the warp runs
  std::uint32_t local_bytes = 0;      ///< a thread
  std::uint32_t param_area_bytes = 0; ///< a thread
  std::uint32_t program_function = 0; ///< index into Program::functions
};

struct Code {
  std::shared_ptr<const program::Program> program;
  program::KernelLayout layout;
  std::string kernel;                                ///< mangled
  std::vector<Instruction> instructions;             ///< of all reachable functions, the entry's first
  std::vector<std::uint32_t> more;                   ///< operand lists that do not fit Instruction::op
  std::vector<FrameLayout> frames;                   ///< by order of layout.functions
  std::vector<const program::Instruction *> sources; ///< for each instruction, what it was made from
  std::vector<std::uint32_t> owner; ///< for each instruction, the index of its function's FrameLayout
  std::uint32_t memory_sites = 0;   ///< how many instructions have a site
  std::vector<std::uint32_t>
      polls; ///< instructions that a waiting loop is made of (volatile loads, atomics, ...)
  /// Of each instruction with kPrologueSettle, the slots of accumulators that it touches; none: all of them,
  /// since it leaves the function.
  std::unordered_map<std::uint32_t, std::vector<std::uint32_t>> settles;
};

} // namespace ladder::machine
