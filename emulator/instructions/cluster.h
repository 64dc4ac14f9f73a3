// barrier.cluster; control_table's barriers share its opcode.
#pragma once

#include "instructions/binder.h"

namespace ladder::instructions {

bool bind_cluster_barrier(Binder &binder);

} // namespace ladder::instructions
