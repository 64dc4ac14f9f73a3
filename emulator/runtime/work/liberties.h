// The device's liberties, for sessions.
#pragma once

#include "machine/liberties.h"
#include "runtime/work/visibility.h"

namespace ladder::runtime {

/// Takes effect at the next launch or allocation; returns the previous value.
LADDER_API machine::Liberties set_liberties(const machine::Liberties &liberties);

} // namespace ladder::runtime
