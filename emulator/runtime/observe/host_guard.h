// Detects host accesses to device memory, which would crash with a real GPU.
//
// Device memory is inaccessible while the program's own code runs and accessible within calls of the runtime.
// An access raises SIGSEGV; the handler records it, opens that allocation until the next call ends, and lets
// the program continue.
#pragma once

#include "runtime/observe/host_place.h"

#include <cstdint>
#include <vector>

namespace ladder::runtime {

class HostGuard {
public:
  /// The guard of the process; installs its SIGSEGV handler on first use.
  static HostGuard &instance();

  /// Allocates zeroed pages, initially open; returns nullptr on failure. `is_shared`: the host may access
  /// them, except where unfinished work uses them.
  void *allocate(std::uint64_t bytes, bool is_shared = false);
  /// Closes the pages for good; their addresses are never reused.
  void retire(void *memory);
  /// Closes whole pages that the caller has mapped; `is_shared` as above.
  void adopt(std::uint64_t begin, std::uint64_t end, bool is_shared = false);
  /// Opens such pages for good.
  void release(std::uint64_t begin);

  void open();
  void close();

  struct Touch {
    std::uint64_t address = 0;
    HostPlace place;
    bool is_early = false; ///< memory shared with the host, still in use by unfinished work
  };
  /// The host's forbidden accesses so far, or since the last call of forget_touches.
  std::vector<Touch> touches() const;
  void forget_touches();

private:
  HostGuard();
  bool add(std::uint64_t begin, std::uint64_t end, bool is_shared);
};

/// Opens device memory during its lifetime; may be nested.
class OpenDeviceMemory {
public:
  OpenDeviceMemory();
  ~OpenDeviceMemory();
  OpenDeviceMemory(const OpenDeviceMemory &) = delete;

private:
  bool is_on_;
};

/// Closes it again, for code of the program that a call of the runtime calls.
class ClosedDeviceMemory {
public:
  ClosedDeviceMemory();
  ~ClosedDeviceMemory();
  ClosedDeviceMemory(const ClosedDeviceMemory &) = delete;

private:
  bool is_on_;
};

} // namespace ladder::runtime
