#include "runtime/observe/stream_order.h"

#include "runtime/observe/host_watch.h"

#include <algorithm>
#include <utility>

namespace ladder::runtime {

namespace {

thread_local StreamId current_stream = 0;

/// Both lists are sorted, without overlaps within a list.
bool clashes(const std::vector<MemoryUse> &a, const std::vector<MemoryUse> &b) {
  for (auto one = a.begin(), other = b.begin(); one != a.end() && other != b.end();) {
    if (one->begin < other->end && other->begin < one->end && (one->writes || other->writes))
      return true;
    ++(one->end < other->end ? one : other);
  }
  return false;
}

} // namespace

OnStream::OnStream(StreamId stream) : before_(std::exchange(current_stream, stream)) {
  if (HostWatch *const watch = HostWatch::active())
    watch->worked_on(stream);
}
OnStream::~OnStream() { current_stream = before_; }
StreamId OnStream::current() { return current_stream; }

void StreamOrder::add_stream(StreamId stream, bool blocking) {
  const std::lock_guard lock(mutex_);
  streams_[stream].blocking = blocking;
}

void StreamOrder::merge(Clock &clock, const Clock &other) {
  for (const auto &[stream, number] : other)
    clock[stream] = std::max(clock[stream], number);
}

/// The work that happens before the next work on the stream.
StreamOrder::Clock StreamOrder::clock_of(StreamId stream) {
  Stream &own = streams_[stream];
  Clock clock = own.knows;
  merge(clock, host_);
  clock[stream] = own.count;
  for (const auto &[id, other] : streams_)
    if (id != stream && own.blocking && other.blocking && (id == kLegacyStream || stream == kLegacyStream)) {
      merge(clock, other.knows);
      clock[id] = std::max(clock[id], other.count);
    }
  return clock;
}

void StreamOrder::work(StreamId stream, StreamWork work,
                       const std::function<void(const std::string &other)> &clash) {
  const std::lock_guard lock(mutex_);
  Clock clock = clock_of(stream);
  for (const Work &other : unknown_)
    if (other.stream != stream && clock[other.stream] < other.number && clashes(work.uses, other.what.uses)) {
      clash(other.what.name);
      break;
    }
  Stream &own = streams_[stream];
  own.knows = std::move(clock);
  unknown_.push_back({stream, ++own.count, std::move(work)});
}

std::optional<StreamWork> StreamOrder::last_launch(StreamId stream) const {
  const std::lock_guard lock(mutex_);
  const auto own = streams_.find(stream);
  for (const Work &work : unknown_)
    if (own != streams_.end() && work.stream == stream && work.number == own->second.count &&
        work.what.is_launch)
      return work.what;
  return std::nullopt;
}

bool StreamOrder::is_first_question(Clock &asked, Clock clock) const {
  const auto is_known = [&](const auto &work) {
    const auto known = host_.find(work.first);
    return known != host_.end() && known->second >= work.second;
  };
  std::erase_if(clock, [](const auto &work) { return work.second == 0; });
  return !std::ranges::all_of(clock, is_known) && std::exchange(asked, clock) != clock;
}

bool StreamOrder::answers_not_ready(StreamId stream) {
  const std::lock_guard lock(mutex_);
  return is_first_question(asked_streams_[stream], clock_of(stream));
}

bool StreamOrder::answers_not_ready(const void *event) {
  const std::lock_guard lock(mutex_);
  const auto found = events_.find(event);
  return found != events_.end() && is_first_question(asked_events_[event], found->second);
}

void StreamOrder::record_event(const void *event, StreamId stream) {
  const std::lock_guard lock(mutex_);
  events_[event] = clock_of(stream);
}

void StreamOrder::wait_event(StreamId stream, const void *event) {
  const std::lock_guard lock(mutex_);
  if (const auto found = events_.find(event); found != events_.end())
    merge(streams_[stream].knows, found->second);
}

void StreamOrder::host_waits(StreamId stream) {
  const std::lock_guard lock(mutex_);
  merge(host_, clock_of(stream));
  forget_known();
}

void StreamOrder::host_waits_for_event(const void *event) {
  const std::lock_guard lock(mutex_);
  if (const auto found = events_.find(event); found != events_.end())
    merge(host_, found->second);
  forget_known();
}

void StreamOrder::host_waits_for_all() {
  const std::lock_guard lock(mutex_);
  for (const auto &[id, stream] : streams_)
    host_[id] = stream.count;
  forget_known();
}

/// Work that the host knows of precedes everything it issues from now on.
void StreamOrder::forget_known() {
  std::erase_if(unknown_, [&](const Work &work) { return work.number <= host_[work.stream]; });
}

std::vector<MemoryUse> StreamOrder::pending() const {
  const std::lock_guard lock(mutex_);
  std::vector<MemoryUse> all;
  for (const Work &work : unknown_)
    all.insert(all.end(), work.what.uses.begin(), work.what.uses.end());
  return all;
}

} // namespace ladder::runtime
