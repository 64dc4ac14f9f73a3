// The device's liberties, for sessions.
#pragma once

#include "machine/liberties.h"
#include "runtime/visibility.h"

namespace ladder::runtime {

/// Takes effect with the next launch or allocation; returns what held before.
LADDER_API machine::Liberties set_liberties(const machine::Liberties &liberties);

} // namespace ladder::runtime
