// Keeps the host off device memory, which on a GPU it cannot touch either.
//
// Device memory is closed while the program's own code runs and open within calls of the runtime. A touch
// raises SIGSEGV, whose handler notes it, opens that allocation until the next call ends, and lets the
// program go on.
#pragma once

#include "runtime/host_place.h"

#include <cstdint>
#include <vector>

namespace ladder::runtime {

class HostGuard {
public:
  /// Of the process; takes SIGSEGV at first use.
  static HostGuard &instance();

  /// Whole pages of their own, zeroed; nullptr when there are none. Open to begin with. `is_shared`: the host
  /// may touch them, but for what work that it has not waited for uses.
  void *allocate(std::uint64_t bytes, bool is_shared = false);
  /// Closes them for good; their addresses are not given out again.
  void retire(void *memory);

  void open();
  void close();

  struct Touch {
    std::uint64_t address = 0;
    HostPlace place;
    bool is_early = false; ///< of memory that is shared
  };
  /// What the host has touched.
  std::vector<Touch> touches() const;

private:
  HostGuard();
};

/// Opens device memory for as long as it lives; calls within calls do no harm.
class OpenDeviceMemory {
public:
  OpenDeviceMemory();
  ~OpenDeviceMemory();
  OpenDeviceMemory(const OpenDeviceMemory &) = delete;

private:
  bool is_on_;
};

} // namespace ladder::runtime
