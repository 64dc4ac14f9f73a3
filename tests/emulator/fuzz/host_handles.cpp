// The program's streams and events, and those of other threads.
#include "host_program.h"

namespace fuzz {

cudaStream_t HostProgram::stream(bool *is_good) {
  *is_good = true;
  switch (random_.below(8)) {
  case 0:
    *is_good = false;
    return reinterpret_cast<cudaStream_t>(random_.one_in(2) ? &device_.table : &device_.words);
  case 1:
    if (dead_streams_.empty())
      return cudaStreamLegacy;
    *is_good = false;
    return dead_streams_[random_.below(dead_streams_.size())];
  case 2:
    return cudaStreamPerThread;
  case 3:
    return nullptr;
  default:
    return streams_.empty() ? nullptr : streams_[random_.below(streams_.size())];
  }
}

cudaEvent_t HostProgram::event(bool *is_good) {
  *is_good = !events_.empty() && !random_.one_in(4);
  if (*is_good)
    return events_[random_.below(events_.size())];
  if (!dead_events_.empty() && random_.one_in(2))
    return dead_events_[random_.below(dead_events_.size())];
  return random_.one_in(2) ? nullptr : reinterpret_cast<cudaEvent_t>(random_.wild_pointer());
}

void HostProgram::streams() {
  bool is_good = true, has_event = true;
  const cudaStream_t on = stream(&is_good);
  cudaStream_t made = nullptr;
  switch (random_.below(14)) {
  case 0:
    expect("cudaStreamCreate", cudaStreamCreate(&made), true);
    break;
  case 1: {
    const unsigned flags = unsigned(random_.one_in(2) ? random_.integer() : int(random_.below(2)));
    expect("cudaStreamCreateWithFlags", cudaStreamCreateWithFlags(&made, flags), flags < 2);
    break;
  }
  case 2:
    expect("cudaStreamCreateWithPriority",
           cudaStreamCreateWithPriority(&made, cudaStreamNonBlocking, random_.integer()), true);
    break;
  case 3:
    if (!streams_.empty()) {
      expect("cudaStreamDestroy", cudaStreamDestroy(streams_.back()), true);
      if (!is_broken_) {
        dead_streams_.push_back(streams_.back());
        streams_.pop_back();
      }
    }
    break;
  case 4:
    if (!is_good)
      expect("cudaStreamDestroy", cudaStreamDestroy(on), false);
    break;
  case 5:
    expect("cudaStreamSynchronize", cudaStreamSynchronize(on), is_good);
    break;
  case 6:
    answered("cudaStreamQuery", cudaStreamQuery(on), is_good);
    break;
  case 7: {
    const cudaEvent_t awaited = event(&has_event);
    expect("cudaStreamWaitEvent", cudaStreamWaitEvent(on, awaited, unsigned(random_.integer())),
           is_good && has_event);
    break;
  }
  case 8:
    call("cudaStreamAttachMemAsync",
         cudaStreamAttachMemAsync(on, random_.wild_pointer(), random_.hostile_size(), 1));
    break;
  case 9: {
    unsigned flags = 0;
    int priority = 0;
    expect("cudaStreamGetFlags", cudaStreamGetFlags(on, &flags), is_good);
    int *const result = random_.one_in(9) ? nullptr : &priority;
    expect("cudaStreamGetPriority", cudaStreamGetPriority(on, result), is_good && result);
    if (priority > 0 || priority < -5)
      fail("cudaStreamGetPriority gives a priority that there is not");
    break;
  }
  case 10: {
    unsigned long long id = 0;
    expect("cudaStreamGetId", cudaStreamGetId(on, &id), is_good);
    break;
  }
  case 11: {
    int device = 0;
    expect("cudaStreamGetDevice", cudaStreamGetDevice(on, &device), is_good);
    break;
  }
  case 12: {
    cudaStreamCaptureStatus status{};
    expect("cudaStreamIsCapturing", cudaStreamIsCapturing(on, &status), is_good);
    break;
  }
  default:
    expect("cudaStreamCreate", cudaStreamCreate(nullptr), false);
  }
  if (made)
    streams_.push_back(made);
}

void HostProgram::events() {
  bool is_good = true, has_stream = true;
  const cudaEvent_t which = event(&is_good);
  const cudaStream_t on = stream(&has_stream);
  cudaEvent_t made = nullptr;
  switch (random_.below(9)) {
  case 0:
    expect("cudaEventCreate", cudaEventCreate(&made), true);
    break;
  case 1:
    call("cudaEventCreateWithFlags", cudaEventCreateWithFlags(&made, unsigned(random_.integer())));
    break;
  case 2:
    expect("cudaEventRecord", cudaEventRecord(which, on), is_good && has_stream);
    break;
  case 3:
    call("cudaEventRecordWithFlags", cudaEventRecordWithFlags(which, on, unsigned(random_.integer())),
         !is_good || !has_stream, false);
    break;
  case 4:
    answered("cudaEventQuery", cudaEventQuery(which), is_good);
    break;
  case 5:
    expect("cudaEventSynchronize", cudaEventSynchronize(which), is_good);
    break;
  case 6: {
    bool is_other_good = true;
    const cudaEvent_t other = event(&is_other_good);
    float milliseconds = 0;
    call("cudaEventElapsedTime",
         cudaEventElapsedTime(random_.one_in(9) ? nullptr : &milliseconds, which, other),
         !is_good || !is_other_good, false);
    break;
  }
  case 7:
    if (!events_.empty()) {
      expect("cudaEventDestroy", cudaEventDestroy(events_.back()), true);
      if (!is_broken_) {
        dead_events_.push_back(events_.back());
        events_.pop_back();
      }
    }
    break;
  default:
    if (!is_good)
      expect("cudaEventDestroy", cudaEventDestroy(which), false);
  }
  if (made)
    events_.push_back(made);
}

/// Passes handles to other threads and uses theirs, which may be destroyed at any moment.
void HostProgram::exchange() {
  cudaStream_t stream = nullptr;
  cudaEvent_t event = nullptr;
  void *memory = nullptr;
  {
    const std::lock_guard lock(exchange_.mutex);
    if (!streams_.empty()) {
      exchange_.streams.push_back(streams_.back());
      streams_.pop_back();
    }
    if (!events_.empty()) {
      exchange_.events.push_back(events_.back());
      events_.pop_back();
    }
    if (!exchange_.streams.empty())
      stream = exchange_.streams[random_.below(exchange_.streams.size())];
    if (!exchange_.events.empty())
      event = exchange_.events[random_.below(exchange_.events.size())];
    if (!exchange_.memory.empty())
      memory = exchange_.memory[random_.below(exchange_.memory.size())];
  }
  float milliseconds = 0;
  unsigned flags = 0;
  switch (random_.below(7)) {
  case 0:
    call("cudaEventRecord", cudaEventRecord(event, stream));
    break;
  case 1:
    call("cudaEventElapsedTime", cudaEventElapsedTime(&milliseconds, event, event));
    break;
  case 2:
    call("cudaStreamGetFlags", cudaStreamGetFlags(stream, &flags));
    break;
  case 3:
    if (stream)
      call("cudaStreamDestroy", cudaStreamDestroy(stream));
    break;
  case 4:
    call("cudaEventDestroy", cudaEventDestroy(event));
    break;
  case 5:
    if (memory)
      call("cudaMemset", cudaMemset(memory, 1, random_.below(3000)));
    break;
  default:
    if (memory && !is_exact())
      call("cudaFree", cudaFree(memory));
  }
}

} // namespace fuzz
