// A kernel ready to run: the instructions of its functions in one array, each with handler and frame offsets.
#pragma once

#include "program/program.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace ladder::machine {

class Warp;
struct Instruction;

/// Executes one instruction for `warp.active()`, which is never empty.
using Handler = void (*)(Warp &warp, const Instruction &instruction);

inline constexpr std::uint32_t kNoGuard = 0xffffffffu;

/// One decoded instruction: one cache line. Operands are byte offsets into the warp's frame; their meaning is
/// a contract between the handler and the function that bound it.
struct alignas(64) Instruction {
  Handler execute = nullptr;
  std::uint32_t guard = kNoGuard; ///< offset of the guard predicate
  std::uint32_t guard_invert = 0; ///< XORed with it
  std::uint32_t op[6] = {};       ///< frame offsets: destinations first, then sources
  std::int64_t imm = 0;           ///< an address offset, a branch target, ...
  std::uint32_t flags = 0;        ///< handler-specific
  std::uint32_t more_begin = 0;   ///< index of its first entry in Code::more, if op[] is too small
  std::uint32_t prologue = 0;     ///< kPrologue... bits: what the warp does before executing this
  std::uint32_t site = 0;         ///< memory accesses: number among the kernel's accesses
};
inline constexpr std::uint32_t kPrologueGuard = 1;      ///< the guard restricts the lanes
inline constexpr std::uint32_t kPrologueReconverge = 2; ///< some branch reconverges here
inline constexpr std::uint32_t kPrologueSettle = 4;     ///< touches accumulators of a warpgroup's product
static_assert(sizeof(Instruction) == 64);

/// How to set up a function's frame.
struct FrameLayout {
  std::uint32_t entry = 0;             ///< index of its first instruction in Code::instructions
  std::uint32_t register_bytes = 0;    ///< registers (a fresh frame is zeroed)
  std::uint32_t frame_bytes = 0;       ///< registers, then constants
  std::vector<std::uint8_t> constants; ///< copied to frame + register_bytes; broadcast to all lanes
  struct SpecialSlot {
    program::Special special;
    std::uint32_t offset;
    bool wide; ///< 32 lanes of uint64_t instead of uint32_t
  };
  std::vector<SpecialSlot> specials; ///< registers that are constant while the warp runs
  /// Constants that are offsets in the block's shared memory; a frame has the block's addresses instead.
  struct SharedAddress {
    std::uint32_t offset;
    bool wide;
  };
  std::vector<SharedAddress> shared_addresses;
  std::uint32_t local_bytes = 0;      ///< per thread
  std::uint32_t param_area_bytes = 0; ///< per thread
  std::uint32_t program_function = 0; ///< index into Program::functions
};

struct Code {
  std::shared_ptr<const program::Program> program;
  program::KernelLayout layout;
  std::string kernel;                                ///< mangled
  std::vector<Instruction> instructions;             ///< all reachable functions, the entry first
  std::vector<std::uint32_t> more;                   ///< operand lists that do not fit Instruction::op
  std::vector<FrameLayout> frames;                   ///< in the order of layout.functions
  std::vector<const program::Instruction *> sources; ///< by instruction: its source
  std::vector<std::uint32_t> owner;                  ///< by instruction: index of its function's FrameLayout
  std::uint32_t memory_sites = 0;                    ///< number of instructions with a site
  /// Polling instructions, of which spin loops consist (volatile loads, atomics, ...).
  std::vector<std::uint32_t> polls;
  /// For each instruction with kPrologueSettle, the accumulator slots that it touches; empty: all of them,
  /// since it leaves the function.
  std::unordered_map<std::uint32_t, std::vector<std::uint32_t>> settles;
  std::span<const std::byte> cubin; ///< ptxas's machine code of the module; empty if absent
};

} // namespace ladder::machine
