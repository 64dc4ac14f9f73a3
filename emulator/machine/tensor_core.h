// The tensor core of sm_100a as one block has it: tensor memory, its allocator, and asynchronous work in
// flight.
//
// Everything lands as late as the program allows, so that a missing wait gives a wrong result. A load
// (tcgen05.ld) reads tensor memory at the warp's wait, or when an instruction names one of its registers. A
// store writes it at the wait. Products and copies of a thread execute in order, once a thread looks at the
// mbarrier of a commit behind them.
#pragma once

#include "machine/code.h"

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ladder::machine {

class Block;
class Warp;
struct Frame;

/// 128 lanes of 512 columns of 32 bits. An address has the lane in bits 16 to 31 and the column in bits 0
/// to 15.
class TensorMemory {
public:
  static constexpr std::uint32_t kLanes = 128, kColumns = 512, kLeastColumns = 32;

  TensorMemory();

  std::uint32_t *lane(std::uint32_t lane) { return cells_.data() + std::size_t(lane) * kColumns; }

  struct Allocation {
    std::uint32_t first, columns;
  };
  /// The first column; nullopt while too few are free. Throws bad_operand that names the rule that is broken.
  std::optional<std::uint32_t> allocate(std::uint32_t columns);
  /// Throws bad_operand unless an allocation of this size starts there.
  void free(std::uint32_t first, std::uint32_t columns);
  void relinquish() { is_relinquished_ = true; }
  /// Throws out_of_bounds unless columns [first, first + columns) are allocated.
  void require(std::uint32_t first, std::uint32_t columns) const;
  const std::vector<Allocation> &allocations() const { return allocations_; }
  std::string describe() const; ///< for messages: "columns 0-127 and 256-511 are allocated"

private:
  bool is_free(std::uint32_t first, std::uint32_t columns) const;

  std::vector<std::uint32_t> cells_;
  std::vector<Allocation> allocations_;
  std::uint32_t smallest_ = kColumns; ///< of all allocations so far
  bool is_relinquished_ = false;
};

/// A warp's tcgen05.ld or tcgen05.st in flight.
struct TensorTransfer {
  const Instruction *instruction = nullptr;
  std::shared_ptr<Frame> frame; ///< has a load's registers
  const std::uint32_t *slots = nullptr;
  std::uint32_t registers = 0;
  std::int32_t second_half = 0;       ///< 16x32bx2: the first column of lanes 16 to 31
  std::uint32_t lane = 0, column = 0; ///< the first ones
  std::vector<std::uint32_t> values;  ///< of a store: [register][lane]
  void (*land)(Block &block, const TensorTransfer &transfer) = nullptr;
};

/// The products and copies of one thread.
class TensorQueue {
public:
  void issue(std::function<void()> work) {
    work_.push_back(std::move(work));
    ++issued_;
  }
  std::uint64_t issued() const { return issued_; }
  /// Executes everything before this number.
  void carry_out_until(std::uint64_t number);

private:
  std::deque<std::function<void()>> work_;
  std::uint64_t issued_ = 0;
};

/// A commit whose arrival on an mbarrier of the block has not happened yet.
struct CommitInFlight {
  std::uint32_t mbarrier;
  TensorQueue *queue;   ///< of a thread of the cluster
  std::uint64_t number; ///< it tracks the queue's work before this number
};

class TensorCore {
public:
  explicit TensorCore(std::size_t warps) : loads_(warps), stores_(warps) {}

  TensorMemory &memory() { return memory_; }

  /// All instructions of a kernel use the same cta_group. Throws bad_operand.
  void require_group(std::uint32_t group);

  void issue_load(const Warp &warp, TensorTransfer load);
  void issue_store(const Warp &warp, TensorTransfer store);
  bool has_loads(int warp) const { return !loads_[std::size_t(warp)].empty(); }
  void wait_loads(Warp &warp);
  void wait_stores(Warp &warp);
  /// Lands the loads up to the last one into one of these registers; all of them if `slots` is empty.
  void settle_loads(Warp &warp, const std::vector<std::uint32_t> &slots);

  TensorQueue &queue(int thread) { return queues_[thread]; }
  std::vector<CommitInFlight> &commits() { return commits_; } ///< bound for mbarriers of this block

private:
  using Transfers = std::deque<TensorTransfer>;

  TensorMemory memory_;
  std::uint32_t group_ = 0;               ///< 0: none used yet
  std::vector<Transfers> loads_, stores_; ///< by warp
  std::map<int, TensorQueue> queues_;     ///< by thread; commits refer to them
  std::vector<CommitInFlight> commits_;
};

} // namespace ladder::machine
