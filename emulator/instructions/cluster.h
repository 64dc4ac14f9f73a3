// barrier.cluster, which other barriers share their opcode with.
#pragma once

#include "instructions/binder.h"

namespace ladder::instructions {

bool bind_cluster_barrier(Binder &binder);

} // namespace ladder::instructions
