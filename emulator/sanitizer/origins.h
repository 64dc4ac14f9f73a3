// Where register values come from, judging by the code of a kernel.
#pragma once

#include "sanitizer/sites.h"

namespace ladder::sanitizer {

/// Records for each access which shared variable its address derives from and whether it may race with
/// others, and for each store whether it stores a constant.
void find_origins(const machine::Code &code, std::vector<Site> &sites);

} // namespace ladder::sanitizer
