// mma.sync; matrix_table binds it.
#pragma once

#include "instructions/binder.h"
#include "machine/warp.h"

namespace ladder::instructions {

bool bind_mma(Binder &binder);

/// For instructions that need the whole warp: returns true if all 32 lanes are here. Otherwise the handler
/// must return and the path waits for the missing lanes; throws bad_operand if some of them can never arrive.
bool whole_warp(machine::Warp &warp);

} // namespace ladder::instructions
