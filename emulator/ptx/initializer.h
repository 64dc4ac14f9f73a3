// Types, sizes and initial values of variables (PTX ISA "Variables").
#pragma once

#include "ptx/constant.h"

namespace ladder::ptx {

/// Parses what stands after a variable's name: dimensions, and `= initialiser` where `may_initialize`. Sets
/// bytes, initial and relocations from type, vector_width.
void parse_dimensions_and_initializer(TokenStream &tokens, Variable &variable, bool may_initialize);

} // namespace ladder::ptx
