#include "instructions/device_runtime_calls.h"

#include "instructions/addressing.h"
#include "machine/device_runtime.h"

#include <array>
#include <cstring>
#include <string>
#include <utility>

namespace ladder::instructions {

using machine::DeviceRuntime;
using machine::FaultError;
using machine::FaultKind;
using machine::Warp;

namespace {

constexpr std::uint32_t kInvalidValue = 1, kMemoryAllocation = 2;

DeviceRuntime &runtime_of(Warp &warp) {
  if (DeviceRuntime *const runtime = warp.block().launch().device_runtime)
    return *runtime;
  throw FaultError(FaultKind::unsupported, "kernels cannot launch kernels here");
}

/// One lane's call.
class Call {
public:
  Call(Warp &warp, CallArguments &arguments, int lane) : warp_(warp), arguments_(arguments), lane_(lane) {}

  DeviceRuntime &runtime() { return runtime_of(warp_); }
  DeviceRuntime::Thread thread() const {
    return {warp_.block().linear_index(), std::uint32_t(warp_.index() * 32 + lane_)};
  }
  std::uint64_t word(std::size_t index) const { return arguments_.argument(index, lane_); }
  machine::Dim3 dim(std::size_t index) const {
    machine::Dim3 value;
    static_assert(sizeof value == 12);
    std::memcpy(&value, arguments_.bytes(index, lane_, sizeof value), sizeof value);
    return value;
  }
  /// Writes through the pointer that this argument is.
  template <typename T> void store(std::size_t index, T value) {
    std::memcpy(resolve_lane(warp_, Space::generic, lane_, word(index), sizeof value, Direction::write),
                &value, sizeof value);
    if (machine::BlockObserver *const observer = warp_.block().observer())
      observer->written(warp_, lane_, word(index), sizeof value);
  }
  Warp &warp() { return warp_; }
  int lane() const { return lane_; }

private:
  Warp &warp_;
  CallArguments &arguments_;
  int lane_;
};

/// A function of the device runtime, for one lane.
using Function = std::uint64_t (*)(Call &call);

template <Function function, std::uint32_t result_bytes>
void for_each_lane(Warp &warp, CallArguments &arguments) {
  for_lanes(warp.active(), [&](int lane) {
    Call call(warp, arguments, lane);
    arguments.set_result(lane, function(call), result_bytes);
  });
}

std::uint64_t parameter_buffer(Call &call) {
  std::uint64_t buffer = 0;
  call.runtime().prepare(call.thread(), {call.word(0), call.dim(1), call.dim(2), std::uint32_t(call.word(3))},
                         buffer);
  return buffer;
}

std::uint64_t launch(Call &call) { return call.runtime().launch(call.thread(), call.word(0), call.word(1)); }

std::uint64_t copy(Call &call) {
  return call.runtime().copy(call.thread(), call.word(0), call.word(1), call.word(2), call.word(4));
}

std::uint64_t fill(Call &call) {
  return call.runtime().fill(call.thread(), call.word(0), int(call.word(1)), call.word(2), call.word(3));
}

template <auto create> std::uint64_t create_handle(Call &call) {
  std::uint64_t handle = 0;
  const std::uint32_t error = (call.runtime().*create)(call.thread(), std::uint32_t(call.word(1)), handle);
  if (!error)
    call.store(0, handle);
  return error;
}

std::uint64_t record(Call &call) { return call.runtime().use(call.thread(), call.word(0), call.word(1)); }
std::uint64_t wait(Call &call) { return call.runtime().use(call.thread(), call.word(1), call.word(0)); }
std::uint64_t destroy(Call &call) { return call.runtime().destroy(call.thread(), call.word(0)); }

template <bool forget> std::uint64_t last_error(Call &call) {
  return call.runtime().last_error(call.thread(), forget);
}

template <bool name> std::uint64_t error_words(Call &call) {
  return call.runtime().error_words(std::uint32_t(call.word(0)), name);
}

std::uint64_t allocate(Call &call) {
  const std::uint64_t bytes = call.word(1);
  const std::uint64_t address = bytes ? allocate_on_heap(call.warp(), call.lane(), bytes) : 0;
  if (bytes && !address)
    return kMemoryAllocation;
  call.store(0, address);
  return 0;
}

std::uint64_t release(Call &call) {
  release_on_heap(call.warp(), call.lane(), call.word(0));
  return 0;
}

/// The number of the only device, or how many there are.
template <int value> std::uint64_t tell(Call &call) {
  if (!call.word(0))
    return kInvalidValue;
  call.store(0, value);
  return 0;
}

constexpr std::pair<std::string_view, SystemCall> kCalls[] = {
    {"GetParameterBufferV2", for_each_lane<parameter_buffer, 8>},
    {"LaunchDeviceV2", for_each_lane<launch, 4>},
    {"MemcpyAsync", for_each_lane<copy, 4>},
    {"MemsetAsync", for_each_lane<fill, 4>},
    {"StreamCreateWithFlags", for_each_lane<create_handle<&DeviceRuntime::create_stream>, 4>},
    {"StreamDestroy", for_each_lane<destroy, 4>},
    {"StreamWaitEvent", for_each_lane<wait, 4>},
    {"EventCreateWithFlags", for_each_lane<create_handle<&DeviceRuntime::create_event>, 4>},
    {"EventRecord", for_each_lane<record, 4>},
    {"EventRecordWithFlags", for_each_lane<record, 4>},
    {"EventDestroy", for_each_lane<destroy, 4>},
    {"GetLastError", for_each_lane<last_error<true>, 4>},
    {"PeekAtLastError", for_each_lane<last_error<false>, 4>},
    {"GetErrorName", for_each_lane<error_words<true>, 8>},
    {"GetErrorString", for_each_lane<error_words<false>, 8>},
    {"Malloc", for_each_lane<allocate, 4>},
    {"Free", for_each_lane<release, 4>},
    {"GetDevice", for_each_lane<tell<0>, 4>},
    {"GetDeviceCount", for_each_lane<tell<1>, 4>},
};

} // namespace

SystemCall find_device_runtime_call(std::string_view name) {
  if (!name.starts_with(kDeviceRuntimePrefix))
    return nullptr;
  name.remove_prefix(kDeviceRuntimePrefix.size());
  for (const auto &[known, call] : kCalls)
    if (known == name)
      return call;
  return nullptr;
}

} // namespace ladder::instructions
