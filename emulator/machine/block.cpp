#include "machine/block.h"

#include "machine/source_place.h"

#include <algorithm>
#include <bit>
#include <sstream>

namespace ladder::machine {

namespace {

/// Instructions a warp runs before the next one has its turn.
constexpr std::uint64_t kSlice = 16384;
/// The same for a warp that has only polled: what it waits for is for others to do.
constexpr std::uint64_t kPollSlice = 512;
/// What shared memory holds before a program writes it: not zero, so that reading it unwritten shows (as a
/// NaN in floating point).
constexpr std::uint8_t kUnwritten = 0xff;

} // namespace

Block::Block(LaunchContext &launch, Dim3 index, Counters &counters, bool on_launching_thread)
    : launch_(&launch), index_(index), counters_(&counters), threads_(std::uint32_t(launch.block.count())),
      live_threads_(threads_), on_launching_thread_(on_launching_thread) {
  const program::KernelLayout &layout = launch.code->layout;
  shared_begin_ = shared_first_ = launch.gpu->reserved_shared_bytes_per_block;
  const std::uint64_t own = launch.dynamic_shared_bytes
                                ? layout.dynamic_shared_offset + launch.dynamic_shared_bytes
                                : layout.static_shared_bytes;
  shared_end_ = shared_begin_ + std::uint32_t(own);
  shared_.assign(shared_end_, kUnwritten);

  const std::uint32_t warps = (threads_ + 31) / 32;
  warps_.reserve(warps); // warps refer to their block, never to each other; their addresses stay
  for (std::uint32_t warp = 0; warp < warps; ++warp) {
    const std::uint32_t lanes = std::min(32u, threads_ - 32 * warp);
    warps_.emplace_back(*this, int(warp), lanes == 32 ? kAllLanes : (1u << lanes) - 1);
  }
  if (launch.observer)
    observer_ = launch.observer->watch(*this);
}

void Block::open_system_shared() {
  if (shared_first_ == 0)
    return;
  shared_first_ = 0;
  std::fill_n(shared_.begin(), shared_begin_, std::uint8_t(0));
}

Block::State Block::run() {
  const std::uint64_t limit = launch_->warp_instruction_limit;
  for (;;) {
    progressed_ = false;
    bool all_done = true, any_ready = false, only_polls = true;
    for (Warp &warp : warps_) {
      if (warp.finished())
        continue;
      all_done = false;
      if (!warp.ready())
        continue;
      any_ready = true;
      try {
        if (limit && warp.executed() >= limit)
          throw FaultError(
              FaultKind::instruction_limit,
              "a warp has executed " + std::to_string(warp.executed()) +
                  " instructions and is not done; is a loop endless, or does it wait for a kernel "
                  "of another stream? (kernels run one after the other here; raise the limit "
                  "with LADDER_WARP_INSTRUCTION_LIMIT)");
        const RunResult result = warp.run(warp.polled() ? kPollSlice : kSlice);
        only_polls = only_polls && (result != RunResult::slice_over || warp.polled());
        if (result == RunResult::exited)
          progressed_ = true;
        else if (result == RunResult::slice_over && !warp.polled())
          progressed_ = true;
      } catch (FaultError &error) {
        rethrow_with_place(std::move(error), warp);
      }
    }
    if (all_done)
      return State::finished;
    if (!any_ready)
      deadlock();
    if (on_launching_thread_ && launch_->on_round)
      launch_->on_round();
    if (launch_->stop.load(std::memory_order_relaxed))
      throw FaultError(FaultKind::interrupted, "the launch was interrupted");
    const bool still_waiting = std::none_of(warps_.begin(), warps_.end(), [](const Warp &warp) {
      return !warp.finished() && warp.ready() && !warp.polled();
    });
    if (!progressed_ && only_polls && still_waiting)
      return State::spinning;
  }
}

// --- barriers

void Block::arrive(Warp &warp, int barrier, std::uint32_t count, bool wait, Reduction reduction,
                   std::uint32_t values) {
  if (barrier < 0 || barrier >= kBarriers)
    throw FaultError(FaultKind::bad_operand,
                     "barrier " + std::to_string(barrier) + " does not exist: there are 16, 0 to 15");
  if (count % 32 != 0)
    throw FaultError(FaultKind::barrier, "a barrier for " + std::to_string(count) +
                                             " threads: the count must be a multiple of 32");
  Barrier &state = barriers_[std::size_t(barrier)];
  if (!state.open) {
    state = Barrier{.result = state.result};
    state.open = true;
    state.expected = count;
    state.reduction = reduction;
  } else if (state.expected != count) {
    throw FaultError(FaultKind::barrier,
                     "barrier " + std::to_string(barrier) +
                         " is waited for with different counts: " + std::to_string(state.expected) + " and " +
                         std::to_string(count) + " threads (0 stands for all)");
  }
  const std::uint32_t active = warp.active();
  const auto lanes = std::uint32_t(std::popcount(active));
  state.arrived += lanes;
  state.slots += active == warp.live() ? 32 : lanes;
  state.popc += std::uint32_t(std::popcount(values & active));
  state.all = state.all && (values & active) == active;
  state.any = state.any || (values & active);
  if (wait)
    warp.wait_barrier(barrier);
  if (is_complete(state))
    complete_barrier(barrier);
  else if (count && state.slots > count)
    throw FaultError(FaultKind::barrier, "more threads arrived at barrier " + std::to_string(barrier) +
                                             " than the " + std::to_string(count) + " it is for");
}

bool Block::is_complete(const Barrier &barrier) const {
  return barrier.expected ? barrier.slots == barrier.expected : barrier.arrived >= live_threads_;
}

void Block::complete_barrier(int barrier) {
  Barrier &state = barriers_[std::size_t(barrier)];
  switch (state.reduction) {
  case Reduction::none:
    break;
  case Reduction::popc:
    state.result = state.popc;
    break;
  case Reduction::all:
    state.result = state.all;
    break;
  case Reduction::any:
    state.result = state.any;
    break;
  }
  state.open = false;
  progressed_ = true;
  if (observer_)
    observer_->barrier_completed(barrier);
  for (Warp &warp : warps_)
    warp.release_barrier(barrier);
}

void Block::lanes_exited(std::uint32_t lanes) {
  live_threads_ -= std::uint32_t(std::popcount(lanes));
  progressed_ = true;
  for (int barrier = 0; barrier < kBarriers; ++barrier) {
    const Barrier &state = barriers_[std::size_t(barrier)];
    if (state.open && state.expected == 0 && is_complete(state))
      complete_barrier(barrier);
  }
}

// --- faults

void Block::shared_out_of_bounds(std::uint64_t address, std::uint64_t bytes, int lane) const {
  std::ostringstream out;
  out << "an access of " << bytes << " bytes at shared address " << address << ", outside the block's "
      << shared_end_ - shared_begin_ << " bytes of shared memory";
  if (address >= shared_end_)
    out << " (" << address - shared_begin_ << " bytes from its start)";
  throw FaultError(FaultKind::out_of_bounds, out.str(), lane).at(address);
}

void Block::rethrow_with_place(FaultError error, const Warp &warp) const {
  Fault &fault = error.fault;
  const Code &code = *launch_->code;
  fault.kernel = code.kernel;
  fault.block = {index_.x, index_.y, index_.z};
  fault.warp = warp.index();
  if (fault.lane >= 0) {
    const std::uint32_t linear = std::uint32_t(warp.index()) * 32 + std::uint32_t(fault.lane);
    const Dim3 &dim = launch_->block;
    fault.thread = {linear % dim.x, linear / dim.x % dim.y, linear / dim.x / dim.y};
  }
  const std::uint32_t instruction = warp.instruction_for_messages();
  fault.opcode = code.sources[instruction]->full_opcode();
  fault.ptx_line = code.sources[instruction]->ptx_line;
  SourcePlace place = source_place(code, instruction);
  fault.file = std::move(place.file);
  fault.line = place.line;
  fault.kernel_file = std::move(place.kernel_file);
  fault.kernel_line = place.kernel_line;
  throw error;
}

void Block::deadlock() {
  std::ostringstream out;
  bool at_barrier = false;
  const Warp *blamed = nullptr;
  int named = 0;
  for (const Warp &warp : warps_) {
    if (warp.finished())
      continue;
    const std::string waits = warp.describe_waits();
    at_barrier = at_barrier || waits.find("at barrier") != std::string::npos;
    if (!blamed)
      blamed = &warp;
    if (++named <= 4)
      out << (named > 1 ? "; " : "") << "warp " << warp.index() << ": " << waits;
  }
  if (named > 4)
    out << "; and " << named - 4 << " more warps";
  const std::string message = (at_barrier ? "a barrier is not reached by all threads that it waits for: "
                                          : "no warp of the block can go on: ") +
                              out.str();
  rethrow_with_place(FaultError(at_barrier ? FaultKind::barrier : FaultKind::deadlock, message), *blamed);
}

} // namespace ladder::machine
