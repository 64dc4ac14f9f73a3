#include "machine/global_memory.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <iterator>
#include <stdexcept>
#include <sys/uio.h>
#include <unistd.h>
#include <utility>

namespace ladder::machine {

namespace {

/// An address closer than this to an allocation has probably missed it.
constexpr std::uint64_t kNear = 1 << 20;
/// An address below this is probably an index, or a field, of a null pointer.
constexpr std::uint64_t kNullPage = 1 << 16;
constexpr std::size_t kMostFreed = 1 << 16;

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

bool is_host_memory(std::uint64_t address) {
  char byte;
  const iovec to{&byte, 1}, from{reinterpret_cast<void *>(address), 1};
  return process_vm_readv(getpid(), &to, 1, &from, 1, 0) == 1;
}

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
  // Ranges in the map do not overlap, so only the new one's two neighbours can overlap it.
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
  forget_freed(begin, range.end);
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

bool GlobalMemory::retire(std::uint64_t begin) {
  const MemoryRange *const range = find(begin, 1);
  if (!range)
    return false;
  MemoryRange freed = *range;
  if (!remove(begin))
    return false;
  const std::lock_guard lock(mutex_);
  if (freed_.size() < kMostFreed && !by_begin_.contains(begin))
    freed_.insert_or_assign(begin, std::move(freed));
  return true;
}

void GlobalMemory::set_writable(std::uint64_t begin, bool writable) {
  const std::lock_guard lock(mutex_);
  if (const auto found = by_begin_.find(begin); found != by_begin_.end())
    found->second.range.writable = writable;
}

void GlobalMemory::forget_freed(std::uint64_t begin, std::uint64_t end) {
  auto first = freed_.lower_bound(begin);
  if (first != freed_.begin() && std::prev(first)->second.end > begin)
    --first;
  while (first != freed_.end() && first->first < end)
    first = freed_.erase(first);
}

std::string GlobalMemory::what_is_near(std::uint64_t address) const {
  if (address < kNullPage)
    return address ? "a null pointer plus " + std::to_string(address) + " bytes" : "a null pointer";
  const std::lock_guard lock(mutex_);
  const auto above = by_begin_.upper_bound(address);
  const MemoryRange *const next = above == by_begin_.end() ? nullptr : &above->second.range;
  const MemoryRange *const below = above == by_begin_.begin() ? nullptr : &std::prev(above)->second.range;
  if (below && address < below->end)
    return "at byte " + std::to_string(address - below->begin) + " of the " +
           std::to_string(below->end - below->begin) + " of " + quoted(*below);
  if (const auto freed = freed_.upper_bound(address);
      freed != freed_.begin() && address < std::prev(freed)->second.end)
    return "at byte " + std::to_string(address - std::prev(freed)->first) + " of " +
           quoted(std::prev(freed)->second) + ", which has been freed";
  const std::uint64_t before = next ? next->begin - address : kNear,
                      past = below ? address - below->end : kNear;
  // An address just before the next range more likely missed that one.
  if (before < std::min(past, kNear))
    return std::to_string(before) + " bytes before " + quoted(*next);
  if (past < kNear)
    return std::to_string(past) + " bytes past the end of " + quoted(*below);
  return {};
}

std::string GlobalMemory::describe(std::uint64_t address) const {
  const std::string near = what_is_near(address);
  return !near.empty()             ? near
         : is_host_memory(address) ? "it is host memory, which a GPU cannot access"
                                   : "it is far from every allocation";
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
