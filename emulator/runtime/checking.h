// The sanitizer as the runtime drives it: on for a stretch of time, with what it has found.
#pragma once

#include "machine/block.h"
#include "machine/fault.h"
#include "runtime/host_place.h"
#include "runtime/stream_order.h"
#include "runtime/visibility.h"
#include "sanitizer/findings.h"
#include "sanitizer/initialised.h"
#include "sanitizer/launch_checker.h"

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ladder::runtime {

class LADDER_API Checking {
public:
  /// `watches_host`: the program's own calls and accesses are checked too, which takes a process that does
  /// nothing else.
  explicit Checking(bool watches_host = false);
  ~Checking();
  Checking(const Checking &) = delete;

  /// The one that is on, nullptr when launches are not checked.
  static Checking *active() { return active_.load(std::memory_order_acquire); }

  /// The checks of a launch. `launch.code` and `launch.observer` are set; the result lives as long as it
  /// runs.
  std::unique_ptr<sanitizer::LaunchChecker> watch(machine::LaunchContext &launch);
  bool watches_host() const { return watches_host_; }
  /// A launch that was refused.
  void note(const machine::Fault &fault);
  /// A call of the host that was wrong.
  void note_call(sanitizer::Kind kind, const std::string &message);

  // What the program does with memory.
  /// `fills`: with a pattern that tells what the host writes.
  void allocated(std::uint64_t begin, std::uint64_t bytes, const char *name, bool fills = false);
  void freed(std::uint64_t begin, std::uint64_t bytes);
  bool was_freed(std::uint64_t address) const;
  void copied_back(std::uint64_t address, std::uint64_t bytes);

  /// Work of the current stream (OnStream), in order with what it must come after or not.
  void worked(const std::string &name, std::vector<MemoryUse> uses);
  /// The same for a launch, from what its threads have touched.
  void worked(const sanitizer::LaunchChecker &launch);
  StreamOrder &streams() { return streams_; }
  /// Memory that the host writes without telling: what differs from how it began has been written.
  void find_host_writes();

  /// A launch that failed; whether the program has asked for the error shows at its end.
  void launch_failed(const char *error);
  void error_seen();

  sanitizer::Findings &findings() { return findings_; }
  void set_stack_bytes(std::uint64_t bytes) { stack_bytes_ = bytes; }
  sanitizer::InitialisedMemory &initialised() { return initialised_; }
  /// Memory that the launches are to write, all of it.
  void track_output(std::uint64_t address, std::uint64_t bytes, const std::string &name);
  /// Looks at what is left at the end: outputs, allocations, errors.
  void finish();
  /// All findings so far, a list of objects.
  std::string to_json() const;

private:
  void finish_host();
  bool is_beside_allocation(std::uint64_t address) const;
  std::optional<sanitizer::Stray> explain(std::uint64_t address) const;

  static std::atomic<Checking *> active_;

  struct Kernel {
    std::shared_ptr<const machine::Code> code; ///< keeps its address from being another's
    std::shared_ptr<const sanitizer::CheckedCode> checked;
  };
  struct Output {
    std::uint64_t address, bytes;
    std::string name;
  };
  std::map<const machine::Code *, Kernel> kernels_;
  std::vector<Output> outputs_;
  struct Block {
    std::uint64_t bytes;
    std::string name;
    HostPlace place; ///< where it was allocated
    bool is_filled = false;
  };
  const bool watches_host_;
  mutable std::mutex mutex_; ///< guards what follows
  std::map<std::uint64_t, Block> live_;
  std::map<std::uint64_t, std::uint64_t> freed_; ///< begin -> end
  std::optional<std::pair<std::string, HostPlace>> unseen_error_;
  sanitizer::Findings findings_;
  sanitizer::InitialisedMemory initialised_;
  sanitizer::HeapMemory heap_;
  StreamOrder streams_;
  std::atomic<std::uint64_t> stack_bytes_{1024}; ///< cudaLimitStackSize, unless it is set
};

} // namespace ladder::runtime
