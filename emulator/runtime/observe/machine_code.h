// Reads ptxas's machine code: its loads from global memory and its accesses to shared memory, by PTX line.
//
// ptxas drops repeated loads and merges scalar accesses to neighbouring addresses, so the machine code's
// accesses, and with them the hardware's counts, can be fewer and wider than the PTX's.
#pragma once

#include "instructions/machine_accesses.h"
#include "runtime/work/visibility.h"
#include "timing/machine_kernel.h"

#include <cstddef>
#include <span>
#include <string_view>

namespace ladder::runtime {

/// Reads the LDG, LDS, STS and ATOMS instructions of a cubin (ELF) made with -lineinfo for sm_75 or newer, by
/// the PTX lines in section .nv_debug_line_sass. Returns nothing if the input has no such information or is
/// not a cubin; never reads outside `cubin`.
LADDER_API instructions::MachineAccesses read_machine_accesses(std::span<const std::byte> cubin);

/// The machine code of one kernel, by its mangled name; empty under the same conditions.
LADDER_API timing::MachineKernel read_machine_kernel(std::span<const std::byte> cubin,
                                                     std::string_view kernel);

} // namespace ladder::runtime
