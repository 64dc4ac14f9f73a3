// For hosts that do a part of the device's work themselves, on its memory: libraries that are not emulated.
#include "runtime/observe/checking.h"
#include "runtime/observe/host_guard.h"
#include "runtime/work/visibility.h"

#include <cstddef>
#include <cstdint>

using namespace ladder::runtime;

/// Tells the sanitizer that such work reads this device memory, which must have been written, or writes it.
extern "C" LADDER_API void ladder_device_memory_used(const void *begin, std::size_t bytes, int writes) {
  Checking *const checking = Checking::active();
  if (!checking || !bytes)
    return;
  const OpenDeviceMemory open;
  if (writes)
    checking->mark_written(reinterpret_cast<std::uint64_t>(begin), bytes);
  else
    checking->copied_back(reinterpret_cast<std::uint64_t>(begin), bytes);
}
