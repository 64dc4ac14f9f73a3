#include "machine/block.h"

#include "machine/cluster.h"
#include "machine/liberties.h"
#include "machine/source_place.h"
#include "machine/tensor_core.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <sstream>
#include <utility>
#include <vector>

namespace ladder::machine {

namespace {

/// Instructions that a warp executes before the next warp runs.
constexpr std::uint64_t kSlice = 16384;

/// Ends messages about loops that may be endless.
constexpr char kEndless[] =
    ". Is a loop endless, or does it wait for a kernel of another stream? (In Python, kernels run "
    "one after the other; LADDER_WARP_INSTRUCTION_LIMIT raises the limit.)";

std::uint32_t launch_registers(const LaunchContext &launch) {
  const Code &code = *launch.code;
  const program::Function &entry = code.program->functions[code.layout.functions.front()];
  const std::uint64_t threads = std::uint64_t(entry.max_threads[0]) * std::max(1u, entry.max_threads[1]) *
                                std::max(1u, entry.max_threads[2]);
  return registers_at_launch(launch.gpu->registers_per_multiprocessor, threads, entry.min_blocks);
}

/// "warp 3" or "warps 0-3, 8"; the numbers ascend.
std::string warps_text(const std::vector<int> &warps) {
  std::string text = warps.size() > 1 ? "warps " : "warp ";
  for (std::size_t first = 0, last = 0; first < warps.size(); first = last + 1) {
    for (last = first; last + 1 < warps.size() && warps[last + 1] == warps[last] + 1;)
      ++last;
    text += (first ? ", " : "") + std::to_string(warps[first]);
    if (last > first)
      text += "-" + std::to_string(warps[last]);
  }
  return text;
}

} // namespace

Block::Block(LaunchContext &launch, Dim3 index, Counters &counters, bool on_launching_thread,
             Cluster &cluster, std::uint32_t cluster_rank)
    : launch_(&launch), index_(index), counters_(&counters), threads_(std::uint32_t(launch.block.count())),
      live_threads_(threads_), register_pool_(launch_registers(launch), (threads_ + 31) / 32),
      mbarrier_waits_((threads_ + 31) / 32), cluster_(&cluster), cluster_rank_(cluster_rank),
      patterns_(launch.code->memory_sites), on_launching_thread_(on_launching_thread),
      to_interrupt_(Liberties::current().backwards) {
  const program::KernelLayout &layout = launch.code->layout;
  shared_begin_ = shared_first_ = shared_base_address() + launch.gpu->reserved_shared_bytes_per_block;
  const std::uint64_t own = launch.dynamic_shared_bytes
                                ? layout.dynamic_shared_offset + launch.dynamic_shared_bytes
                                : layout.static_shared_bytes;
  shared_end_ = shared_begin_ + std::uint32_t(own);
  shared_.assign(shared_end_ & kOffsetInBlock, Liberties::current().unwritten);

  const std::uint32_t warps = (threads_ + 31) / 32;
  warps_.reserve(warps); // warps refer to their block, not to each other; their addresses are stable
  for (std::uint32_t warp = 0; warp < warps; ++warp) {
    const std::uint32_t lanes = std::min(32u, threads_ - 32 * warp);
    warps_.emplace_back(*this, int(warp), lanes == 32 ? kAllLanes : (1u << lanes) - 1);
  }
  for (std::uint32_t warp = 0; warp + kWarpsOfGroup <= threads_ / 32; warp += kWarpsOfGroup)
    warpgroups_.emplace_back(*this, int(warp));
  if (launch.observer)
    observer_ = launch.observer->watch(*this);
}

Block::~Block() {
  for (AccessPattern &pattern : patterns_)
    if (pattern.kind != AccessKind::none)
      pattern.settle(counters_->access[pattern.instruction].of(pattern.kind));
}

AccessPattern &Block::renew_pattern(const Instruction &instruction, AccessKind kind) {
  AccessPattern &pattern = this->pattern(instruction);
  if (pattern.kind != AccessKind::none)
    pattern.settle(counters_->access[pattern.instruction].of(pattern.kind));
  pattern.kind = kind;
  pattern.instruction = std::uint32_t(&instruction - code().instructions.data());
  return pattern;
}

void Block::open_system_shared() {
  if (shared_first_ == shared_base_address())
    return;
  shared_first_ = shared_base_address();
  std::fill_n(shared_.begin(), shared_begin_ & kOffsetInBlock, std::uint8_t(0));
}

TensorCore &Block::tensor_core() {
  if (!tensor_core_)
    tensor_core_ = std::make_unique<TensorCore>(warps_.size());
  return *tensor_core_;
}

Block::State Block::run() {
  const std::uint64_t limit = launch_->warp_instruction_limit;
  const bool backwards = Liberties::current().backwards;
  for (;;) {
    progressed_ = false;
    bool all_done = true, any_ready = false, only_polls = true;
    for (std::size_t turn = 0; turn < warps_.size(); ++turn) {
      Warp &warp = warps_[backwards ? warps_.size() - 1 - turn : turn];
      if (warp.finished())
        continue;
      all_done = false;
      if (!warp.ready())
        continue;
      any_ready = true;
      try {
        if (limit && warp.executed() >= limit)
          throw FaultError(FaultKind::instruction_limit, "a warp has executed " +
                                                             std::to_string(warp.executed()) +
                                                             " instructions without finishing" + kEndless);
        const RunResult result = warp.run(to_interrupt_ || warp.polled() ? kPollSlice : kSlice);
        only_polls = only_polls && (result != RunResult::slice_over || warp.polled());
        if (result == RunResult::exited)
          progressed_ = true;
        else if (result == RunResult::slice_over && !warp.polled())
          progressed_ = true;
      } catch (FaultError &error) {
        throw with_place(std::move(error), warp);
      }
    }
    if (all_done) {
      for (auto &[thread, groups] : bulk_groups_)
        groups.finish(*this);
      return State::finished;
    }
    moved_ = moved_ || progressed_;
    if (progressed_)
      launch_->progress.fetch_add(1);
    if (!any_ready) {
      if (cluster_->size() > 1)
        return State::waiting;
      deadlock();
    }
    if (on_launching_thread_ && launch_->on_round)
      launch_->on_round();
    if (launch_->stop.load(std::memory_order_relaxed))
      throw FaultError(FaultKind::interrupted, "the launch was interrupted");
    if (std::exchange(to_interrupt_, false))
      return State::interrupted;
    if (std::exchange(gives_way_, false))
      return State::gave_way;
    const bool still_waiting = std::none_of(warps_.begin(), warps_.end(), [](const Warp &warp) {
      return !warp.finished() && warp.ready() && !warp.polled();
    });
    moved_ = moved_ || progressed_;
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
                         " is used with different thread counts: " + std::to_string(state.expected) +
                         " and " + std::to_string(count) + " (0 means all threads)");
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
                                             " than its count of " + std::to_string(count));
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

void Block::lanes_exited(const Warp &warp, std::uint32_t lanes) {
  live_threads_ -= std::uint32_t(std::popcount(lanes));
  progressed_ = true;
  for (int barrier = 0; barrier < kBarriers; ++barrier) {
    const Barrier &state = barriers_[std::size_t(barrier)];
    if (state.open && state.expected == 0 && is_complete(state))
      complete_barrier(barrier);
  }
  cluster_->lanes_exited(warp, lanes);
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

Block &Block::owner(std::uint64_t address, int lane) {
  const std::uint64_t rank = address >> kClusterRankShift;
  if (rank >= cluster_->size())
    throw FaultError(FaultKind::out_of_bounds, "a shared address that no block of the cluster has", lane)
        .at(address);
  return cluster_->block(std::uint32_t(rank));
}

std::uint8_t *Block::cluster_shared(std::uint64_t address, std::uint64_t bytes, int lane) {
  if (address >> kClusterRankShift == cluster_rank_)
    shared_out_of_bounds(address, bytes, lane);
  Block &block = owner(address, lane);
  if (block.finished())
    throw FaultError(
        FaultKind::bad_operand,
        "an access to the shared memory of block " + std::to_string(block.cluster_rank()) +
            " of the cluster, which has exited: a block may exit only when no other block will access "
            "its shared memory (barrier.cluster)",
        lane)
        .at(address);
  if (address < block.shared_first_ || address + bytes > block.shared_end_)
    block.shared_out_of_bounds(address, bytes, lane);
  return block.shared_base() + address;
}

FaultError Block::with_place(FaultError error, const Warp &warp) const {
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
  fault.own_line = place.own_line;
  return error;
}

FaultError Block::waiting_fault(const std::string &message) const {
  const auto polls = std::find_if(warps_.begin(), warps_.end(),
                                  [](const Warp &warp) { return !warp.finished() && warp.polled(); });
  return with_place(FaultError(FaultKind::barrier, message), polls == warps_.end() ? warps_.front() : *polls);
}

bool Block::starves() const {
  return std::all_of(warps_.begin(), warps_.end(),
                     [](const Warp &warp) { return warp.finished() || !warp.ready() || warp.starves(); });
}

void Block::note_mbarrier_wait(const Warp &warp, const MbarrierWait &wait) {
  std::vector<MbarrierWait> &waits = mbarrier_waits_[std::size_t(warp.index())];
  for (MbarrierWait &other : waits)
    other.lanes &= ~wait.lanes;
  std::erase_if(waits, [](const MbarrierWait &other) { return other.lanes == 0; });
  waits.push_back(wait);
}

std::string Block::describe_wait(const Warp &warp) const {
  std::string text;
  const std::uint32_t spinning = warp.starves() ? warp.ready_lanes() : 0;
  for (const MbarrierWait &wait : mbarrier_waits_[std::size_t(warp.index())]) {
    if (!(wait.lanes & spinning))
      continue;
    std::uint64_t bits;
    std::memcpy(&bits, shared_.data() + (wait.address & kOffsetInBlock), sizeof bits);
    text += (text.empty() ? "" : "; ") + lanes_text(wait.lanes & spinning) + " at the mbarrier at byte " +
            std::to_string(wait.address - shared_begin_) + " of shared memory for the phase of parity " +
            std::to_string(wait.parity) + ", which " + wait.describe(bits) +
            own_line_text(source_place(*launch_->code, wait.instruction));
  }
  const std::string others = warp.describe_waits();
  return text + (text.empty() || others.empty() ? "" : "; ") + others;
}

std::string Block::describe_waits() const {
  constexpr std::size_t kMostNamed = 6;
  std::vector<std::pair<std::string, std::vector<int>>> waits; // and the warps that wait so
  for (const Warp &warp : warps_) {
    if (warp.finished())
      continue;
    std::string text = describe_wait(warp);
    auto known = std::find_if(waits.begin(), waits.end(), [&](const auto &one) { return one.first == text; });
    if (known == waits.end())
      known = waits.insert(waits.end(), {std::move(text), {}});
    known->second.push_back(warp.index());
  }
  std::ostringstream out;
  for (std::size_t i = 0; i < std::min(waits.size(), kMostNamed); ++i)
    out << (i ? "; " : "") << warps_text(waits[i].second) << ": " << waits[i].first;
  if (waits.size() > kMostNamed)
    out << "; and more";
  return out.str();
}

void Block::deadlock() {
  const auto unfinished = [](const Warp &warp) { return !warp.finished(); };
  const bool at_barrier = std::any_of(warps_.begin(), warps_.end(), [&](const Warp &warp) {
    return unfinished(warp) && warp.waits_at_barrier();
  });
  const std::string message = (at_barrier ? "a barrier is not reached by all threads that it waits for: "
                                          : "no warp of the block can proceed: ") +
                              describe_waits();
  throw with_place(FaultError(at_barrier ? FaultKind::barrier : FaultKind::deadlock, message),
                   *std::find_if(warps_.begin(), warps_.end(), unfinished));
}

FaultError Block::endless_wait() const {
  FaultError error = waiting_fault(
      "all remaining blocks of the grid wait, and nothing that they wait for has changed for a long time: " +
      describe_waits() + kEndless);
  error.fault.kind = FaultKind::deadlock;
  return error;
}

} // namespace ladder::machine
