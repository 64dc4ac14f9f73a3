// Steps through launches for a debugger: stops before instructions, and reads what a stopped launch holds.
//
// Blocks of a launch with a stepper run on one host thread, so that a launch is the same each time: its n-th
// instruction is always the same instruction of the same warp.
#pragma once

#include "machine/block.h"
#include "machine/debugger.h"
#include "runtime/work/visibility.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace ladder::runtime {

class LADDER_API Stepper : public machine::Debugger {
public:
  enum class Why { launched, breakpoint, stepped, watched, found, faulted, reached, interrupted, ended };
  /// Where a step of the focused thread ends. A line counts as new where a loop returns to the start of the
  /// step. `into` also stops in functions that the line calls, `over` does not; `out` stops after the return
  /// to the caller; `barrier` stops at an instruction that synchronises warps.
  enum class Step { none, instruction, into, over, out, barrier };
  struct Focus {
    std::uint64_t block = 0; ///< its linear index
    int warp = 0, lane = 0;
  };
  /// A call of a function by a lane: level 0 is the innermost.
  struct Call {
    std::uint32_t rank = 0; ///< of the block in the cluster that is running
    int warp = 0, lane = 0, level = 0;
  };
  struct Watch {
    bool is_shared = false;
    std::uint64_t block = 0; ///< shared memory: of this block
    std::uint64_t address = 0, bytes = 0;
    std::vector<std::uint8_t> value; ///< the last one seen; empty before the first look
  };

  /// `on_stop` is called on the launching thread; the launch continues when it returns.
  explicit Stepper(std::function<void(Why)> on_stop) : on_stop_(std::move(on_stop)) {}

  void before(machine::Warp &warp, std::uint32_t lanes) override;
  void faulted(machine::Warp &warp, const machine::FaultError &error) override;
  /// The device calls these around a launch.
  void begin(machine::LaunchContext &launch);
  void end();

  // --- how to continue
  void set_breakpoints(const std::vector<std::uint32_t> &instructions);
  void set_step(Step step, Focus focus);
  /// Stops before the instruction with this number; 0: never.
  void set_target(std::uint64_t number) { target_ = number; }
  void set_watches(std::vector<Watch> watches);
  void set_stops_at_findings(bool stops);
  /// Stops before the next instruction; for signal handlers.
  void interrupt() { interrupted_ = true; }

  // --- what a stopped launch is
  const machine::LaunchContext &launch() const { return *launch_; }
  /// The global memory that its kernel may use.
  std::vector<machine::MemoryRange> memory() const;
  std::string kernel() const; ///< demangled
  /// Number of the instruction that is about to be executed, from 1, over all warps of the launch.
  std::uint64_t number() const { return number_; }
  std::uint64_t launches() const { return launches_; }
  /// The warp that is about to execute; nullptr at the beginning and the end of a launch.
  machine::Warp *warp() const { return warp_; }
  std::uint32_t lanes() const { return lanes_; }
  const std::string &fault() const { return fault_; }
  /// The watch whose memory has changed, and who executed last: block, warp, instruction.
  std::size_t watched() const { return watched_; }
  const std::tuple<std::uint64_t, int, std::uint32_t> &last() const { return last_; }

  /// By warp of the running cluster's blocks.
  struct WarpAt {
    std::uint64_t block;
    std::uint32_t rank;
    int warp;
    std::vector<machine::LanesAt> lanes;
  };
  std::vector<WarpAt> warps() const;
  /// The instructions that the calls of a lane are at, the innermost first; empty if it has exited.
  std::vector<std::uint32_t> calls(const Call &call) const;
  /// Value by lane of a register of this call; empty if no instruction uses the register.
  std::vector<std::uint64_t> register_values(const Call &call, const std::string &name) const;
  // Bytes of memory; nullopt if there are none.
  std::optional<std::string> local(const Call &call, const std::string &symbol, std::uint64_t offset,
                                   std::uint64_t bytes) const;
  std::optional<std::string> parameter(const Call &call, const std::string &name, std::uint64_t offset,
                                       std::uint64_t bytes) const;
  std::optional<std::string> generic(const Call &call, std::uint64_t address, std::uint64_t bytes) const;
  /// Shared memory of a block, the reserved bytes left out.
  std::string shared(std::uint32_t rank) const;
  /// The address of its first byte, as instructions on shared memory have it.
  std::uint32_t shared_begin() const { return launch_->gpu->reserved_shared_bytes_per_block; }
  /// Bytes from there to a shared variable; nullopt if the kernel has none of this name.
  std::optional<std::uint64_t> shared_offset(const std::string &symbol) const;
  /// The mbarriers initialised in this launch, of a block: offset in shared memory and description.
  std::vector<std::pair<std::uint32_t, std::string>> mbarriers(std::uint32_t rank) const;

  /// Source position of an instruction, innermost first: file, line, column, function.
  using Position = std::tuple<std::string, int, int, std::string>;
  struct InstructionRow {
    std::string function;
    int ptx_line;
    std::string ptx;
    std::vector<Position> positions;
  };
  std::vector<InstructionRow> instructions() const;

private:
  std::optional<Why> due(machine::Warp &warp, std::uint32_t lanes);
  bool step_ends(const machine::Warp &warp, std::uint32_t lanes);
  bool watch_changed(machine::Warp &warp);
  void note_mbarriers(machine::Warp &warp, std::uint32_t lanes);
  /// The line and the depth of calls, inlined ones included, of the next instruction.
  std::uint64_t line_of(std::uint32_t instruction) const;
  std::uint32_t depth_of(std::uint32_t instruction, const machine::Frame &frame) const;
  machine::Block &block(std::uint32_t rank) const;
  std::shared_ptr<machine::Frame> frame_of(const Call &call) const;
  const program::Function &function_of(const machine::Frame &frame) const;

  std::function<void(Why)> on_stop_;
  machine::LaunchContext *launch_ = nullptr;
  machine::Warp *warp_ = nullptr;
  std::uint64_t number_ = 0, launches_ = 0, target_ = 0;
  std::uint32_t lanes_ = 0;
  std::vector<bool> breakpoints_; ///< by instruction
  std::vector<Watch> watches_;
  std::size_t watched_ = 0, findings_ = 0;
  bool stops_at_findings_ = false;
  std::atomic<bool> interrupted_{false};
  std::string fault_;
  std::tuple<std::uint64_t, int, std::uint32_t> last_{};
  std::set<std::pair<std::uint64_t, std::uint32_t>> mbarriers_; ///< block, address
  Step step_ = Step::none;
  Focus focus_;
  /// Where the step began, once the focused thread has been seen.
  struct From {
    std::uint32_t instruction, depth;
    std::uint64_t line;
  };
  std::optional<From> from_;
};

} // namespace ladder::runtime
