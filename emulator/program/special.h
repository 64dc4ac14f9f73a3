// Names of special registers (PTX ISA "Special Registers").
#pragma once

#include "program/program.h"

#include <optional>
#include <string_view>

namespace ladder::program {

/// The special register that a name such as "%tid.x" denotes; nullopt if it denotes none.
std::optional<Special> special_from_name(std::string_view name);

/// True for special registers that always read 0 here: %current_graph_exec, and every %envreg (they belong to
/// the driver) except the two that special_from_name knows.
bool is_zero_special(std::string_view name);

} // namespace ladder::program
