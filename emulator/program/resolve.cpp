// Resolves a syntax tree into a program: the variables and functions of its module, then each function's
// body.
#include "program/program.h"
#include "program/resolve_function.h"

#include <algorithm>

namespace ladder::program {

namespace {

void enter_variables(Program &program) {
  for (const ptx::Variable &variable : program.module.variables) {
    Symbol symbol;
    symbol.name = variable.name;
    symbol.space = variable.space;
    symbol.bytes = variable.bytes;
    symbol.alignment = variable.alignment;
    symbol.type = variable.type;
    symbol.variable = &variable;
    symbol.is_dynamic_shared = is_dynamic_shared(variable);
    const auto [place, is_new] =
        program.symbol_index.try_emplace(variable.name, std::uint32_t(program.symbols.size()));
    if (is_new) {
      program.symbols.push_back(std::move(symbol));
      continue;
    }
    // Only one declaration may be a definition; the others are extern.
    Symbol &known = program.symbols[place->second];
    if (variable.is_extern)
      continue;
    if (!known.variable->is_extern)
      throw LinkError(variable.ptx_line, "variable '" + variable.name + "' is defined twice");
    known = std::move(symbol);
  }
}

ModuleNames enter_functions(Program &program) {
  ModuleNames names;
  for (const ptx::Function &source : program.module.functions) {
    if (source.is_declaration)
      continue;
    const auto index = std::uint32_t(program.functions.size());
    if (!program.function_index.try_emplace(source.name, index).second)
      throw LinkError(source.ptx_line, "function '" + source.name + "' is defined twice");
    Function function;
    function.name = source.name;
    function.is_entry = source.is_entry;
    function.min_blocks = source.min_blocks;
    std::copy(std::begin(source.max_threads), std::end(source.max_threads), function.max_threads);
    std::copy(std::begin(source.required_threads), std::end(source.required_threads),
              function.required_threads);
    std::copy(std::begin(source.required_cluster), std::end(source.required_cluster),
              function.required_cluster);
    program.functions.push_back(std::move(function));
    names.sources.push_back(&source);
  }
  for (const auto &[alias, aliasee] : program.module.aliases)
    if (const auto found = program.function_index.find(aliasee); found != program.function_index.end()) {
      const std::uint32_t index = found->second; // the insertion may invalidate `found`
      program.function_index.emplace(alias, index);
    }
  for (const ptx::Function &source : program.module.functions)
    if (source.is_declaration && !program.function_index.contains(source.name))
      names.externals.insert(source.name);
  return names;
}

} // namespace

std::shared_ptr<const Program> resolve(ptx::Module module) {
  const auto program = std::make_shared<Program>();
  program->module = std::move(module);
  enter_variables(*program);
  const ModuleNames names = enter_functions(*program);
  for (std::uint32_t index = 0; index < program->functions.size(); ++index)
    resolve_function(*program, names, index);
  return program;
}

} // namespace ladder::program
