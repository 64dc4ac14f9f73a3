// A warpgroup: four warps whose tensor cores work together, and the products that they have in flight.
//
// A product (wgmma.mma_async) begins once all four warps have issued it, and products are carried out in the
// order of their issue. Here each is carried out as late as the program allows, which is when a warp waits
// for it: then its operands in shared memory are read, for all four warps, and its results are written. So a
// program that changes an operand too early computes something else. What a warp does to the registers of a
// product in flight cannot change its result: ptxas waits there.
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

/// One warp's part of a product that is in flight.
struct Product {
  const Instruction *instruction = nullptr;
  std::shared_ptr<Frame> frame;           ///< holds the accumulators
  std::uint64_t a = 0, b = 0;             ///< matrix descriptors; `a` is 0 when A is in registers
  bool accumulates = true;                ///< scale-d
  std::vector<std::uint32_t> a_fragments; ///< A from registers, as they were: [register][lane]
};

/// The parts of the four warps, by warp.
using WholeProduct = std::array<const Product *, kWarpsOfGroup>;
using CarryOut = void (*)(Block &block, const WholeProduct &product);

class Warpgroup {
public:
  Warpgroup(Block &block, int first_warp) : block_(&block), first_warp_(first_warp) {}

  /// The warp issues a product; `d_slots` are its accumulators. Throws bad_operand when it is another one
  /// than the group's other warps have issued as their next.
  void issue(Warp &warp, Product product, const std::uint32_t *d_slots, std::uint32_t d_count);
  void commit(Warp &warp);
  /// Carries out all but the newest `pending` groups of the warp. False when that must wait for another warp.
  bool wait(Warp &warp, std::size_t pending);

  bool has_in_flight(const Warp &warp) const;
  /// Carries out what is in flight and writes one of the accumulators at `slots`, or everything when `slots`
  /// is nullptr. False when that must wait for another warp.
  bool settle(Warp &warp, const std::uint32_t *slots, std::size_t count);
  /// Products of this warp that others of the group have not issued yet, for messages.
  std::string describe_missing(const Warp &warp) const;

private:
  struct Member {
    std::deque<Product> products;                ///< from number `done_` on
    std::deque<std::uint64_t> groups;            ///< for each committed group the number after its last
    std::vector<std::uint64_t> last_by_register; ///< by slot / kSlotBytes: the number after the last writer's
    std::uint64_t issued = 0;
  };
  static constexpr std::uint32_t kSlotBytes = 64;

  Member &member(const Warp &warp);
  const Member &member(const Warp &warp) const;
  bool carry_out_until(std::uint64_t number);

  Block *block_;
  int first_warp_;
  std::array<Member, kWarpsOfGroup> members_;
  std::uint64_t done_ = 0; ///< products that have been carried out
};

/// What a warp waits for whose products the others of its group have not issued (Warp::Describe).
std::string describe_missing_products(Warp &waiting);

/// An instruction's CarryOut: the handler's own word of the instruction.
inline CarryOut carry_out_of(const Instruction &instruction) {
  return reinterpret_cast<CarryOut>(std::uintptr_t(instruction.imm));
}

} // namespace ladder::machine
