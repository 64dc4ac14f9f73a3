#include "runtime/observe/host_watch.h"

#include "runtime/observe/host_guard.h"
#include "runtime/work/allocations.h"
#include "runtime/work/device.h"

#include <unistd.h>

namespace ladder::runtime {

namespace {

std::vector<machine::MemoryRange> whole_pages(std::vector<machine::MemoryRange> ranges) {
  const auto page = std::uint64_t(sysconf(_SC_PAGESIZE));
  for (machine::MemoryRange &range : ranges) {
    range.begin = range.begin / page * page;
    range.end = (range.end + page - 1) / page * page;
  }
  return ranges;
}

std::uint64_t address_of(const void *pointer) { return reinterpret_cast<std::uint64_t>(pointer); }

/// Whether only the device may use it; the host may use managed and pinned memory, too.
bool is_device_memory(const void *pointer) {
  const std::optional<Allocation> allocation = Allocations::instance().find(pointer);
  return allocation ? allocation->kind == MemoryKind::device
                    : Device::instance().memory().find(address_of(pointer), 1) != nullptr;
}

} // namespace

std::atomic<HostWatch *> HostWatch::active_{nullptr};

HostWatch::HostWatch(std::vector<machine::MemoryRange> lent)
    : outer_(active()), lent_(whole_pages(std::move(lent))) {
  HostGuard &guard = HostGuard::instance();
  guard.forget_touches();
  for (const machine::MemoryRange &range : lent_)
    guard.adopt(range.begin, range.end);
  active_ = this;
}

HostWatch::~HostWatch() {
  active_ = outer_;
  for (const machine::MemoryRange &range : lent_)
    HostGuard::instance().release(range.begin);
}

const machine::MemoryRange *HostWatch::find(std::uint64_t address) const {
  for (const machine::MemoryRange &range : lent_)
    if (address >= range.begin && address < range.end)
      return &range;
  return nullptr;
}

void HostWatch::copied(const void *destination, const void *source) {
  const machine::MemoryRange *const from = find(address_of(source)), *const to =
                                                                         find(address_of(destination));
  if (from && !is_device_memory(destination))
    copies_.emplace(from->name, Use::copied_to_host);
  if (to && !is_device_memory(source))
    copies_.emplace(to->name, Use::copied_from_host);
}

void HostWatch::worked_on(StreamId stream) {
  if (stream != kGivenStream)
    copies_.emplace("", Use::on_another_stream);
}

std::set<std::pair<std::string, HostWatch::Use>> HostWatch::uses() const {
  auto all = copies_;
  for (const HostGuard::Touch &touch : HostGuard::instance().touches()) {
    const machine::MemoryRange *const range = find(touch.address);
    all.emplace(range ? range->name : "", Use::touched);
  }
  return all;
}

} // namespace ladder::runtime
