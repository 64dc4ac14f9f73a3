#include "sanitizer/heap_memory.h"

#include <algorithm>
#include <iterator>

namespace ladder::sanitizer {

namespace {

constexpr std::uint64_t kMostKept = 4 << 20; ///< half of the default heap

/// The block that starts at or below the address.
const std::pair<const std::uint64_t, HeapMemory::Block> *
below(const std::map<std::uint64_t, HeapMemory::Block> &blocks, std::uint64_t address) {
  const auto above = blocks.upper_bound(address);
  return above == blocks.begin() ? nullptr : &*std::prev(above);
}

} // namespace

void HeapMemory::allocated(std::uint64_t address, Block block) {
  const std::lock_guard lock(mutex_);
  is_used_ = true;
  begin_ = std::min(begin_, address);
  end_ = std::max(end_, address + block.bytes);
  freed_.erase(freed_.lower_bound(address),
               freed_.lower_bound(address + std::max<std::uint64_t>(block.bytes, 1)));
  live_[address] = std::move(block);
}

bool HeapMemory::keep_freed(std::uint64_t address) {
  const std::lock_guard lock(mutex_);
  const auto found = live_.find(address);
  if (found == live_.end())
    return false;
  const bool is_kept = kept_bytes_ + found->second.bytes <= kMostKept;
  if (is_kept) {
    kept_bytes_ += found->second.bytes;
    freed_[address] = std::move(found->second);
  }
  live_.erase(found);
  return is_kept;
}

bool HeapMemory::is_freed(std::uint64_t address) const {
  const std::lock_guard lock(mutex_);
  return freed_.contains(address);
}

std::optional<HeapMemory::Fault> HeapMemory::check(std::uint64_t address, std::uint64_t bytes) const {
  if (!is_used())
    return std::nullopt;
  const std::lock_guard lock(mutex_);
  constexpr std::uint64_t kNear = 64;
  if (address + bytes + kNear <= begin_ || address >= end_ + kNear)
    return std::nullopt;
  const auto *const block = below(live_, address);
  if (block && address + bytes <= block->first + block->second.bytes)
    return std::nullopt;
  const auto *const freed = below(freed_, address);
  if (freed && address < freed->first + freed->second.bytes)
    return Fault{Kind::use_after_free, "accesses heap memory that the kernel has freed"};
  if (block)
    return Fault{Kind::out_of_bounds, "of the heap, " + std::to_string(address - block->first) +
                                          " bytes into an allocation of " +
                                          std::to_string(block->second.bytes)};
  return Fault{Kind::out_of_bounds, "of the heap that no allocation holds"};
}

std::vector<HeapMemory::Block> HeapMemory::live() const {
  const std::lock_guard lock(mutex_);
  std::vector<Block> all;
  for (const auto &[address, block] : live_)
    all.push_back(block);
  return all;
}

} // namespace ladder::sanitizer
