// Device functions that the CUDA driver provides: printf, assert, the device heap.
#pragma once

#include "machine/warp.h"

#include <cstdint>
#include <string_view>

namespace ladder::instructions {

/// The arguments of one call, by lane, and the destination of its result.
class CallArguments {
public:
  virtual ~CallArguments() = default;
  virtual std::uint64_t argument(std::size_t index, int lane) const = 0;
  /// An argument of this many bytes, such as a struct.
  virtual const std::uint8_t *bytes(std::size_t index, int lane, std::uint32_t bytes) const = 0;
  virtual void set_result(int lane, std::uint64_t value, std::uint32_t bytes) = 0;
};

/// Executes for warp.active(). Throws FaultError.
using SystemCall = void (*)(machine::Warp &warp, CallArguments &arguments);

/// nullptr if there is no such function.
SystemCall find_system_call(std::string_view name);

/// malloc and free of one lane; 0 if no free piece of the heap is large enough.
std::uint64_t allocate_on_heap(machine::Warp &warp, int lane, std::uint64_t bytes);
/// Does nothing for 0. Throws FaultError for memory that is not from the heap, or already freed.
void release_on_heap(machine::Warp &warp, int lane, std::uint64_t address);

} // namespace ladder::instructions
