#include "machine/warp.h"

#include "machine/block.h"
#include "machine/special_registers.h"

#include <algorithm>
#include <bit>

namespace ladder::machine {

namespace {

constexpr int kMaxCallDepth = 1024;
/// A slice counts as polling if polling instructions made up at least 1 / kPollShare of it.
constexpr std::uint64_t kPollShare = 256;
/// After this many polling slices in a row, lanes that wait at a join are released (see Warp::release_joins).
constexpr std::uint64_t kPatience = 64;

} // namespace

Warp::Warp(Block &block, int index, std::uint32_t live_lanes)
    : code_(&block.code()), block_(&block), index_(index), initial_(live_lanes), live_(live_lanes),
      patience_(kPatience) {
  Path path;
  path.mask = live_lanes;
  path.frame = make_frame(0, nullptr);
  path.pc = path.frame->layout->entry;
  paths_.push_back(std::move(path));
  enter(0);
}

// --- frames

std::shared_ptr<Frame> Warp::make_frame(std::uint32_t frame_index, const std::shared_ptr<Frame> &caller) {
  const FrameLayout &layout = block_->code().frames[frame_index];
  auto frame = std::make_shared<Frame>();
  frame->layout = &layout;
  frame->caller = caller;
  if (caller) {
    frame->depth = caller->depth + 1;
    frame->call_site = pc_ - 1;
    frame->local_base = (caller->local_base + caller->layout->local_bytes + caller->alloca_bytes + 15) & ~15u;
  }
  if (frame->depth > kMaxCallDepth)
    throw FaultError(FaultKind::stack_overflow,
                     "calls are nested more than " + std::to_string(kMaxCallDepth) + " deep");
  if (std::uint64_t(frame->local_base) + layout.local_bytes > kMaxLocalBytes)
    throw FaultError(FaultKind::stack_overflow, "a thread needs more than 512 KiB of local memory");

  constexpr std::size_t kAlignment = 64;
  frame->storage = std::make_unique<std::uint8_t[]>(layout.frame_bytes + kAlignment);
  const auto raw = reinterpret_cast<std::uintptr_t>(frame->storage.get());
  frame->registers = frame->storage.get() + ((kAlignment - raw % kAlignment) % kAlignment);
  if (!layout.constants.empty())
    std::memcpy(frame->registers + layout.register_bytes, layout.constants.data(), layout.constants.size());
  for (const FrameLayout::SpecialSlot &slot : layout.specials) {
    if (slot.special == program::Special::reserved_smem_offset_1)
      block_->open_system_shared();
    for (int lane = 0; lane < 32; ++lane) {
      const std::uint64_t value = special_value(slot.special, *block_, index_, lane);
      if (slot.wide)
        reinterpret_cast<std::uint64_t *>(frame->registers + slot.offset)[lane] = value;
      else
        reinterpret_cast<std::uint32_t *>(frame->registers + slot.offset)[lane] = std::uint32_t(value);
    }
  }
  for (const FrameLayout::SharedAddress &slot : layout.shared_addresses)
    for (int lane = 0; lane < 32; ++lane)
      if (slot.wide)
        reinterpret_cast<std::uint64_t *>(frame->registers + slot.offset)[lane] +=
            block_->shared_base_address();
      else
        reinterpret_cast<std::uint32_t *>(frame->registers + slot.offset)[lane] +=
            block_->shared_base_address();
  frame->params.resize(std::size_t(layout.param_area_bytes) * 32);
  return frame;
}

AccessCounters &Warp::access(const Instruction &instruction, AccessKind kind) {
  const std::size_t index = std::size_t(&instruction - block_->code().instructions.data());
  return block_->counters().access[index].of(kind);
}

const program::Instruction &Warp::source(const Instruction &instruction) const {
  return *block_->code().sources[std::size_t(&instruction - block_->code().instructions.data())];
}

// --- running

RunResult Warp::run(std::uint64_t slice) {
  return block_->launch().debugger ? run_slice<true>(slice) : run_slice<false>(slice);
}

template <bool kDebugged> RunResult Warp::run_slice(std::uint64_t slice) {
  const Instruction *const code = block_->code().instructions.data();
  Counters &counters = block_->counters();
  std::uint64_t *const executed = counters.executed.data();
  const std::vector<std::uint32_t> &polls = block_->code().polls;
  std::uint64_t polls_before = 0;
  for (const std::uint32_t poll : polls)
    polls_before += executed[poll];

  idle_polls_ = 0;
  waits_at_mbarrier_ = false;
  const std::uint64_t executed_before = executed_;
  remaining_ = slice;
  executed_ += slice;
  RunResult result = RunResult::slice_over;
  for (;;) {
    if (switch_path_ && !next_path() && !(release_members() && next_path())) {
      result = live_ ? RunResult::blocked : RunResult::exited;
      break;
    }
    if (remaining_ == 0)
      break;
    --remaining_;
    const Instruction &instruction = code[pc_];
    std::uint32_t mask = mask_;
    if (instruction.prologue) {
      if (instruction.prologue & kPrologueReconverge) {
        const Join *join = paths_[current_].join.get();
        if (join && join->pc == pc_ && !join->is_call && join->frame.get() == frame_) {
          reconverge();
          continue;
        }
      }
      if (instruction.prologue & kPrologueGuard)
        mask &= predicate(instruction.guard) ^ instruction.guard_invert;
      if (instruction.prologue & kPrologueSettle && mask && !settle_products())
        continue;
    }
    if constexpr (kDebugged)
      block_->launch().debugger->before(*this, mask);
    ++executed[pc_];
    if (mask != kAllLanes)
      counters.idle_lanes[pc_] += std::uint64_t(32 - std::popcount(mask));
    ++pc_;
    if (mask == 0)
      continue;
    active_ = mask;
    if constexpr (kDebugged) {
      execute_debugged(instruction);
    } else {
      instruction.execute(*this, instruction);
    }
  }
  executed_ -= remaining_;

  std::uint64_t polls_after = 0;
  for (const std::uint32_t poll : polls)
    polls_after += executed[poll];
  const std::uint64_t spent = executed_ - executed_before; // a yield returns the rest of the slice
  polled_ = result == RunResult::slice_over && (polls_after - polls_before) * kPollShare >= spent;
  starves_ = polled_ && waits_at_mbarrier_ && idle_polls_ >= polls_after - polls_before;
  poll_slices_ = polled_ ? poll_slices_ + 1 : 0;
  if (poll_slices_ > patience_) {
    if (release_joins())
      patience_ = std::max<std::uint64_t>(patience_ / 2, 1);
    poll_slices_ = 0;
  }
  if (result == RunResult::slice_over && !switch_path_ && paths_.size() > 1) {
    // Give the other paths their turn; a spinning path could starve the one it waits for.
    leave();
    std::rotate(paths_.begin(), paths_.end() - 1, paths_.end());
    switch_path_ = true;
  }
  return result;
}

void Warp::execute_debugged(const Instruction &instruction) {
  const std::uint32_t at = pc_ - 1;
  try {
    instruction.execute(*this, instruction);
  } catch (const FaultError &error) {
    pc_ = at;
    block_->launch().debugger->faulted(*this, error);
    pc_ = at + 1;
    throw;
  }
}

bool Warp::ready() const {
  if (live_ == 0)
    return false;
  if (!switch_path_)
    return true;
  return std::any_of(paths_.begin(), paths_.end(),
                     [](const Path &path) { return path.state == Path::State::ready; });
}

std::uint32_t Warp::ready_lanes() const {
  std::uint32_t lanes = 0;
  for (const Path &path : paths_)
    lanes |= path.state == Path::State::ready ? path.mask : 0;
  return lanes;
}

bool Warp::waits_at_barrier() const {
  return std::ranges::any_of(paths_, [](const Path &path) { return path.state == Path::State::barrier; });
}

// --- asynchronous copies

void Warp::commit_copies() { groups_.push_back(std::move(open_copies_)), open_copies_.clear(); }

void Warp::wait_copies(std::size_t pending, bool all) {
  while (groups_.size() > pending) {
    complete_copies(groups_.front());
    if (open_copies_.capacity() == 0)
      open_copies_.swap(groups_.front()); // reuse its storage
    groups_.erase(groups_.begin());
  }
  if (all)
    complete_copies(open_copies_);
}

void Warp::complete_copies(std::vector<PendingCopy> &copies) {
  for (const PendingCopy &copy : copies) {
    std::uint8_t *const to = block_->shared(copy.shared_address, copy.bytes, copy.lane);
    if (copy.bytes == sizeof copy.data) // constant size, which is much faster
      std::memcpy(to, copy.data, sizeof copy.data);
    else
      std::memcpy(to, copy.data, copy.bytes);
  }
  copies.clear();
}

// --- memory

std::uint32_t Warp::stack_end(int lane) const {
  const std::vector<std::uint32_t> &tops = frame_->alloca_tops;
  return tops.empty() ? frame_->local_base + frame_->layout->local_bytes : tops[std::size_t(lane)];
}

void Warp::set_stack_end(int lane, std::uint64_t end) {
  const std::uint32_t begin = frame_->local_base + frame_->layout->local_bytes;
  if (end < begin || end > kMaxLocalBytes)
    throw FaultError(FaultKind::stack_overflow,
                     "alloca leaves a thread with more than 512 KiB of local memory", lane);
  std::vector<std::uint32_t> &tops = frame_->alloca_tops;
  if (tops.empty())
    tops.assign(32, begin);
  tops[std::size_t(lane)] = std::uint32_t(end);
  frame_->alloca_bytes = *std::max_element(tops.begin(), tops.end()) - begin;
}

const MemoryRange *Warp::recall_range(std::uint64_t address, std::uint64_t bytes, bool write) {
  const auto place =
      std::find_if(recent_ranges_.begin(), recent_ranges_.end(),
                   [&](const MemoryRange *range) { return range && holds(*range, address, bytes, write); });
  if (place == recent_ranges_.end())
    return nullptr;
  std::rotate(recent_ranges_.begin(), place, place + 1);
  return recent_ranges_.front();
}

const MemoryRange &Warp::find_global_range(std::uint64_t address, std::uint64_t bytes, bool write, int lane) {
  const GlobalMemory &memory = *block_->launch().memory;
  const MemoryRange *range = memory.find(address, bytes);
  if (!range)
    throw FaultError(FaultKind::out_of_bounds,
                     (write ? "a write of " : "a read of ") + std::to_string(bytes) +
                         " bytes that no allocation holds: " + memory.describe(address),
                     lane)
        .at(address);
  if (write && !range->writable)
    throw FaultError(FaultKind::read_only, "a write to read-only memory (" + range->name + ")", lane)
        .at(address);
  std::rotate(recent_ranges_.begin(), recent_ranges_.end() - 1, recent_ranges_.end());
  recent_ranges_.front() = range;
  return *range;
}

} // namespace ladder::machine
