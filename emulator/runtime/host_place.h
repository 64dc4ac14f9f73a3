// Where in the program a call of the runtime stands.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ladder::runtime {

/// A chain of calls, the innermost first, as tools know it: a file of code and offsets in it.
struct HostPlace {
  std::string module;
  std::vector<std::uint64_t> offsets;
};

inline constexpr int kMostFrames = 24;

/// Those of these return addresses that lie in the program itself; without one, in what called this library.
HostPlace place_of(void *const *frames, int count);
/// The call that this library is in.
HostPlace calling_place();

} // namespace ladder::runtime
