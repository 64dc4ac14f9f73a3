// The place in the program that called the runtime.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ladder::runtime {

/// A call chain, innermost first, in the form that symbolisers take: a module file and offsets in it.
struct HostPlace {
  std::string module;
  std::vector<std::uint64_t> offsets;
};

inline constexpr int kMostFrames = 24;

/// The place of a call with these return addresses: those inside the program itself or, if there are none,
/// inside the module that called this library.
HostPlace place_of(void *const *frames, int count);
/// The call into this library that is in progress.
HostPlace calling_place();

} // namespace ladder::runtime
