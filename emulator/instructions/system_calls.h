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
  virtual void set_result(int lane, std::uint64_t value, std::uint32_t bytes) = 0;
};

/// Executes for warp.active(). Throws FaultError.
using SystemCall = void (*)(machine::Warp &warp, CallArguments &arguments);

/// nullptr if there is no such function.
SystemCall find_system_call(std::string_view name);

} // namespace ladder::instructions
