// Happens-before order of work on streams, and of the host.
//
// In the emulator, work is complete when its call returns. On a GPU it is ordered only within its stream.
// Events, the legacy stream and the host order streams against each other, and the host knows that work is
// complete only after a wait.
#pragma once

#include "runtime/observe/host_place.h"

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace ladder::runtime {

using StreamId = unsigned long long;
inline constexpr StreamId kLegacyStream = 1;

/// Memory that one piece of work reads or writes: [begin, end).
struct MemoryUse {
  std::uint64_t begin = 0, end = 0;
  bool writes = false;
  bool is_atomic = false; ///< by atomics alone
  bool is_flag = false;   ///< by atomics of system scope alone, none of which adds
};

/// A launch, copy or fill.
struct StreamWork {
  std::string name;
  std::vector<MemoryUse> uses; ///< in order
  bool is_launch = false;
};

class StreamOrder {
public:
  /// `blocking`: synchronises with the legacy stream.
  void add_stream(StreamId stream, bool blocking);
  /// Records work on a stream. If unordered work on another stream uses the same memory and one of the two
  /// writes it, calls `clash` with the first such work's name.
  void work(StreamId stream, StreamWork work, const std::function<void(const std::string &other)> &clash);
  /// The last work on the stream, if it is a launch that the host has not waited for.
  std::optional<StreamWork> last_launch(StreamId stream) const;
  /// Whether a query is answered "not ready": the first one after work that the host does not know complete.
  /// A GPU may answer so, and a program that ignores the answer must not learn from it.
  bool answers_not_ready(StreamId stream);
  bool answers_not_ready(const void *event);
  void record_event(const void *event, StreamId stream);
  void wait_event(StreamId stream, const void *event);
  void host_waits(StreamId stream);
  void host_waits_for_event(const void *event);
  void host_waits_for_all();
  /// Memory in use by work that the host has not waited for.
  std::vector<MemoryUse> pending() const;

private:
  using Clock = std::map<StreamId, std::uint64_t>;
  struct Stream {
    bool blocking = true;
    std::uint64_t count = 0; ///< pieces of work so far
    Clock knows;
  };
  struct Work {
    StreamId stream;
    std::uint64_t number;
    StreamWork what;
  };
  static void merge(Clock &clock, const Clock &other);
  Clock clock_of(StreamId stream);
  void forget_known();
  bool is_first_question(Clock &asked, Clock clock) const;

  mutable std::mutex mutex_;
  std::map<StreamId, Stream> streams_;
  std::map<const void *, Clock> events_;
  Clock host_;
  std::map<const void *, Clock> asked_events_; ///< that an event was already asked about
  std::map<StreamId, Clock> asked_streams_;
  std::vector<Work> unknown_; ///< work unknown to the host
};

/// The stream of calls on this thread during this object's lifetime; outside of any it is 0, the legacy
/// stream, which waits.
class OnStream {
public:
  explicit OnStream(StreamId stream);
  ~OnStream();
  OnStream(const OnStream &) = delete;
  static StreamId current();

private:
  StreamId before_;
};

} // namespace ladder::runtime
