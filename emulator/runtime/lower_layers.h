// What the Python module needs of the layers below, whose own functions this library keeps to itself.
#pragma once

#include "machine/fault.h"
#include "machine/global_memory.h"
#include "machine/gpu.h"
#include "ptx/ast.h"
#include "runtime/visibility.h"

namespace ladder::runtime {

LADDER_API const machine::VirtualGpu *find_gpu(std::string_view arch);
LADDER_API std::span<const machine::VirtualGpu> virtual_gpus();
LADDER_API std::string_view fault_kind_name(machine::FaultKind kind);
LADDER_API std::string describe(const machine::Fault &fault);
LADDER_API std::string_view type_name(ptx::Type type);

} // namespace ladder::runtime
