#include "runtime/work/kept_inputs.h"

#include "runtime/observe/launch_log.h"

#include <cstring>
#include <set>
#include <string>

namespace ladder::runtime {

namespace {

/// The types in the parameter list of a demangled function: `f(int const*, int)` has two. A name without a
/// list, such as that of an extern "C" function, has none.
std::vector<std::string> parameter_types(const std::string &function) {
  std::vector<std::string> types;
  if (!function.ends_with(')'))
    return types;
  std::size_t begin = function.size();
  int depth = 0;
  do {
    --begin;
    depth += (function[begin] == ')') - (function[begin] == '(');
  } while (depth && begin);
  types.emplace_back();
  for (const char letter : function.substr(begin + 1, function.size() - begin - 2)) {
    depth += (letter == '(' || letter == '<') - (letter == ')' || letter == '>');
    if (letter == ',' && depth == 0)
      types.emplace_back();
    else
      types.back() += letter;
  }
  return types;
}

} // namespace

KeptInputs::KeptInputs(Device &device, const LaunchRequest &request) : memory_(device.memory()) {
  if (!device.keeps_inputs())
    return;
  const program::Function *const kernel = request.code->program->find(request.code->kernel);
  const std::vector<std::string> types = parameter_types(demangle(request.code->kernel));
  if (!kernel || types.size() != kernel->parameters.size())
    return;
  std::set<std::uint64_t> inputs, others;
  for (std::size_t i = 0; i < types.size(); ++i) {
    const program::Parameter &parameter = kernel->parameters[i];
    std::uint64_t address = 0;
    if (!types[i].ends_with('*') || parameter.bytes != sizeof address)
      continue;
    std::memcpy(&address, request.params.data() + parameter.offset, sizeof address);
    if (const machine::MemoryRange *const range = memory_.find(address, 1); range && range->writable)
      (types[i].ends_with(" const*") ? inputs : others).insert(range->begin);
  }
  for (const std::uint64_t begin : inputs)
    if (!others.contains(begin)) {
      memory_.set_writable(begin, false);
      begins_.push_back(begin);
    }
}

KeptInputs::~KeptInputs() {
  for (const std::uint64_t begin : begins_)
    memory_.set_writable(begin, true);
}

} // namespace ladder::runtime
