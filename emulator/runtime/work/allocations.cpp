#include "runtime/work/allocations.h"

#include "machine/liberties.h"
#include "runtime/observe/checking.h"
#include "runtime/observe/host_guard.h"
#include "runtime/observe/host_watch.h"
#include "runtime/work/entry.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <sys/mman.h>
#include <unistd.h>

namespace ladder::runtime {

namespace {

constexpr std::uint64_t kAlignment = 512; // as in cudaMalloc
/// Larger blocks come straight from the system: zeroed, and untouched until used.
constexpr std::uint64_t kMapFrom = 1 << 20;
/// Larger blocks are never filled, and zeroed without touching them.
constexpr std::uint64_t kFillUpTo = 1 << 26, kFreshFrom = kFillUpTo;
static_assert(kFreshFrom >= kMapFrom);

std::uint64_t round_up(std::uint64_t value, std::uint64_t step) { return (value + step - 1) / step * step; }

/// The pages that lie in the memory as a whole: begin, end.
std::pair<std::uint64_t, std::uint64_t> whole_pages(std::uint64_t begin, std::uint64_t bytes) {
  static const auto page = std::uint64_t(sysconf(_SC_PAGESIZE));
  return {round_up(begin, page), (begin + bytes) / page * page};
}

bool counts_as_device(MemoryKind kind) { return kind == MemoryKind::device || kind == MemoryKind::managed; }

/// The sanitizer, if it watches what the program does with memory of this kind.
Checking *watcher_of(MemoryKind kind) {
  Checking *const checking = Checking::active();
  return checking && checking->watches_host() && kind != MemoryKind::registered ? checking : nullptr;
}

/// The same for device memory, also in a process that does more than run one program.
Checking *tracker_of(MemoryKind kind) {
  Checking *const checking = Checking::active();
  const bool is_tracked = kind == MemoryKind::device || (kind == MemoryKind::managed && watcher_of(kind));
  return is_tracked ? checking : nullptr;
}

void *obtain(std::uint64_t bytes) {
  if (bytes >= kMapFrom) {
    void *memory =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? nullptr : memory;
  }
  // A gap after the block separates it from the next.
  const std::uint64_t room = round_up(bytes + 1, kAlignment);
  void *memory = std::aligned_alloc(kAlignment, room);
  if (memory)
    std::memset(memory, 0, room);
  return memory;
}

} // namespace

Allocations &Allocations::instance() {
  static Allocations *allocations = new Allocations;
  return *allocations;
}

void *Allocations::allocate(std::uint64_t bytes, MemoryKind kind, const char *name, unsigned flags) {
  if (bytes == 0)
    return nullptr;
  const auto refuse = [bytes] {
    throw CudaError(cudaErrorMemoryAllocation, {}, sanitizer::Kind::other, bytes);
  };
  Device &device = Device::instance();
  const std::lock_guard lock(mutex_);
  const std::uint64_t limit = device.gpu().global_bytes;
  if (bytes > limit || (counts_as_device(kind) && bytes > limit - std::min(limit, used_)))
    refuse();
  const bool is_guarded = watcher_of(kind) || (HostWatch::active() && kind == MemoryKind::device);
  void *memory =
      is_guarded ? HostGuard::instance().allocate(bytes, kind != MemoryKind::device) : obtain(bytes);
  if (!memory)
    refuse();
  if (const auto &liberties = machine::Liberties::current();
      liberties.fills_allocations && bytes <= kFillUpTo)
    std::memset(memory, liberties.unwritten, bytes);
  const auto begin = reinterpret_cast<std::uint64_t>(memory);
  device.memory().add({.begin = begin, .end = begin + bytes, .writable = true, .name = name});
  by_begin_[begin] = {begin, bytes, kind, flags, is_guarded};
  if (counts_as_device(kind))
    used_ += bytes;
  if (Checking *const tracker = tracker_of(kind))
    tracker->allocated(begin, bytes, name, kind == MemoryKind::managed);
  return memory;
}

void Allocations::release(const Allocation &allocation) {
  Device::instance().memory().retire(allocation.begin);
  if (counts_as_device(allocation.kind))
    used_ -= allocation.bytes;
  void *memory = reinterpret_cast<void *>(allocation.begin);
  if (allocation.kind == MemoryKind::registered) {
    if (allocation.is_guarded)
      HostGuard::instance().release(whole_pages(allocation.begin, allocation.bytes).first);
    return;
  }
  Checking *const tracker = tracker_of(allocation.kind);
  if (tracker)
    tracker->freed(allocation.begin, allocation.bytes);
  if (allocation.is_guarded) {
    HostGuard::instance().retire(memory);
  } else if (tracker) {
    // Kept until the process ends, so that a later use never hits a new block.
  } else if (allocation.bytes >= kMapFrom)
    munmap(memory, allocation.bytes);
  else
    std::free(memory);
}

bool Allocations::free(void *pointer, std::initializer_list<MemoryKind> kinds) {
  const auto unused = Device::instance().unused_memory();
  const std::lock_guard lock(mutex_);
  const auto found = by_begin_.find(reinterpret_cast<std::uint64_t>(pointer));
  if (found == by_begin_.end() || std::find(kinds.begin(), kinds.end(), found->second.kind) == kinds.end())
    return false;
  release(found->second);
  by_begin_.erase(found);
  return true;
}

bool Allocations::add_registered(void *pointer, std::uint64_t bytes, unsigned flags) {
  const std::lock_guard lock(mutex_);
  const auto begin = reinterpret_cast<std::uint64_t>(pointer);
  if (by_begin_.contains(begin))
    return false;
  try {
    Device::instance().memory().add(
        {.begin = begin, .end = begin + bytes, .writable = true, .name = "cudaHostRegister"});
  } catch (const std::invalid_argument &) {
    return false;
  }
  const auto [first, last] = whole_pages(begin, bytes);
  const Checking *const checking = Checking::active();
  const bool is_guarded = checking && checking->watches_host() && first < last;
  if (is_guarded)
    HostGuard::instance().adopt(first, last, /*is_shared=*/true);
  by_begin_[begin] = {begin, bytes, MemoryKind::registered, flags, is_guarded};
  return true;
}

bool Allocations::remove_registered(void *pointer) { return free(pointer, {MemoryKind::registered}); }

bool Allocations::make_fresh(void *pointer, std::uint64_t bytes) {
  const std::optional<Allocation> found = find(pointer);
  if (bytes < kFreshFrom || !found || found->kind != MemoryKind::device || watcher_of(found->kind))
    return false;
  static const std::uint64_t page = std::uint64_t(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uint64_t>(pointer), end = begin + bytes;
  const std::uint64_t first = round_up(begin, page), last = end / page * page;
  if (madvise(reinterpret_cast<void *>(first), last - first, MADV_DONTNEED) != 0)
    return false;
  std::memset(pointer, 0, first - begin);
  std::memset(reinterpret_cast<void *>(last), 0, end - last);
  return true;
}

std::optional<Allocation> Allocations::find(const void *pointer) const {
  const std::lock_guard lock(mutex_);
  const auto address = reinterpret_cast<std::uint64_t>(pointer);
  const auto above = by_begin_.upper_bound(address);
  if (above == by_begin_.begin())
    return std::nullopt;
  const Allocation &allocation = std::prev(above)->second;
  return address - allocation.begin < allocation.bytes ? std::optional(allocation) : std::nullopt;
}

std::uint64_t Allocations::used() const {
  const std::lock_guard lock(mutex_);
  return used_;
}

void Allocations::free_all() {
  const auto unused = Device::instance().unused_memory();
  const std::lock_guard lock(mutex_);
  for (const auto &[begin, allocation] : by_begin_)
    release(allocation);
  by_begin_.clear();
}

} // namespace ladder::runtime
