// Registry of the host program's fat binaries, kernels and variables, by their host addresses.
#pragma once

#include "machine/gpu.h"
#include "runtime/work/fat_binary.h"
#include "runtime/work/loaded_module.h"

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace ladder::runtime {

/// One fat binary: the device code of an object file. It is parsed on first use, once per GPU.
class FatBinary {
public:
  explicit FatBinary(const void *wrapper) : wrapper_(wrapper) {}
  /// A module of the driver.
  explicit FatBinary(ModuleImage image) : image_(std::move(image)) {}

  /// Throws FatBinaryError, ptx::SyntaxError, program::LinkError.
  LoadedModule &module(const machine::VirtualGpu &gpu);
  /// Sets the host's pointers to managed variables.
  void connect_managed();

  /// A __managed__ variable: the host accesses it through a pointer of its own.
  void add_managed(void **host_pointer, std::string name) {
    managed_.emplace_back(host_pointer, std::move(name));
  }

private:
  const void *wrapper_ = nullptr;
  std::optional<ModuleImage> image_;
  std::mutex mutex_;
  std::map<const machine::VirtualGpu *, std::unique_ptr<LoadedModule>> modules_;
  std::vector<std::pair<void **, std::string>> managed_;
};

/// A __global__ function of the host program. Its address serves as its cudaKernel_t.
struct RegisteredKernel {
  FatBinary *binary = nullptr;
  std::string name;                               ///< mangled
  std::atomic<int> max_dynamic_shared_bytes = -1; ///< set by cudaFuncSetAttribute; -1: not set
  std::atomic<int> preferred_carveout = -1;
  std::atomic<bool> allows_large_clusters = false;
};

struct RegisteredVariable {
  FatBinary *binary = nullptr;
  std::string name;
  std::size_t bytes = 0;
};

class Registry {
public:
  static Registry &instance();

  FatBinary *add_binary(const void *wrapper);
  FatBinary *add_binary(ModuleImage image);
  /// The binary at this address; nullptr if there is none.
  FatBinary *find_binary(const void *address);
  void remove_binary(FatBinary *binary);
  void add_kernel(FatBinary *binary, const void *host_function, std::string name);
  void add_variable(FatBinary *binary, const void *host_variable, std::string name, std::size_t bytes);

  /// Finds a kernel by host function or handle; nullptr if unknown.
  RegisteredKernel *kernel(const void *function_or_handle);
  /// Finds a kernel of a binary by its mangled name; nullptr if unknown.
  RegisteredKernel *kernel(const FatBinary *binary, const std::string &name);
  std::optional<RegisteredVariable> variable(const void *host_variable);

private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<FatBinary>> binaries_;
  std::unordered_map<const void *, std::unique_ptr<RegisteredKernel>> kernels_;
  std::unordered_map<const void *, RegisteredKernel *> handles_;
  std::unordered_map<const void *, RegisteredVariable> variables_;
};

} // namespace ladder::runtime
