// Register allocation: slots of registers in a warp's frame.
//
// A kernel from nvcc has thousands of virtual registers, most of them live for a few instructions. Registers
// that are never live at the same time share a slot, which keeps the frame within the host's L1 cache.
//
// Lanes are independent: an instruction writes a register only in the lanes that execute it. So what counts
// is the liveness of each thread, even when the lanes of a warp have diverged. This holds only if a lane of
// one register overlaps nothing but the same lane of another, so registers of different lane widths never
// share a slot.
#pragma once

#include "program/cfg.h"
#include "program/program.h"

#include <cstdint>
#include <functional>
#include <vector>

namespace ladder::program {

/// A virtual register. During resolution, Register::offset of an operand is an index into the list of these.
struct VirtualRegister {
  ptx::Type type = ptx::Type::none;
  /// Instruction index of the declaration in a nested scope; the register does not exist before it. 0 for
  /// those declared at function scope.
  std::uint32_t declared_at = 0;
};

/// How an instruction uses a register.
enum class Use {
  read,
  write,         ///< overwrites all lanes that execute it
  partial_write, ///< guarded or conditional: some lanes may keep their old value
};

/// Calls visit(register, use) for every register of an instruction, reads first.
void visit_registers(Instruction &instruction, const std::function<void(Register &, Use)> &visit);

/// The first and last instruction of a register's life, both inclusive. `first` is 0 if it is live on entry.
struct LiveInterval {
  std::uint32_t first = kNone, last = 0;
  bool is_used() const { return first != kNone; }
};

/// Live intervals, by virtual register.
std::vector<LiveInterval> live_intervals(std::vector<Instruction> &code, const ControlFlow &flow,
                                         const std::vector<VirtualRegister> &registers);

struct Allocation {
  std::uint32_t frame_bytes = 0;
  std::vector<std::uint32_t> offsets; ///< by virtual register; kNone if no instruction uses it
};

/// Assigns every register an offset. Registers that share a slot have the same lane width, and no instruction
/// writes a slot that it reads under another name. With `keeps_values` they share none, so that a debugger
/// can read each at any time.
Allocation allocate_registers(std::vector<Instruction> &code, const ControlFlow &flow,
                              const std::vector<VirtualRegister> &registers, bool keeps_values);

} // namespace ladder::program
