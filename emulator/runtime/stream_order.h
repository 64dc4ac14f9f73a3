// What work of streams has happened before what, and before what the host does.
//
// Here work is done when its call returns. On a GPU it is only in order within its stream; between streams
// events, the legacy stream and the host make an order, and the host itself knows of work once it has waited.
#pragma once

#include "runtime/host_place.h"

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace ladder::runtime {

using StreamId = unsigned long long;
inline constexpr StreamId kLegacyStream = 1;

/// Memory that a piece of work reads or writes: [begin, end).
struct MemoryUse {
  std::uint64_t begin = 0, end = 0;
  bool writes = false;
};

class StreamOrder {
public:
  /// `blocking`: of the streams that the legacy one waits for, and that wait for it.
  void add_stream(StreamId stream, bool blocking);
  /// Work on a stream. Calls `clash` with its own and the other work's names when another stream's, in no
  /// order with it, uses the same memory and one of them writes.
  void work(StreamId stream, const std::string &name, std::vector<MemoryUse> uses,
            const std::function<void(const std::string &other)> &clash);
  void record_event(const void *event, StreamId stream);
  void wait_event(StreamId stream, const void *event);
  void host_waits(StreamId stream);
  void host_waits_for_event(const void *event);
  void host_waits_for_all();
  /// What work that the host has not waited for uses.
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
    std::string name;
    std::vector<MemoryUse> uses; ///< in order
  };
  static void merge(Clock &clock, const Clock &other);
  Clock clock_of(StreamId stream);
  void forget_known();

  mutable std::mutex mutex_;
  std::map<StreamId, Stream> streams_;
  std::map<const void *, Clock> events_;
  Clock host_;
  std::vector<Work> unknown_; ///< to the host
};

/// The stream of the calls that this thread makes meanwhile; 0 outside of any, which is the legacy stream and
/// waits.
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
