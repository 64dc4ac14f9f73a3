// A PTX module loaded on a virtual GPU: its program, storage for its variables, and its kernels, bound on
// first use.
#pragma once

#include "instructions/binder.h"
#include "instructions/machine_accesses.h"
#include "machine/code.h"
#include "machine/global_memory.h"
#include "machine/gpu.h"
#include "program/program.h"
#include "runtime/work/visibility.h"

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace ladder::runtime {

class LADDER_API LoadedModule {
public:
  /// Parses and resolves `ptx` and allocates its .global and .const variables in `memory`, which must outlive
  /// this object, like `cubin`, the machine code of this PTX, which `accesses` describes. Throws
  /// ptx::SyntaxError, program::LinkError.
  LoadedModule(const std::string &ptx, const machine::VirtualGpu &gpu, machine::GlobalMemory &memory,
               instructions::MachineAccesses accesses = {}, std::span<const std::byte> cubin = {});
  ~LoadedModule();
  LoadedModule(const LoadedModule &) = delete;
  LoadedModule &operator=(const LoadedModule &) = delete;

  const program::Program &program() const { return *program_; }
  std::vector<std::string> kernels() const;
  /// The entry with this name; nullptr if there is none.
  const program::Function *entry(const std::string &name) const;
  /// Returns a kernel ready to run. Throws machine::FaultError: of kind launch if there is no such kernel, of
  /// kind unsupported if it uses something the emulator does not model.
  std::shared_ptr<const machine::Code> kernel(const std::string &name);

  struct Variable {
    std::uint64_t address = 0, bytes = 0;
    bool is_constant = false;
  };
  std::optional<Variable> variable(const std::string &name) const;

private:
  struct Free {
    void operator()(void *memory) const;
  };

  void allocate_variables();
  void remove_variables();
  void fill_variable(std::uint32_t symbol);
  std::uint64_t address_of(const ptx::Variable::Relocation &relocation, int ptx_line) const;

  const machine::VirtualGpu &gpu_;
  machine::GlobalMemory &memory_;
  std::shared_ptr<const program::Program> program_;
  instructions::SymbolAddresses addresses_;
  instructions::MachineAccesses accesses_;
  std::span<const std::byte> cubin_;
  std::vector<std::unique_ptr<void, Free>> storage_;
  std::mutex mutex_; ///< guards kernels_
  std::unordered_map<std::string, std::shared_ptr<const machine::Code>> kernels_;
};

} // namespace ladder::runtime
