#include "machine/tensor_core.h"

#include "machine/block.h"
#include "machine/liberties.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace ladder::machine {

namespace {

std::string columns_text(std::uint32_t first, std::uint32_t columns) {
  return std::to_string(first) + "-" + std::to_string(first + columns - 1);
}

[[noreturn]] void reject(const std::string &message) { throw FaultError(FaultKind::bad_operand, message); }

} // namespace

// --- tensor memory

TensorMemory::TensorMemory()
    : cells_(std::size_t(kLanes) * kColumns, 0x01010101u * Liberties::current().unwritten) {}

bool TensorMemory::is_free(std::uint32_t first, std::uint32_t columns) const {
  return std::ranges::none_of(allocations_, [&](const Allocation &one) {
    return first < one.first + one.columns && one.first < first + columns;
  });
}

std::optional<std::uint32_t> TensorMemory::allocate(std::uint32_t columns) {
  if (columns < kLeastColumns || columns > kColumns || !std::has_single_bit(columns))
    reject("an allocation of " + std::to_string(columns) +
           " columns of tensor memory: the number must be a power of two from 32 to 512");
  if (is_relinquished_)
    reject("an allocation of tensor memory after tcgen05.relinquish_alloc_permit: the block has given up its "
           "right "
           "to allocate");
  if (columns > smallest_)
    reject("an allocation of " + std::to_string(columns) + " columns of tensor memory after one of " +
           std::to_string(smallest_) + ": a later allocation may not be larger than an earlier one");
  for (std::uint32_t first = 0; first + columns <= kColumns; first += kLeastColumns)
    if (is_free(first, columns)) {
      allocations_.push_back({first, columns});
      smallest_ = columns;
      return first;
    }
  return std::nullopt;
}

void TensorMemory::free(std::uint32_t first, std::uint32_t columns) {
  const auto found = std::ranges::find(allocations_, first, &Allocation::first);
  if (found == allocations_.end())
    reject("tcgen05.dealloc of column " + std::to_string(first) +
           ", where no allocation starts: " + describe());
  if (found->columns != columns)
    reject("tcgen05.dealloc of " + std::to_string(columns) + " columns at column " + std::to_string(first) +
           ", where " + std::to_string(found->columns) + " are allocated");
  allocations_.erase(found);
}

void TensorMemory::require(std::uint32_t first, std::uint32_t columns) const {
  for (std::uint32_t column = first; column < first + columns; ++column)
    if (column >= kColumns || is_free(column, 1))
      throw FaultError(FaultKind::out_of_bounds, "columns " + columns_text(first, columns) +
                                                     " of tensor memory are not allocated: " + describe());
}

std::string TensorMemory::describe() const {
  std::string text;
  for (const Allocation &one : allocations_)
    text += (text.empty() ? "columns " : " and ") + columns_text(one.first, one.columns);
  return text.empty() ? "none are allocated" : text + " are allocated";
}

// --- work in flight

void TensorQueue::carry_out_until(std::uint64_t number) {
  for (std::uint64_t done = issued_ - work_.size(); done < number; ++done) {
    const std::function<void()> work = std::move(work_.front());
    work_.pop_front();
    work();
  }
}

void TensorCore::require_group(std::uint32_t group) {
  if (group_ && group_ != group)
    reject(".cta_group::" + std::to_string(group) + " in a kernel that uses .cta_group::" +
           std::to_string(group_) + ": all tcgen05 instructions of a kernel must use the same");
  group_ = group;
}

void TensorCore::issue_load(const Warp &warp, TensorTransfer load) {
  loads_[std::size_t(warp.index())].push_back(std::move(load));
}

void TensorCore::issue_store(const Warp &warp, TensorTransfer store) {
  stores_[std::size_t(warp.index())].push_back(std::move(store));
}

void TensorCore::wait_loads(Warp &warp) { settle_loads(warp, {}); }

void TensorCore::wait_stores(Warp &warp) {
  Transfers &stores = stores_[std::size_t(warp.index())];
  for (; !stores.empty(); stores.pop_front())
    stores.front().land(warp.block(), stores.front());
}

void TensorCore::settle_loads(Warp &warp, const std::vector<std::uint32_t> &slots) {
  Transfers &loads = loads_[std::size_t(warp.index())];
  const auto is_named = [&](const TensorTransfer &load) {
    const std::uint32_t *const end = load.slots + load.registers;
    return slots.empty() || std::find_first_of(load.slots, end, slots.begin(), slots.end()) != end;
  };
  const auto last = std::find_if(loads.rbegin(), loads.rend(), is_named);
  for (auto left = loads.rend() - last; left > 0; --left) {
    loads.front().land(warp.block(), loads.front());
    loads.pop_front();
  }
}

} // namespace ladder::machine
