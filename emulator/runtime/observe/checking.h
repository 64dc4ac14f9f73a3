// The sanitizer as driven by the runtime: active for the lifetime of a Checking, which holds its findings.
#pragma once

#include "machine/block.h"
#include "machine/fault.h"
#include "runtime/observe/host_place.h"
#include "runtime/observe/stream_order.h"
#include "runtime/work/visibility.h"
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
  /// `watches_host`: also checks the program's own calls and accesses; requires a process that does nothing
  /// else.
  explicit Checking(bool watches_host = false);
  ~Checking();
  Checking(const Checking &) = delete;

  /// The active one; nullptr if launches are not checked.
  static Checking *active() { return active_.load(std::memory_order_acquire); }

  /// Sets up the checks of a launch: sets `launch.code` and `launch.observer`. The result must live as long
  /// as the launch.
  std::unique_ptr<sanitizer::LaunchChecker> watch(machine::LaunchContext &launch);
  bool watches_host() const { return watches_host_; }
  /// Records a launch that was refused.
  void note(const machine::Fault &fault);
  /// Records an invalid call by the host.
  void note_call(sanitizer::Kind kind, const std::string &message);

  // What the program does with memory.
  /// `fills`: fills the memory with a pattern that reveals writes by the host.
  void allocated(std::uint64_t begin, std::uint64_t bytes, const char *name, bool fills = false);
  void freed(std::uint64_t begin, std::uint64_t bytes);
  bool was_freed(std::uint64_t address) const;
  /// A library call reads this; `what` describes the operand. Returns whether there was something to report.
  bool library_reads(const std::string &what, std::uint64_t address, std::uint64_t bytes);
  void copied_back(std::uint64_t address, std::uint64_t bytes);

  /// Records work on the current stream (OnStream), ordered as streams and events say.
  void worked(const std::string &name, std::vector<MemoryUse> uses, bool is_launch = false);
  /// The same for a launch, with the memory that its threads touched.
  void worked(const sanitizer::LaunchChecker &launch);
  StreamOrder &streams() { return streams_; }
  /// Finds untracked host writes: memory that differs from its fill pattern was written.
  void find_host_writes();

  /// A launch failed; `finish` reports it unless the program asks for the error.
  void launch_failed(const char *error);
  void error_seen();

  sanitizer::Findings &findings() { return findings_; }
  void set_stack_bytes(std::uint64_t bytes) { stack_bytes_ = bytes; }
  sanitizer::InitialisedMemory &initialised() { return initialised_; }
  /// Memory that the launches must write in full.
  void track_output(std::uint64_t address, std::uint64_t bytes, const std::string &name);
  /// An output's contents before the first launch count as written.
  void mark_written(std::uint64_t address, std::uint64_t bytes);
  /// Checks what remains at the end: outputs, allocations, errors.
  void finish();
  /// All findings so far, as a list of objects.
  std::string to_json() const;

private:
  void check_early_uses(const sanitizer::LaunchChecker &launch);
  void finish_host();
  /// Reports undefined values there; `what` describes their use.
  bool report_undefined(std::uint64_t address, std::uint64_t bytes, const std::string &what,
                        const std::string &object);
  bool is_beside_allocation(std::uint64_t address) const;
  std::optional<sanitizer::Stray> explain(std::uint64_t address) const;

  static std::atomic<Checking *> active_;

  struct Kernel {
    std::shared_ptr<const machine::Code> code; ///< keeps its address from being reused
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
  mutable std::mutex mutex_; ///< guards the members below
  std::map<std::uint64_t, Block> live_;
  std::map<std::uint64_t, std::uint64_t> freed_; ///< begin -> end
  std::optional<std::pair<std::string, HostPlace>> unseen_error_;
  sanitizer::Findings findings_;
  sanitizer::InitialisedMemory initialised_;
  sanitizer::HeapMemory heap_;
  StreamOrder streams_;
  std::atomic<std::uint64_t> stack_bytes_{1024}; ///< cudaLimitStackSize
};

} // namespace ladder::runtime
