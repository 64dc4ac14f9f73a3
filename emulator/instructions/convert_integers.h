// cvt and cvt.pack between integers.
#pragma once

#include "instructions/binder.h"

namespace ladder::instructions {

unsigned bits_of_type(ptx::Type type);
bool is_integer(ptx::Type type);

/// Registers may be wider than the types: ignores the source's upper bits and extends the result.
bool bind_integer_to_integer(Binder &binder, ptx::Type to, ptx::Type from);
/// cvt.pack: two integers, saturated to 2 to 16 bits, above each other; the other bits are the low bits of a
/// third.
bool bind_integer_pack(Binder &binder);

} // namespace ladder::instructions
