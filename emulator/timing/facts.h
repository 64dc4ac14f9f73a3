// What the model of time knows of a kernel before it runs: what each PTX instruction does, which registers it
// reads and writes, and where ptxas has put it.
#pragma once

#include "machine/code.h"
#include "timing/machine_kernel.h"

#include <cstdint>
#include <string>
#include <vector>

namespace ladder::timing {

enum class Kind : std::uint8_t {
  plain,
  memory, ///< loads, stores, atomics, ldmatrix, stmatrix; what they cost is seen when they run
  shuffle,
  mma,
  product,
  product_commit,
  product_wait,
  copy, ///< cp.async
  copy_commit,
  copy_wait,
  copy_arrive,
  bulk_copy,
  bulk_commit,
  bulk_wait,
  mbarrier_init,
  mbarrier_arrive,
  mbarrier_wait,
  block_barrier,
  fence,
  unknown, ///< the model has no cost for it
};

/// One PTX instruction.
struct Fact {
  Kind kind = Kind::plain;
  Pipe pipe = Pipe::other; ///< of the machine instruction that does its work
  bool exists = false;     ///< ptxas has kept it
  bool arrives = false;    ///< at a barrier, without waiting
  bool only_reads = false; ///< bulk_wait
  bool a_in_registers = false;
  bool leads = false;    ///< a branch may lead here, or comes just before
  std::uint32_t n = 0;   ///< product: columns; waits: groups that may be pending
  double operations = 0; ///< of a matrix product, for 16-bit inputs that would take as long; per warp
  std::vector<std::uint32_t> reads, writes; ///< numbers of registers
};

/// What a warp issues for one machine instruction.
struct Slot {
  std::uint32_t pc = 0;
  Pipe pipe = Pipe::other;
  std::uint8_t stall = 0; ///< 0: no machine instruction; the register is another one's
  bool is_main = false;   ///< does the PTX instruction's work
};

class Facts {
public:
  Facts(const machine::Code &code, const MachineKernel &kernel);

  const Fact &operator[](std::uint32_t pc) const { return facts_[pc]; }
  std::uint32_t registers() const { return registers_; }
  /// Whether what an execution costs is recorded.
  bool is_recorded(std::uint32_t pc) const { return facts_[pc].kind != Kind::plain; }
  /// In ptxas's order, what a warp issues for the PTX instructions from `first` to `last`, which have no
  /// branch between them.
  std::vector<Slot> slots(std::uint32_t first, std::uint32_t last) const;
  /// What the model does not know about the kernel; empty if nothing.
  const std::string &unknown() const { return unknown_; }

private:
  void describe(const machine::Code &code, std::uint32_t pc);
  void find_leaders(const machine::Code &code);
  void find_copies();
  void divide_blocks();
  /// The number of machine instructions that one execution takes, of the line's.
  std::uint32_t per_execution(std::uint32_t pc) const;

  std::vector<Fact> facts_;
  std::vector<std::vector<MachineInstruction>> machine_; ///< by PTX instruction
  std::vector<std::uint32_t> copies_; ///< by PTX instruction: how often ptxas unrolled its block
  std::uint32_t registers_ = 0;
  std::string unknown_;
};

} // namespace ladder::timing
