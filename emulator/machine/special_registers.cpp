#include "machine/special_registers.h"

#include "machine/block.h"
#include "machine/liberties.h"

#include <algorithm>

namespace ladder::machine {

namespace {

/// The part of the reserved shared memory that %reserved_smem_offset_end covers.
constexpr std::uint32_t kSystemSharedBytes = 288;

struct Coordinates {
  std::uint32_t x, y, z;
};

Coordinates thread_of(const Block &block, int warp, int lane) {
  const Dim3 &dim = block.launch().block;
  const std::uint32_t linear = std::uint32_t(warp) * 32 + std::uint32_t(lane);
  return {linear % dim.x, linear / dim.x % dim.y, linear / dim.x / dim.y};
}

} // namespace

std::uint64_t special_value(program::Special special, const Block &block, int warp, int lane) {
  const LaunchContext &launch = block.launch();
  const Coordinates thread = thread_of(block, warp, lane);
  const Dim3 ctaid = block.index();
  const std::uint64_t linear =
      ctaid.x + std::uint64_t(launch.grid.x) * (ctaid.y + std::uint64_t(launch.grid.y) * ctaid.z);
  const std::uint32_t bit = 1u << lane;
  switch (special) {
#define SPECIAL(name, text, value)                                                                           \
  case program::Special::name:                                                                               \
    return value;
#include "program/specials.def"
  }
  return 0;
}

} // namespace ladder::machine
