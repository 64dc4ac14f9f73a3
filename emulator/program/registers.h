// Places of registers in a warp's frame.
//
// A kernel as nvcc writes it has thousands of virtual registers, most of them live for a few instructions.
// Registers that are never live at the same time share a slot, which keeps the frame within the host's L1
// cache.
//
// Lanes are independent: an instruction writes a register only in the lanes that execute it. So what counts
// is each thread's own liveness, also where lanes of a warp have diverged and stand at different
// instructions. For that to hold, a lane of one register may only ever overlap the same lane of another, so
// registers with lanes of different widths never share a slot.
#pragma once

#include "program/cfg.h"
#include "program/program.h"

#include <cstdint>
#include <functional>
#include <vector>

namespace ladder::program {

/// A virtual register. While a function is resolved, Register::offset of its operands is an index into these.
struct VirtualRegister {
  ptx::Type type = ptx::Type::none;
  /// Instruction index of the scope's declaration, before which the register does not exist; 0 for the
  /// function's own.
  std::uint32_t declared_at = 0;
};

/// How an instruction uses a register.
enum class Use {
  read,
  write,         ///< in all lanes that execute it, whatever was there before
  partial_write, ///< under a guard, or perhaps: lanes keep what they held
};

/// Calls visit(register, use) for every register of an instruction; reads first.
void visit_registers(Instruction &instruction, const std::function<void(Register &, Use)> &visit);

/// First and last instruction of a register's life, both inclusive. A register that lives from the start has
/// first 0.
struct LiveInterval {
  std::uint32_t first = kNone, last = 0;
  bool is_used() const { return first != kNone; }
};

/// Live intervals by virtual register.
std::vector<LiveInterval> live_intervals(std::vector<Instruction> &code, const ControlFlow &flow,
                                         const std::vector<VirtualRegister> &registers);

/// Gives every register of the code its offset and returns the frame's size. Registers that share a slot have
/// the same lane width, and no instruction writes a slot that it also reads under another name.
std::uint32_t allocate_registers(std::vector<Instruction> &code, const ControlFlow &flow,
                                 const std::vector<VirtualRegister> &registers);

} // namespace ladder::program
