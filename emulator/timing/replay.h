// Replays recorded warps on one multiprocessor in simulated time.
//
// Each quarter issues one warp instruction per cycle, the oldest warp's that can. Warps issue in ptxas's
// order; an instruction waits for its registers, its pipe and, if it accesses memory, a place in the queue.
// Barriers, mbarriers, cp.async, TMA and wgmma complete in simulated time. Shared memory takes one wavefront
// per cycle, and the L2 gives a share of its bandwidth.
#pragma once

#include "timing/facts.h"
#include "timing/trace.h"

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace ladder::timing {

struct Parameters {
#define PARAMETER(name) double name = 0;
#include "timing/parameters.def"
#undef PARAMETER
};
/// Throws std::invalid_argument that names what is missing.
Parameters parameters_of(const std::map<std::string, double> &values);

/// Why a warp does not issue, as Nsight Compute names it.
enum class Stall : std::uint8_t {
  selected,
  wait,
  short_scoreboard,
  long_scoreboard,
  math_pipe_throttle,
  mio_throttle,
  lg_throttle,
  barrier,
  gmma,
  membar,
  branch_resolving,
  not_selected,
};
inline constexpr int kStalls = int(Stall::not_selected) + 1;
std::string_view stall_name(Stall stall);

/// A warp's wait.
struct Wait {
  std::uint32_t warp = 0; ///< number on the multiprocessor
  double begin = 0, end = 0;
  Stall stall = Stall::wait;
  std::uint32_t pc = 0;
};

struct Replayed {
  double cycles = 0;
  std::uint64_t instructions = 0; ///< warp instructions of the machine code
  /// By instruction and reason: cycles that warps waited.
  std::map<std::pair<std::uint32_t, Stall>, double> stalls;
  std::vector<Wait> waits; ///< the first block's, of some length
};

/// `blocks` blocks one after another, as many as `traces` at a time; block i does what trace i modulo their
/// number did. Throws std::runtime_error if the warps wait for each other forever.
Replayed replay(const Facts &facts, const std::vector<BlockTrace> &traces, std::uint64_t blocks,
                const Parameters &parameters);

} // namespace ladder::timing
