// Launches and their counters.
#pragma once

#include "machine/block.h"
#include "machine/code.h"
#include "machine/counters.h"
#include "machine/fault.h"
#include "runtime/work/visibility.h"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ladder::runtime {

struct LaunchRecord {
  std::string kernel; ///< demangled
  std::string mangled;
  machine::Dim3 grid, block;
  std::uint64_t static_shared_bytes = 0, dynamic_shared_bytes = 0;
  std::string arch;
  std::shared_ptr<const machine::Code> code;
  machine::Counters counters; ///< summed over all launches
  std::uint64_t launches = 1;
};

/// The kernel's name as in the source, with parameters.
std::string demangle(const std::string &mangled);

/// Collects the launches of one session. Several host threads may launch; the device's lock guards this.
class LADDER_API LaunchLog {
public:
  /// `merge`: launches of one kernel with one configuration become one record.
  explicit LaunchLog(bool merge = false) : merge_(merge) {}
  void add(LaunchRecord record);
  const std::vector<LaunchRecord> &records() const { return records_; }

private:
  bool merge_;
  std::vector<LaunchRecord> records_;
};

/// {"arch", "fault", "returned", "uncounted": {function: calls}, "kernels": [{"kernel", "mangled", "grid",
/// "block", "static_shared_bytes", "dynamic_shared_bytes", "launches", "totals": {...}, "lines": [{...}]}],
/// "findings": [...]}; `findings` is the sanitizer's list; `returned` is what main returned, if it is known
/// to have.
std::string to_json(const LaunchLog &log, const std::string &arch, const std::optional<machine::Fault> &fault,
                    const std::map<std::string, std::uint64_t> &uncounted, const std::string &findings,
                    std::optional<int> returned);

} // namespace ladder::runtime
