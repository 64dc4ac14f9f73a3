#include "runtime/work/loaded_module.h"

#include "machine/address_space.h"
#include "machine/fault.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <new>

namespace ladder::runtime {

namespace {

bool has_memory(const program::Symbol &symbol) {
  return symbol.space == ptx::StateSpace::global || symbol.space == ptx::StateSpace::constant;
}

} // namespace

void LoadedModule::Free::operator()(void *memory) const { std::free(memory); }

LoadedModule::LoadedModule(const std::string &ptx, const machine::VirtualGpu &gpu,
                           machine::GlobalMemory &memory, instructions::MachineAccesses accesses,
                           std::span<const std::byte> cubin)
    : gpu_(gpu), memory_(memory), program_(program::resolve(ptx::parse(ptx))), accesses_(std::move(accesses)),
      cubin_(cubin) {
  try {
    allocate_variables();
  } catch (...) {
    remove_variables();
    throw;
  }
}

LoadedModule::~LoadedModule() { remove_variables(); }

void LoadedModule::remove_variables() {
  for (const std::uint64_t address : addresses_)
    if (address)
      memory_.remove(address);
}

void LoadedModule::allocate_variables() {
  const std::vector<program::Symbol> &symbols = program_->symbols;
  addresses_.assign(symbols.size(), 0);
  std::uint64_t left = gpu_.global_bytes;
  for (std::uint32_t i = 0; i < symbols.size(); ++i) {
    const program::Symbol &symbol = symbols[i];
    if (!has_memory(symbol))
      continue;
    if (symbol.variable && symbol.variable->is_extern)
      throw program::LinkError(symbol.variable->ptx_line,
                               "the variable " + symbol.name + " is defined in another module");
    const std::uint64_t bytes = std::max<std::uint64_t>(symbol.bytes, 1);
    if (bytes > left)
      throw program::LinkError(symbol.variable ? symbol.variable->ptx_line : 0,
                               "the module's variables up to " + symbol.name + " take more than the " +
                                   std::to_string(gpu_.global_bytes) + " bytes of memory that " +
                                   std::string(gpu_.arch) + " has");
    left -= bytes;
    // Gaps separate neighbours, so that overruns are detected. Large variables cost only the pages they use.
    const std::uint64_t alignment = std::max<std::uint64_t>(symbol.alignment, 256);
    void *block = std::calloc(1, bytes + 2 * alignment);
    if (!block)
      throw std::bad_alloc();
    storage_.emplace_back(block);
    const auto begin = (reinterpret_cast<std::uint64_t>(block) + alignment - 1) / alignment * alignment;
    memory_.add({.begin = begin,
                 .end = begin + bytes,
                 .writable = symbol.space == ptx::StateSpace::global,
                 .name = symbol.name});
    addresses_[i] = begin;
  }
  for (std::uint32_t i = 0; i < symbols.size(); ++i)
    if (has_memory(symbols[i]) && symbols[i].variable)
      fill_variable(i);
}

void LoadedModule::fill_variable(std::uint32_t symbol) {
  const ptx::Variable &variable = *program_->symbols[symbol].variable;
  auto *memory = reinterpret_cast<std::uint8_t *>(addresses_[symbol]);
  const std::uint64_t bytes = program_->symbols[symbol].bytes;
  std::copy_n(variable.initial.begin(), std::min<std::uint64_t>(variable.initial.size(), bytes), memory);
  for (const ptx::Variable::Relocation &relocation : variable.relocations) {
    std::uint64_t value = address_of(relocation, variable.ptx_line);
    if (relocation.mask) // 0xFF00(symbol): these bits of it
      value = (value & relocation.mask) >> std::countr_zero(relocation.mask);
    const std::uint64_t size = std::min<std::uint64_t>(relocation.bytes, sizeof value);
    if (relocation.offset > bytes || size > bytes - relocation.offset)
      throw program::LinkError(variable.ptx_line,
                               "an address does not fit into the variable " + variable.name);
    std::memcpy(memory + relocation.offset, &value, size);
  }
}

std::uint64_t LoadedModule::address_of(const ptx::Variable::Relocation &relocation, int ptx_line) const {
  if (const auto found = program_->symbol_index.find(relocation.symbol);
      found != program_->symbol_index.end())
    if (addresses_[found->second])
      return addresses_[found->second] + std::uint64_t(relocation.addend);
  if (const auto found = program_->function_index.find(relocation.symbol);
      found != program_->function_index.end())
    return machine::kFunctionWindow + std::uint64_t(found->second) * 16;
  throw program::LinkError(ptx_line,
                           "an initialiser takes the address of " + relocation.symbol + ", which has none");
}

std::vector<std::string> LoadedModule::kernels() const {
  std::vector<std::string> names;
  for (const program::Function &function : program_->functions)
    if (function.is_entry)
      names.push_back(function.name);
  return names;
}

const program::Function *LoadedModule::entry(const std::string &name) const {
  const program::Function *function = program_->find(name);
  return function && function->is_entry ? function : nullptr;
}

std::shared_ptr<const machine::Code> LoadedModule::kernel(const std::string &name) {
  const std::lock_guard lock(mutex_);
  auto &code = kernels_[name];
  if (!code) {
    if (!entry(name))
      throw machine::FaultError(machine::FaultKind::launch, "the module has no kernel " + name);
    const auto bound =
        instructions::bind_kernel(program_, program_->function_index.at(name), addresses_, gpu_);
    bound->cubin = cubin_;
    code = instructions::divide_accesses(bound, accesses_);
  }
  return code;
}

std::optional<LoadedModule::Variable> LoadedModule::variable(const std::string &name) const {
  const auto found = program_->symbol_index.find(name);
  if (found == program_->symbol_index.end() || !addresses_[found->second])
    return std::nullopt;
  const program::Symbol &symbol = program_->symbols[found->second];
  return Variable{addresses_[found->second], symbol.bytes, symbol.space == ptx::StateSpace::constant};
}

} // namespace ladder::runtime
