#include "runtime/work/graph_memory.h"

#include "runtime/observe/checking.h"
#include "runtime/work/allocations.h"
#include "runtime/work/entry.h"

#include <algorithm>
#include <map>
#include <mutex>

namespace ladder::runtime {

namespace {

constexpr char kName[] = "a graph's allocation";

struct Known {
  std::mutex mutex;
  std::map<const void *, std::weak_ptr<GraphMemory>> by_pointer;
  std::uint64_t used = 0, most_used = 0;
};
// Never destroyed, as graphs are.
auto &known = *new Known;

} // namespace

std::shared_ptr<GraphMemory> GraphMemory::make(std::size_t bytes) {
  require(bytes > 0);
  void *const pointer = Allocations::instance().allocate(bytes, MemoryKind::device, kName);
  const std::shared_ptr<GraphMemory> memory(new GraphMemory(pointer, bytes));
  if (Checking *const checking = Checking::active()) // until a launch allocates it
    checking->freed(reinterpret_cast<std::uint64_t>(pointer), bytes);
  const std::lock_guard lock(known.mutex);
  known.by_pointer[pointer] = memory;
  return memory;
}

std::shared_ptr<GraphMemory> GraphMemory::find(const void *pointer) {
  const std::lock_guard lock(known.mutex);
  const auto found = known.by_pointer.find(pointer);
  return found == known.by_pointer.end() ? nullptr : found->second.lock();
}

std::uint64_t GraphMemory::used() {
  const std::lock_guard lock(known.mutex);
  return known.used;
}

std::uint64_t GraphMemory::most_used() {
  const std::lock_guard lock(known.mutex);
  return known.most_used;
}

void GraphMemory::reset_most_used() {
  const std::lock_guard lock(known.mutex);
  known.most_used = known.used;
}

/// Memory that the program still uses becomes an ordinary allocation, for cudaFree.
GraphMemory::~GraphMemory() {
  {
    const std::lock_guard lock(known.mutex);
    known.by_pointer.erase(pointer_);
    if (is_in_use_)
      known.used -= bytes_;
  }
  if (!is_in_use_)
    Allocations::instance().free(pointer_, {MemoryKind::device});
}

void GraphMemory::allocate() {
  require(!is_in_use_, cudaErrorInvalidValue,
          "a graph is launched again, but the memory that it allocated before is not freed");
  is_in_use_ = true;
  const std::lock_guard lock(known.mutex);
  known.used += bytes_;
  known.most_used = std::max(known.most_used, known.used);
  if (Checking *const checking = Checking::active())
    checking->allocated(reinterpret_cast<std::uint64_t>(pointer_), bytes_, kName);
}

void GraphMemory::free() {
  require(is_in_use_, cudaErrorInvalidValue,
          "a graph's memory is freed that is not allocated, or that is already freed",
          sanitizer::Kind::bad_free);
  is_in_use_ = false;
  const std::lock_guard lock(known.mutex);
  known.used -= bytes_;
  if (Checking *const checking = Checking::active())
    checking->freed(reinterpret_cast<std::uint64_t>(pointer_), bytes_);
}

} // namespace ladder::runtime
