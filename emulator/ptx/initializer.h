// Types, sizes and initial values of variables (PTX ISA "Variables").
#pragma once

#include "ptx/constant.h"

namespace ladder::ptx {

/// Parses what follows a variable's name: dimensions and, if `may_initialize`, `= initialiser`. Sets `bytes`,
/// `initial` and `relocations`; needs `type` and `vector_width`.
void parse_dimensions_and_initializer(TokenStream &tokens, Variable &variable, bool may_initialize);

} // namespace ladder::ptx
