// Counters of each PTX instruction.
#pragma once

#include "machine/bank_model.h"
#include "machine/swizzle.h"

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace ladder::machine {

/// The hardware counter that an access contributes to.
enum class AccessKind : std::uint8_t {
  none,
  shared_load, ///< ld.shared, and generic loads that hit shared memory
  shared_store,
  ldmatrix, ///< counts as a load
  stmatrix, ///< counts as a store
  shared_atomic,
  async_copy,     ///< cp.async: writes shared memory, reads global memory
  tma_load,       ///< bulk and tensor copies to shared memory
  tma_store,      ///< bulk and tensor copies from shared memory
  matrix_operand, ///< wgmma: reads shared memory
  global_load,
  global_store,
  global_atomic,
  local_load,
  local_store,
};

/// One instruction's traffic of one kind.
struct AccessCounters {
  std::uint64_t executed = 0;   ///< warp instructions with an access of this kind
  std::uint64_t wavefronts = 0; ///< shared memory
  std::uint64_t passes = 0;
  std::uint64_t conflicts = 0;
  std::uint64_t ideal = 0;
  std::uint64_t sectors = 0; ///< global memory: distinct 32-byte sectors, summed over requests
  std::uint64_t bytes = 0;   ///< bulk copies: bytes read from or written to global memory
  /// Executions whose cost the model does not know; the sums exclude them.
  std::uint64_t unmodelled = 0;

  AccessCounters &operator+=(const AccessCounters &other);
};

/// Counters of one instruction. A generic ld may access both shared and global memory, so there is room for
/// two kinds.
struct InstructionCounters {
  AccessKind kind[2] = {AccessKind::none, AccessKind::none};
  AccessCounters access[2];

  /// The counters of `wanted`; claims a free slot on first use.
  AccessCounters &of(AccessKind wanted) {
    const int place = kind[0] == wanted || kind[0] == AccessKind::none ? 0 : 1;
    kind[place] = wanted;
    return access[place];
  }
};

/// One shared memory access of an instruction, with the addresses that determine its cost.
struct SharedAccess {
  SharedCostCache::Op op = SharedCostCache::Op::load;
  unsigned width = 0;        ///< bytes per lane, or tiles of a matrix access
  std::uint32_t active = 0;  ///< lanes that took part
  LaneAddresses addresses{}; ///< valid for active lanes only
  SharedCost cost;
  std::uint64_t block = 0; ///< linear index
  int warp = 0;
};

/// The operands in shared memory of a product of a warpgroup.
struct ProductOperands {
  struct Operand {
    std::uint64_t descriptor = 0;
    bool mn_major = false;
    std::uint32_t groups = 0; ///< of 8 rows of A, 8 columns of B
  };
  std::optional<Operand> a; ///< nullopt: in registers
  Operand b;
  std::uint64_t block = 0; ///< linear index
  int warp = 0;
};

/// A box of a tensor that TMA moves.
struct TensorBox {
  std::uint32_t address = 0; ///< in shared memory
  unsigned element_bytes = 0;
  Swizzle swizzle = Swizzle::none;
  std::vector<std::uint32_t> elements; ///< by dimension, the innermost first
  std::vector<std::int32_t> coordinates;
  std::uint64_t block = 0; ///< linear index
  int warp = 0;
};

/// One instruction's asynchronous copies to or from shared memory, in the first block alone.
struct AsyncCopies {
  std::uint64_t count = 0;
  std::unordered_set<std::uint32_t> places; ///< distinct addresses in shared memory, of the first lane
};

/// Indexed by instruction in a Code.
struct Counters {
  std::vector<std::uint64_t> executed; ///< warp instructions issued, predicated-off ones included
  /// Sum of lanes that did not take part: threads = 32 * executed - idle_lanes.
  std::vector<std::uint64_t> idle_lanes;
  std::vector<InstructionCounters> access;
  /// For each instruction that accessed shared memory, the access with the most conflicts; ties go to the
  /// lowest block, then to the first access.
  std::unordered_map<std::uint32_t, SharedAccess> worst;
  /// For each instruction that has any, those of the first execution in the lowest block.
  std::unordered_map<std::uint32_t, ProductOperands> products;
  std::unordered_map<std::uint32_t, TensorBox> boxes;
  std::unordered_map<std::uint32_t, AsyncCopies> copies;

  /// Keeps the access if it is the instruction's worst so far.
  void note(std::uint32_t instruction, const SharedAccess &candidate);
  /// Keeps what is the instruction's first so far, in the lowest block.
  void note(std::uint32_t instruction, const ProductOperands &candidate);
  void note(std::uint32_t instruction, const TensorBox &candidate);
  /// Counts an asynchronous copy of the first block.
  void note_copy(std::uint32_t instruction, std::uint32_t shared_address) {
    AsyncCopies &all = copies[instruction];
    ++all.count;
    all.places.insert(shared_address);
  }

  explicit Counters(std::size_t instructions = 0)
      : executed(instructions), idle_lanes(instructions), access(instructions) {}
  Counters &operator+=(const Counters &other);
};

} // namespace ladder::machine
