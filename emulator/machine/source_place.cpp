#include "machine/source_place.h"

namespace ladder::machine {

SourcePlace source_place(const Code &code, std::size_t index) {
  const program::Instruction *const source = code.sources[index];
  if (!source || source->location < 0)
    return {};
  const ptx::Module &module = code.program->module;
  const std::vector<ptx::SourcePosition> &chain = module.locations.at(std::size_t(source->location)).chain;
  if (chain.empty())
    return {};
  const auto file = [&](int number) {
    const auto found = module.files.find(number);
    return found == module.files.end() ? std::string() : found->second;
  };
  return {.file = file(chain.front().file),
          .kernel_file = file(chain.back().file),
          .line = chain.front().line,
          .kernel_line = chain.back().line};
}

} // namespace ladder::machine
