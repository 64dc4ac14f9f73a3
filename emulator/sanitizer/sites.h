// The instructions of a kernel that the sanitizer checks, and an instrumented copy of the kernel.
#pragma once

#include "machine/code.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace ladder::sanitizer {

/// Static facts of an instruction beyond its operands. Computed once per kernel.
struct Site {
  machine::Handler original = nullptr;        ///< nullptr: not checked
  machine::Handler next = nullptr;            ///< runs after the guard and the checks of undefined values
  bool is_guarded = false;                    ///< the sanitizer applies the guard
  unsigned bytes = 0;                         ///< per lane
  unsigned element_bytes = 0, lane_bytes = 0; ///< stores: size in memory, in a register
  std::uint32_t used = ~0u;                   ///< loads: mask of used bytes
  std::uint8_t flags = 0;                     ///< Access::Flag
  std::uint64_t traits = 0;                   ///< program::Instruction::traits
  bool passes_l1 = false;                     ///< a load that cannot hit stale data in the L1
  int matrices = 0;                           ///< ldmatrix, stmatrix
  bool stores_constant = false;               ///< a store of a literal
  bool is_mbarrier = false;                   ///< operates on an mbarrier
  std::uint32_t product_uses = 0; ///< list in CheckedCode: the registers of products that it names; 0: none
  std::uint32_t flag = 0;         ///< equal for the instructions that test and set one flag; 0: none
  /// For an access whose address derives from a single shared variable: the variable's range, as offsets in
  /// the block's shared memory. Both 0: unknown.
  std::uint32_t object_begin = 0, object_end = 0;

  bool is(program::Trait trait) const { return traits & trait; }
};

/// An instruction's use of a register that some wgmma.mma_async has, as accumulator or as fragment of A.
struct ProductUse {
  std::uint32_t number;
  bool writes;
};

/// A kernel whose memory accesses and barriers go through the sanitizer first. The original stays unchanged,
/// so that unchecked launches pay nothing.
struct CheckedCode {
  std::shared_ptr<const machine::Code> code;             ///< a copy with checking handlers
  std::vector<Site> sites;                               ///< by instruction
  std::vector<std::vector<ProductUse>> product_uses{{}}; ///< by Site::product_uses
  std::uint32_t product_registers = 0;                   ///< how many there are
  bool uses_async_proxy = false;                         ///< TMA or products of a warpgroup
  bool copies_in_bulk = false;                           ///< TMA
};

/// True if instructions with this effect are checked.
bool is_checked(program::Effect effect);

std::shared_ptr<const CheckedCode> instrument(const machine::Code &code);

} // namespace ladder::sanitizer
