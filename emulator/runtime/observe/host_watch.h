// Watches what the host does with memory that is lent to the device, and with the device's own, as no host
// could on a real GPU or as a stage has no reason to.
#pragma once

#include "machine/global_memory.h"
#include "runtime/observe/stream_order.h"
#include "runtime/work/visibility.h"

#include <atomic>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace ladder::runtime {

/// Active during its lifetime: device memory is closed to the host (see HostGuard).
class LADDER_API HostWatch {
public:
  /// `lent`: memory whose pages hold nothing else.
  explicit HostWatch(std::vector<machine::MemoryRange> lent);
  ~HostWatch();
  HostWatch(const HostWatch &) = delete;

  /// The active one; nullptr if there is none.
  static HostWatch *active() { return active_.load(std::memory_order_acquire); }

  /// A call copies these bytes.
  void copied(const void *destination, const void *source);
  /// A call issues work to a stream.
  void worked_on(StreamId stream);
  /// The stream that the program is to use: cudaStreamPerThread, so that one left out is another.
  static constexpr StreamId kGivenStream = 2;

  enum class Use { touched, copied_to_host, copied_from_host, on_another_stream };
  /// What the host did with which memory, by its name; "" is the device's own.
  std::set<std::pair<std::string, Use>> uses() const;

private:
  const machine::MemoryRange *find(std::uint64_t address) const;

  static std::atomic<HostWatch *> active_;
  HostWatch *const outer_;
  const std::vector<machine::MemoryRange> lent_; ///< rounded to pages
  std::set<std::pair<std::string, Use>> copies_;
};

} // namespace ladder::runtime
