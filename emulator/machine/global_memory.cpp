#include "machine/global_memory.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <iterator>
#include <stdexcept>

namespace ladder::machine {

namespace {

std::string hex(std::uint64_t value) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%" PRIx64, value);
  return text;
}

std::string quoted(const MemoryRange &range) {
  const std::string name = range.name.empty() ? "memory" : "'" + range.name + "'";
  return name + " [" + hex(range.begin) + ", " + hex(range.end) + ")";
}

} // namespace

void GlobalMemory::add(MemoryRange range) {
  if (range.end <= range.begin)
    throw std::invalid_argument("the memory range " + quoted(range) + " is empty");
  const std::lock_guard lock(mutex_);
  const auto equal = by_begin_.find(range.begin);
  if (equal != by_begin_.end() && equal->second.range.end == range.end) {
    ++equal->second.uses;
    equal->second.range.writable |= range.writable;
    return;
  }
  // Ranges in the map do not overlap, so only the two neighbours of the new one can.
  const auto above = by_begin_.lower_bound(range.begin);
  const MemoryRange *other = nullptr;
  if (above != by_begin_.end() && above->second.range.begin < range.end)
    other = &above->second.range;
  else if (above != by_begin_.begin() && std::prev(above)->second.range.end > range.begin)
    other = &std::prev(above)->second.range;
  if (other)
    throw std::invalid_argument("the memory range " + quoted(range) + " overlaps " + quoted(*other) +
                                " in part");
  const std::uint64_t begin = range.begin;
  by_begin_.emplace(begin, Entry{std::move(range), 1});
}

bool GlobalMemory::remove(std::uint64_t begin) {
  const std::lock_guard lock(mutex_);
  const auto found = by_begin_.find(begin);
  if (found == by_begin_.end())
    return false;
  if (--found->second.uses == 0)
    by_begin_.erase(found);
  return true;
}

const MemoryRange *GlobalMemory::find(std::uint64_t address, std::uint64_t bytes) const {
  const std::lock_guard lock(mutex_);
  const auto above = by_begin_.upper_bound(address);
  if (above == by_begin_.begin())
    return nullptr;
  const MemoryRange &range = std::prev(above)->second.range;
  return address < range.end && bytes <= range.end - address ? &range : nullptr;
}

std::string GlobalMemory::describe(std::uint64_t address) const {
  const std::lock_guard lock(mutex_);
  if (by_begin_.empty())
    return "no allocation";
  const auto above = by_begin_.upper_bound(address);
  if (above == by_begin_.begin()) {
    const MemoryRange &range = above->second.range;
    return std::to_string(range.begin - address) + " bytes before " + quoted(range);
  }
  const MemoryRange &below = std::prev(above)->second.range;
  if (address < below.end)
    return "at byte " + std::to_string(address - below.begin) + " of the " +
           std::to_string(below.end - below.begin) + " of " + quoted(below);
  // What lies just before the next range is more likely an access below that one.
  if (above != by_begin_.end() && above->second.range.begin - address < address - below.end)
    return std::to_string(above->second.range.begin - address) + " bytes before " +
           quoted(above->second.range);
  return std::to_string(address - below.end) + " bytes past the end of " + quoted(below);
}

std::vector<MemoryRange> GlobalMemory::ranges() const {
  const std::lock_guard lock(mutex_);
  std::vector<MemoryRange> all;
  all.reserve(by_begin_.size());
  for (const auto &[begin, entry] : by_begin_)
    all.push_back(entry.range);
  return all;
}

} // namespace ladder::machine
