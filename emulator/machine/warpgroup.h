// A warpgroup: four warps whose tensor cores work together, and their products in flight.
//
// A product (wgmma.mma_async) starts once all four warps have issued it, and products execute in issue order.
// The emulator executes each as late as the program allows: when a warp waits for it, it reads the operands
// in shared memory and writes the results, for all four warps. So a program that overwrites an operand too
// early computes a wrong result. Accesses to registers of a product in flight cannot change its result: ptxas
// inserts a wait.
#pragma once

#include "machine/code.h"

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

namespace ladder::machine {

class Block;
class Warp;
struct Frame;

inline constexpr int kWarpsOfGroup = 4;

/// One warp's part of a product in flight.
struct Product {
  const Instruction *instruction = nullptr;
  std::shared_ptr<Frame> frame;           ///< holds the accumulators
  std::uint64_t a = 0, b = 0;             ///< matrix descriptors; `a` is 0 if A is in registers
  bool accumulates = true;                ///< scale-d
  std::vector<std::uint32_t> a_fragments; ///< A from registers, copied at issue: [register][lane]
};

/// The parts of the four warps, by warp.
using WholeProduct = std::array<const Product *, kWarpsOfGroup>;
using CarryOut = void (*)(Block &block, const WholeProduct &product);

class Warpgroup {
public:
  Warpgroup(Block &block, int first_warp) : block_(&block), first_warp_(first_warp) {}

  /// Issues a product; `d_slots` are its accumulators. Throws bad_operand if the group's other warps issued a
  /// different product next.
  void issue(Warp &warp, Product product, const std::uint32_t *d_slots, std::uint32_t d_count);
  void commit(Warp &warp);
  /// Executes all but the newest `pending` groups of the warp. Returns false if that must wait for another
  /// warp.
  bool wait(Warp &warp, std::size_t pending);

  bool has_in_flight(int warp) const { return members_[std::size_t(warp - first_warp_)].issued > done_; }
  /// Executes products in flight and writes one of the accumulators at `slots`, or all if `slots` is nullptr.
  /// Returns false if that must wait for another warp.
  bool settle(Warp &warp, const std::uint32_t *slots, std::size_t count);
  /// For messages: this warp's products that other warps of the group have not issued.
  std::string describe_missing(const Warp &warp) const;

private:
  struct Member {
    std::deque<Product> products;                ///< starting with number `done_`
    std::deque<std::uint64_t> groups;            ///< for each committed group: one past its last product
    std::vector<std::uint64_t> last_by_register; ///< by slot / kSlotBytes: one past its last writer
    std::uint64_t issued = 0;
  };
  static constexpr std::uint32_t kSlotBytes = 64;

  Member &member(const Warp &warp);
  const Member &member(const Warp &warp) const;
  bool carry_out_until(std::uint64_t number);

  Block *block_;
  int first_warp_;
  std::array<Member, kWarpsOfGroup> members_;
  std::uint64_t done_ = 0; ///< number of products executed
};

/// For messages: what a warp waits for if the group's other warps have not issued its products
/// (Warp::Describe).
std::string describe_missing_products(Warp &waiting);

/// The CarryOut of an instruction, which the binder left in `imm`.
inline CarryOut carry_out_of(const Instruction &instruction) {
  return reinterpret_cast<CarryOut>(std::uintptr_t(instruction.imm));
}

} // namespace ladder::machine
