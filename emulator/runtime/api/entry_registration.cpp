// Called by static constructors in nvcc's host code. They run before main, so these parse nothing and cannot
// fail; errors appear on first use.
#include "runtime/work/entry.h"
#include "runtime/work/registry.h"

using namespace ladder::runtime;

namespace {
FatBinary *binary_of(void **handle) { return reinterpret_cast<FatBinary *>(handle); }
} // namespace

void **__cudaRegisterFatBinary(void *wrapper) {
  return reinterpret_cast<void **>(Registry::instance().add_binary(wrapper));
}

void __cudaRegisterFatBinaryEnd(void **) {}

void __cudaUnregisterFatBinary(void **handle) { Registry::instance().remove_binary(binary_of(handle)); }

void __cudaRegisterFunction(void **handle, const char *host_function, char *, const char *device_name, int,
                            uint3 *, uint3 *, dim3 *, dim3 *, int *) {
  Registry::instance().add_kernel(binary_of(handle), host_function, device_name);
}

void __cudaRegisterVar(void **handle, char *host_variable, char *, const char *device_name, int, size_t size,
                       int, int) {
  Registry::instance().add_variable(binary_of(handle), host_variable, device_name, size);
}

void __cudaRegisterManagedVar(void **handle, void **host_pointer, char *, const char *device_name, int,
                              size_t size, int, int) {
  binary_of(handle)->add_managed(host_pointer, device_name);
  Registry::instance().add_variable(binary_of(handle), host_pointer, device_name, size);
}

char __cudaInitModule(void **handle) {
  // Called before the host first accesses a managed variable.
  return query([&] { binary_of(handle)->connect_managed(); }) == cudaSuccess;
}
