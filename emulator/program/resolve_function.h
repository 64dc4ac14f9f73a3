// Resolves the names in a function's body.
#pragma once

#include "program/program.h"

#include <cstdint>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace ladder::program {

/// The names that the functions of a module share.
struct ModuleNames {
  std::vector<const ptx::Function *> sources;     ///< by function index
  std::unordered_set<std::string_view> externals; ///< declared, not defined
};

/// Shared memory whose size the launch gives.
bool is_dynamic_shared(const ptx::Variable &variable);

/// Fills in the function with this index. Throws LinkError.
void resolve_function(Program &program, const ModuleNames &names, std::uint32_t index);

} // namespace ladder::program
