// What registers come from, as far as the text of a kernel tells.
#pragma once

#include "sanitizer/sites.h"

namespace ladder::sanitizer {

/// Enters into the sites of accesses which shared variable their address comes from, and into those of stores
/// whether they store a constant.
void find_origins(const machine::Code &code, std::vector<Site> &sites);

} // namespace ladder::sanitizer
