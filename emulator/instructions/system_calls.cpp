#include "instructions/system_calls.h"

#include "instructions/addressing.h"
#include "instructions/device_runtime_calls.h"
#include "instructions/format.h"

#include <cstdio>
#include <cstring>
#include <mutex>
#include <string>

namespace ladder::instructions {

using machine::FaultError;
using machine::FaultKind;
using machine::Warp;

namespace {

/// Reads a NUL-terminated string of the program.
std::string read_string(Warp &warp, int lane, std::uint64_t address) {
  constexpr std::size_t kLongest = 1 << 20;
  std::string text;
  while (text.size() < kLongest) {
    const auto c = char(*resolve_lane(warp, Space::generic, lane, address + text.size(), 1, Direction::read));
    if (c == '\0')
      break;
    text += c;
  }
  return text;
}

/// vprintf(format, arguments): arguments are packed, each aligned to its size.
void vprintf(Warp &warp, CallArguments &arguments) {
  static std::mutex mutex;
  std::string output, format;
  std::uint64_t format_address = 0;
  for_lanes(warp.active(), [&](int lane) {
    const std::uint64_t address = arguments.argument(0, lane);
    if (address != format_address) {
      format = read_string(warp, lane, address);
      format_address = address;
    }
    std::uint64_t next = arguments.argument(1, lane);
    const FormatSource source{
        .take =
            [&](unsigned bytes) {
              next = (next + bytes - 1) / bytes * bytes;
              std::uint64_t value = 0;
              std::memcpy(&value, resolve_lane(warp, Space::generic, lane, next, bytes, Direction::read),
                          bytes);
              next += bytes;
              return value;
            },
        .string = [&](std::uint64_t at) { return at ? read_string(warp, lane, at) : std::string("(null)"); },
    };
    arguments.set_result(lane, std::uint64_t(format_text(format, source, output)), 4);
  });
  // One write per call, so that the output of different blocks does not mix within a line.
  const std::lock_guard lock(mutex);
  std::fwrite(output.data(), 1, output.size(), stdout);
  std::fflush(stdout);
}

/// __assertfail(expression, file, line, function, character size)
void assertfail(Warp &warp, CallArguments &arguments) {
  const int lane = std::countr_zero(warp.active());
  const std::string expression = read_string(warp, lane, arguments.argument(0, lane));
  const std::string file = read_string(warp, lane, arguments.argument(1, lane));
  const std::string function = read_string(warp, lane, arguments.argument(3, lane));
  const auto line = std::uint32_t(arguments.argument(2, lane));
  throw FaultError(
      FaultKind::assertion,
      file + ":" + std::to_string(line) + ": " + function + ": Assertion `" + expression + "` failed.", lane);
}

machine::DeviceHeap &heap_of(Warp &warp) {
  if (machine::DeviceHeap *const heap = warp.block().launch().heap)
    return *heap;
  throw FaultError(FaultKind::unsupported, "there is no heap to allocate from");
}

/// Gap between allocations under the sanitizer, so that it can detect overruns.
constexpr std::uint64_t kGap = 64;

/// malloc(bytes)
void allocate(Warp &warp, CallArguments &arguments) {
  for_lanes(warp.active(), [&](int lane) {
    arguments.set_result(lane, allocate_on_heap(warp, lane, arguments.argument(0, lane)), 8);
  });
}

/// free(address)
void release(Warp &warp, CallArguments &arguments) {
  for_lanes(warp.active(), [&](int lane) { release_on_heap(warp, lane, arguments.argument(0, lane)); });
}

} // namespace

std::uint64_t allocate_on_heap(Warp &warp, int lane, std::uint64_t bytes) {
  machine::BlockObserver *const observer = warp.block().observer();
  // The sum must not overflow to a small size.
  const std::uint64_t taken = observer && bytes ? std::max(bytes, bytes + kGap) : bytes;
  const std::uint64_t address = heap_of(warp).allocate(taken);
  if (observer && address)
    observer->heap_allocated(warp, lane, address, bytes);
  return address;
}

void release_on_heap(Warp &warp, int lane, std::uint64_t address) {
  machine::BlockObserver *const observer = warp.block().observer();
  if (address != 0 && observer && observer->heap_freed(warp, lane, address))
    return;
  if (address != 0 && !heap_of(warp).release(address))
    throw FaultError(FaultKind::bad_operand,
                     "free of a pointer that malloc did not return, or that is already freed", lane)
        .at(address);
}

SystemCall find_system_call(std::string_view name) {
  if (name == "vprintf")
    return vprintf;
  if (name == "__assertfail" || name == "__assert_fail")
    return assertfail;
  if (name == "malloc")
    return allocate;
  if (name == "free")
    return release;
  return find_device_runtime_call(name);
}

} // namespace ladder::instructions
