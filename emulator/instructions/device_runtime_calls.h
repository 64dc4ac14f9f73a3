// The functions of CUDA's device runtime that kernels call (nvcc -rdc=true, dynamic parallelism).
#pragma once

#include "instructions/system_calls.h"

#include <string_view>

namespace ladder::instructions {

/// With which the names of these functions begin in PTX.
inline constexpr std::string_view kDeviceRuntimePrefix = "__cudaCDP2";

/// nullptr if there is no such function, or if it is not emulated.
SystemCall find_device_runtime_call(std::string_view name);

} // namespace ladder::instructions
