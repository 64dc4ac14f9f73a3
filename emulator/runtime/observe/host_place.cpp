#include "runtime/observe/host_place.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <sys/auxv.h>

namespace ladder::runtime {

namespace {

const void *module_of(const void *address, Dl_info &info) {
  return dladdr(address, &info) ? info.dli_fbase : nullptr;
}

} // namespace

HostPlace place_of(void *const *frames, int count) {
  Dl_info own{}, program{}, info{};
  module_of(reinterpret_cast<const void *>(&place_of), own);
  module_of(reinterpret_cast<const void *>(getauxval(AT_ENTRY)), program);
  HostPlace inside, outside;
  for (int i = 0; i < count; ++i) {
    // A return address may belong to the next line.
    const auto address = reinterpret_cast<std::uintptr_t>(frames[i]) - 1;
    const void *const base = module_of(reinterpret_cast<const void *>(address), info);
    if (!base || base == own.dli_fbase || !info.dli_fname)
      continue;
    HostPlace &place = base == program.dli_fbase ? inside : outside;
    if (place.module.empty())
      place.module = info.dli_fname;
    if (place.module == info.dli_fname)
      place.offsets.push_back(address - reinterpret_cast<std::uintptr_t>(base));
  }
  return inside.module.empty() ? outside : inside;
}

HostPlace calling_place() {
  void *frames[kMostFrames];
  return place_of(frames, backtrace(frames, kMostFrames));
}

} // namespace ladder::runtime
