// Values of special registers.
#pragma once

#include "program/program.h"

#include <cstdint>

namespace ladder::machine {

class Block;

/// The value of a special register that is constant while a warp runs; 0 for the others.
std::uint64_t special_value(program::Special special, const Block &block, int warp, int lane);

} // namespace ladder::machine
