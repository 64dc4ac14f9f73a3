#include "runtime/work/registry.h"

#include "runtime/observe/machine_code.h"
#include "runtime/work/device.h"

#include <algorithm>

namespace ladder::runtime {

LoadedModule &FatBinary::module(const machine::VirtualGpu &gpu) {
  const std::lock_guard lock(mutex_);
  auto &module = modules_[&gpu];
  if (!module) {
    const DeviceCode code = image_ ? select_code(*image_, gpu) : select_code(wrapper_, gpu);
    module = std::make_unique<LoadedModule>(code.ptx, gpu, Device::instance().memory(),
                                            read_machine_accesses(code.cubin), code.cubin);
  }
  return *module;
}

void FatBinary::connect_managed() {
  LoadedModule &loaded = module(Device::instance().gpu());
  for (const auto &[host_pointer, name] : managed_)
    if (const auto variable = loaded.variable(name))
      *host_pointer = reinterpret_cast<void *>(variable->address);
}

Registry &Registry::instance() {
  // Never destroyed: programs unregister from atexit handlers, in any order.
  static Registry *registry = new Registry;
  return *registry;
}

FatBinary *Registry::add_binary(const void *wrapper) {
  const std::lock_guard lock(mutex_);
  return binaries_.emplace_back(std::make_unique<FatBinary>(wrapper)).get();
}

FatBinary *Registry::add_binary(ModuleImage image) {
  const std::lock_guard lock(mutex_);
  return binaries_.emplace_back(std::make_unique<FatBinary>(std::move(image))).get();
}

FatBinary *Registry::find_binary(const void *address) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(binaries_.begin(), binaries_.end(),
                                  [&](const auto &binary) { return binary.get() == address; });
  return found == binaries_.end() ? nullptr : found->get();
}

void Registry::remove_binary(FatBinary *binary) {
  const std::lock_guard lock(mutex_);
  std::erase_if(variables_, [&](const auto &entry) { return entry.second.binary == binary; });
  std::erase_if(handles_, [&](const auto &entry) { return entry.second->binary == binary; });
  std::erase_if(kernels_, [&](const auto &entry) { return entry.second->binary == binary; });
  std::erase_if(binaries_, [&](const auto &entry) { return entry.get() == binary; });
}

void Registry::add_kernel(FatBinary *binary, const void *host_function, std::string name) {
  const std::lock_guard lock(mutex_);
  auto kernel = std::make_unique<RegisteredKernel>();
  kernel->binary = binary;
  kernel->name = std::move(name);
  handles_[kernel.get()] = kernel.get();
  kernels_[host_function] = std::move(kernel);
}

void Registry::add_variable(FatBinary *binary, const void *host_variable, std::string name,
                            std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  variables_[host_variable] = {binary, std::move(name), bytes};
}

RegisteredKernel *Registry::kernel(const void *function_or_handle) {
  const std::lock_guard lock(mutex_);
  if (const auto found = kernels_.find(function_or_handle); found != kernels_.end())
    return found->second.get();
  const auto handle = handles_.find(function_or_handle);
  return handle == handles_.end() ? nullptr : handle->second;
}

RegisteredKernel *Registry::kernel(const FatBinary *binary, const std::string &name) {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find_if(kernels_, [&](const auto &entry) {
    return entry.second->binary == binary && entry.second->name == name;
  });
  return found == kernels_.end() ? nullptr : found->second.get();
}

std::optional<RegisteredVariable> Registry::variable(const void *host_variable) {
  const std::lock_guard lock(mutex_);
  const auto found = variables_.find(host_variable);
  return found == variables_.end() ? std::nullopt : std::optional(found->second);
}

} // namespace ladder::runtime
