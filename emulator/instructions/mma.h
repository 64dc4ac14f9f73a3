// mma.sync, bound by the table of matrix instructions.
#pragma once

#include "instructions/binder.h"
#include "machine/warp.h"

namespace ladder::instructions {

bool bind_mma(Binder &binder);

/// For instructions that need the whole warp: true when all 32 lanes are here. Otherwise the path waits for
/// those that may still come, and the handler must return; throws bad_operand when some never will.
bool whole_warp(machine::Warp &warp);

} // namespace ladder::instructions
