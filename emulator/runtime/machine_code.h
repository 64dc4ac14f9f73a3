// What ptxas made of a module: which accesses to shared memory its machine code has, and for which PTX lines.
//
// ptxas merges scalar accesses to neighbouring addresses, so the machine code's accesses, and with them the
// hardware's counts, can be fewer and wider than those of the PTX.
#pragma once

#include "instructions/machine_accesses.h"
#include "runtime/visibility.h"

#include <cstddef>
#include <span>

namespace ladder::runtime {

/// Reads a cubin (ELF) that ptxas made with -lineinfo, for sm_75 and newer: the instructions LDS, STS and
/// ATOMS of its kernels, by the PTX lines that the section .nv_debug_line_sass gives for them. Empty when
/// there is nothing to learn, also for what is no cubin; nothing outside `cubin` is read.
LADDER_API instructions::MachineAccesses read_machine_accesses(std::span<const std::byte> cubin);

} // namespace ladder::runtime
