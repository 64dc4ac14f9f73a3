// tcgen05: tensor memory and its products. PTX ISA, "TensorCore 5th Generation Family Instructions".
#pragma once

#include "instructions/binder.h"
#include "machine/bulk.h"
#include "machine/tensor_core.h"
#include "machine/warp.h"

#include <cstdint>
#include <vector>

namespace ladder::instructions {

/// Arrivals of commits on this mbarrier of the block: executes the work before each, in order, until the
/// phase is complete. Runs only when a thread looks at the mbarrier.
void land_commits(machine::Block &block, std::uint32_t mbarrier);

/// As send_to_cluster; the destination and the mbarrier may be in different blocks of a pair.
void send_to_pair(machine::Warp &warp, int lane, std::uint64_t destination, std::uint64_t mbarrier,
                  machine::BulkCopyInFlight copy);

/// A part of a tensor memory address, as in `[taddr + 8]`.
struct TensorAddress {
  std::uint32_t slot;
  std::int32_t offset;
};
TensorAddress tensor_address(Binder &binder, const program::Operand &operand);

/// The lane that an address names. Bits 30 and 31 may number a byte of a scale factor, and CTA 1 of a pair
/// may count its lanes from 128.
constexpr std::uint32_t tensor_lane(std::uint32_t address) {
  return address >> 16 & (machine::TensorMemory::kLanes - 1);
}
constexpr std::uint32_t tensor_column(std::uint32_t address) { return address & 0xffff; }

/// The lanes and columns of a warp's registers. PTX ISA, "Tensor Memory Load and Store".
struct TensorLayout {
  enum class Shape : std::uint32_t { x32, x16_64, x16_128, x16_256, x16_32x2 };
  Shape shape;
  bool packs; ///< a register holds the low halves of two columns
  std::uint32_t registers;
  std::int32_t second_half; ///< x16_32x2: the first column of lanes 16 to 31

  /// Of register r of the warp's lane t, relative to the address; the first column of two.
  std::uint32_t lane(std::uint32_t t, std::uint32_t r) const;
  std::uint32_t column(std::uint32_t t, std::uint32_t r) const;
  std::uint32_t columns() const; ///< one past the highest
};

/// What a tcgen05.ld or tcgen05.st of this warp accesses.
struct TensorTransferPlace {
  TensorLayout layout;
  std::uint32_t address;      ///< as the program gives it
  std::uint32_t lane, column; ///< the first ones; the lanes are those of the warp's quarter
};
/// Throws FaultError if the lanes of the warp give different addresses, or for columns that are not
/// allocated.
TensorTransferPlace tensor_transfer_place(machine::Warp &warp, const machine::Instruction &in);

/// The blocks that an instruction of this cta_group uses: a pair has the even rank first.
std::vector<machine::Block *> tensor_group(machine::Block &block, bool is_pair);
/// Rejects the instruction without .cta_group.
bool is_pair(const Binder &binder);

/// One mbarrier that a lane's tcgen05.commit arrives on.
struct CommitTarget {
  machine::Block *block;
  std::uint32_t mbarrier; ///< its address
};
std::vector<CommitTarget> commit_targets(machine::Warp &warp, const machine::Instruction &in, int lane);

bool bind_tensor_product(Binder &binder);
bool bind_tensor_copy(Binder &binder);

} // namespace ladder::instructions
