// Where register values come from, as far as the code of a kernel tells.
#pragma once

#include "sanitizer/sites.h"

namespace ladder::sanitizer {

/// Records in the sites of accesses which shared variable their address is derived from, and whether they may
/// race with each other; in those of stores whether they store a constant.
void find_origins(const machine::Code &code, std::vector<Site> &sites);

} // namespace ladder::sanitizer
