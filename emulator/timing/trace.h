// What the warps of a launch's first blocks executed, as the model of time replays it.
#pragma once

#include "machine/debugger.h"
#include "timing/facts.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace ladder::machine {
class Block;
struct LaunchContext;
} // namespace ladder::machine

namespace ladder::timing {

/// What one execution of an instruction costs, or which barrier it concerns. Zeros if no lane took part.
struct Cost {
  std::uint32_t wavefronts = 0; ///< shared memory; of barriers: the shared address, or the barrier's number
  std::uint32_t sectors = 0;    ///< global memory; of barriers: arrivals or threads, of waits the parity
  std::int32_t bytes = 0;       ///< that an mbarrier expects, or that a bulk copy moves
  bool takes_part = false;
  bool is_store = false; ///< a bulk copy to global memory
};

/// PTX instructions that follow each other without a branch.
struct Run {
  std::uint32_t first = 0, last = 0;
  std::uint32_t costs = 0; ///< index of the first in WarpTrace::costs
};

struct WarpTrace {
  std::vector<Run> runs;
  std::vector<Cost> costs; ///< of recorded instructions, in order
};

struct BlockTrace {
  std::vector<WarpTrace> warps;
};

/// Records while the emulator executes. Blocks must run on one host thread.
class Recorder : public machine::Debugger {
public:
  /// Of a warp, at most so many runs and costs are recorded; then `is_cut`.
  static constexpr std::size_t kMostRecorded = 4'000'000;

  Recorder(const machine::LaunchContext &launch, const Facts &facts, std::uint64_t blocks);

  void before(machine::Warp &warp, std::uint32_t lanes) override;
  void faulted(machine::Warp &, const machine::FaultError &) override {}
  /// Completes what was announced last.
  void finish();
  std::vector<BlockTrace> &blocks() { return blocks_; }
  bool is_cut() const { return is_cut_; }
  /// An access that the model does not know; empty if there was none.
  const std::string &unknown() const { return unknown_; }

private:
  struct State {
    std::uint32_t last = ~0u;   ///< the instruction announced last
    std::uint32_t polled = ~0u; ///< a wait for an mbarrier that has failed
  };
  struct Open {
    machine::Warp *warp = nullptr;
    WarpTrace *trace = nullptr;
    State *state = nullptr;
    std::uint32_t pc = 0, lanes = 0;
    std::uint64_t wavefronts = 0, sectors = 0; ///< counted before
    Cost cost;
  };
  void count(machine::Warp &warp, std::uint32_t pc, std::uint64_t &wavefronts, std::uint64_t &sectors) const;
  Cost cost_before(machine::Warp &warp, std::uint32_t pc, std::uint32_t lanes) const;

  const Facts &facts_;
  std::vector<BlockTrace> blocks_;
  std::vector<std::vector<State>> states_; ///< by block and warp
  Open open_;
  bool is_cut_ = false;
  std::string unknown_;
};

} // namespace ladder::timing
