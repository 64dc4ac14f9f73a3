#include "machine/source_place.h"

#include <algorithm>

namespace ladder::machine {

SourcePlace source_place(const Code &code, std::size_t index) {
  const program::Instruction *const source = code.sources[index];
  return source ? source_place(code.program->module, *source) : SourcePlace();
}

SourcePlace source_place(const ptx::Module &module, const program::Instruction &instruction) {
  if (instruction.location < 0)
    return {};
  const std::vector<ptx::SourcePosition> &chain =
      module.locations.at(std::size_t(instruction.location)).chain;
  if (chain.empty())
    return {};
  const auto file = [&](int number) {
    const auto found = module.files.find(number);
    return found == module.files.end() ? std::string() : found->second;
  };
  const auto own = std::find_if(chain.begin(), chain.end(), [&](const ptx::SourcePosition &place) {
    return place.file == chain.back().file;
  });
  return {.file = file(chain.front().file),
          .kernel_file = file(chain.back().file),
          .line = chain.front().line,
          .kernel_line = chain.back().line,
          .own_line = own->line};
}

std::string own_line_text(const SourcePlace &place) {
  if (!place.own_line)
    return "";
  return " (" + place.kernel_file.substr(place.kernel_file.rfind('/') + 1) + ":" +
         std::to_string(place.own_line) + ")";
}

} // namespace ladder::machine
