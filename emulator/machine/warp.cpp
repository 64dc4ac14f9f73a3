#include "machine/warp.h"

#include "machine/block.h"

#include <algorithm>
#include <bit>
#include <sstream>

namespace ladder::machine {

namespace {

constexpr int kMaxCallDepth = 1024;
/// Of the reserved shared memory, what programs may be told of.
constexpr std::uint32_t kSystemSharedBytes = 288;
constexpr std::uint64_t kMaxLocalBytes = 512 * 1024; // a thread, as on hardware
/// A slice is polling when one polling instruction took at least this part of it.
constexpr std::uint64_t kPollShare = 256;
/// Slices of polling in a row after which lanes that wait at a join are let go (see Warp::release_joins).
constexpr std::uint64_t kPatience = 64;

struct Coordinates {
  std::uint32_t x, y, z;
};

Coordinates thread_of(const Block &block, int warp, int lane) {
  const Dim3 &dim = block.launch().block;
  const std::uint32_t linear = std::uint32_t(warp) * 32 + std::uint32_t(lane);
  return {linear % dim.x, linear / dim.x % dim.y, linear / dim.x / dim.y};
}

std::uint64_t special_value(program::Special special, const Block &block, int warp, int lane) {
  using S = program::Special;
  const LaunchContext &launch = block.launch();
  const Coordinates thread = thread_of(block, warp, lane);
  const Dim3 ctaid = block.index();
  const std::uint32_t bit = 1u << lane;
  switch (special) {
  case S::tid_x:
    return thread.x;
  case S::tid_y:
    return thread.y;
  case S::tid_z:
    return thread.z;
  case S::ntid_x:
    return launch.block.x;
  case S::ntid_y:
    return launch.block.y;
  case S::ntid_z:
    return launch.block.z;
  case S::ctaid_x:
    return ctaid.x;
  case S::ctaid_y:
    return ctaid.y;
  case S::ctaid_z:
    return ctaid.z;
  case S::nctaid_x:
    return launch.grid.x;
  case S::nctaid_y:
    return launch.grid.y;
  case S::nctaid_z:
    return launch.grid.z;
  case S::laneid:
    return std::uint64_t(lane);
  case S::warpid:
    return std::uint64_t(warp);
  case S::nwarpid:
    return std::uint64_t(launch.gpu->max_threads_per_multiprocessor / 32);
  case S::smid: {
    const std::uint64_t linear =
        ctaid.x + std::uint64_t(launch.grid.x) * (ctaid.y + std::uint64_t(launch.grid.y) * ctaid.z);
    return linear % std::uint64_t(launch.gpu->multiprocessors);
  }
  case S::nsmid:
    return std::uint64_t(launch.gpu->multiprocessors);
  case S::gridid:
    return launch.grid_id;
  case S::lanemask_eq:
    return bit;
  case S::lanemask_le:
    return bit | (bit - 1);
  case S::lanemask_lt:
    return bit - 1;
  case S::lanemask_ge:
    return ~(bit - 1);
  case S::lanemask_gt:
    return ~(bit | (bit - 1));
  case S::dynamic_smem_size:
    return launch.dynamic_shared_bytes;
  case S::total_smem_size:
    return block.shared_end() - block.shared_begin();
  case S::aggr_smem_size:
    return block.shared_end();
  // As an H200 answers: what cooperative groups use is at the start of the reserved bytes.
  case S::reserved_smem_offset_begin:
  case S::reserved_smem_offset_0:
  case S::reserved_smem_offset_1:
    return 0;
  case S::reserved_smem_offset_end:
    return std::min(block.shared_begin(), kSystemSharedBytes);
  case S::reserved_smem_offset_cap:
    return block.shared_begin();
  // Where the driver tells cooperative groups the address of the grid's workspace.
  case S::envreg1:
    return launch.grid_workspace >> 32;
  case S::envreg2:
    return launch.grid_workspace & 0xffffffffu;
  // Without clusters every block is a cluster of its own.
  case S::cluster_ctaid_x:
  case S::cluster_ctaid_y:
  case S::cluster_ctaid_z:
    return 0;
  case S::cluster_nctaid_x:
  case S::cluster_nctaid_y:
  case S::cluster_nctaid_z:
    return 1;
  case S::cluster_ctarank:
    return 0;
  case S::cluster_nctarank:
    return 1;
  case S::is_explicit_cluster:
    return 0;
  case S::clusterid_x:
    return ctaid.x;
  case S::clusterid_y:
    return ctaid.y;
  case S::clusterid_z:
    return ctaid.z;
  case S::nclusterid_x:
    return launch.grid.x;
  case S::nclusterid_y:
    return launch.grid.y;
  case S::nclusterid_z:
    return launch.grid.z;
  case S::clock:
  case S::clock_hi:
  case S::clock64:
  case S::globaltimer:
  case S::globaltimer_lo:
  case S::globaltimer_hi:
    break; // change while the warp runs: read by mov
  }
  return 0;
}

std::string lanes_text(std::uint32_t lanes) {
  std::ostringstream out;
  out << (std::popcount(lanes) == 1 ? "lane " : "lanes ");
  bool first = true;
  for (int lane = 0; lane < 32;) {
    if (!(lanes >> lane & 1)) {
      ++lane;
      continue;
    }
    int end = lane;
    while (end < 31 && (lanes >> (end + 1) & 1))
      ++end;
    out << (first ? "" : ",") << lane;
    if (end > lane)
      out << "-" << end;
    first = false;
    lane = end + 1;
  }
  return out.str();
}

} // namespace

Warp::Warp(Block &block, int index, std::uint32_t live_lanes)
    : block_(&block), index_(index), initial_(live_lanes), live_(live_lanes), patience_(kPatience) {
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
  frame->params.resize(std::size_t(layout.param_area_bytes) * 32);
  return frame;
}

const std::uint32_t *Warp::more(const Instruction &instruction) const {
  return block_->code().more.data() + instruction.more_begin;
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
  const Instruction *const code = block_->code().instructions.data();
  Counters &counters = block_->counters();
  std::uint64_t *const executed = counters.executed.data();
  const std::vector<std::uint32_t> &polls = block_->code().polls;
  std::uint64_t polls_before = 0;
  for (const std::uint32_t poll : polls)
    polls_before += executed[poll];

  remaining_ = slice;
  executed_ += slice;
  RunResult result = RunResult::slice_over;
  for (;;) {
    if (switch_path_ && !next_path()) {
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
    }
    ++executed[pc_];
    if (mask != kAllLanes)
      counters.idle_lanes[pc_] += std::uint64_t(32 - std::popcount(mask));
    ++pc_;
    if (mask == 0)
      continue;
    active_ = mask;
    instruction.execute(*this, instruction);
  }
  executed_ -= remaining_;

  std::uint64_t polls_after = 0;
  for (const std::uint32_t poll : polls)
    polls_after += executed[poll];
  const std::uint64_t spent = slice - remaining_;
  polled_ = result == RunResult::slice_over && (polls_after - polls_before) * kPollShare >= spent;
  poll_slices_ = polled_ ? poll_slices_ + 1 : 0;
  if (poll_slices_ > patience_) {
    if (release_joins())
      patience_ = std::max<std::uint64_t>(patience_ / 2, 1);
    poll_slices_ = 0;
  }
  if (result == RunResult::slice_over && !switch_path_ && paths_.size() > 1) {
    // Let the other paths have their turn, or a spinning one could starve the one it waits for.
    leave();
    std::rotate(paths_.begin(), paths_.end() - 1, paths_.end());
    switch_path_ = true;
  }
  return result;
}

bool Warp::ready() const {
  if (live_ == 0)
    return false;
  if (!switch_path_)
    return true;
  return std::any_of(paths_.begin(), paths_.end(),
                     [](const Path &path) { return path.state == Path::State::ready; });
}

// --- paths

void Warp::enter(std::size_t path) {
  current_ = path;
  pc_ = paths_[path].pc;
  mask_ = paths_[path].mask;
  frame_ = paths_[path].frame.get();
  registers_ = frame_->registers;
  switch_path_ = false;
}

void Warp::leave() {
  paths_[current_].pc = pc_;
  paths_[current_].mask = mask_;
}

bool Warp::next_path() {
  for (std::size_t i = paths_.size(); i-- > 0;)
    if (paths_[i].state == Path::State::ready) {
      enter(i);
      return true;
    }
  return false;
}

void Warp::drop_current() {
  paths_.erase(paths_.begin() + std::ptrdiff_t(current_));
  switch_path_ = true;
}

void Warp::wait_current(Path::State state) {
  --pc_;
  --block_->counters().executed[pc_];
  block_->counters().idle_lanes[pc_] -= std::uint64_t(32 - std::popcount(active_));
  leave();
  paths_[current_].state = state;
  switch_path_ = true;
}

// --- control flow

void Warp::branch(std::uint32_t target, std::uint32_t taken, std::uint32_t reconverge) {
  const std::uint32_t rest = mask_ & ~taken;
  if (rest == 0) {
    pc_ = target;
    return;
  }
  if (taken == 0)
    return;
  std::uint32_t targets[32];
  for (int lane = 0; lane < 32; ++lane)
    targets[lane] = taken >> lane & 1 ? target : pc_;
  branch_indexed(targets, reconverge);
}

void Warp::branch_indexed(const std::uint32_t (&targets)[32], std::uint32_t reconverge) {
  Path &path = paths_[current_];
  std::shared_ptr<Join> join = path.join;
  const std::shared_ptr<Frame> frame = path.frame;
  // A loop's exit branch diverges again and again towards the same place: its lanes gather at one join.
  const bool same = join && join->pc == reconverge && !join->is_call && join->frame == frame;
  if (reconverge != program::kNoReconvergence && !same) {
    join = std::make_shared<Join>();
    join->pc = reconverge;
    join->expected = mask_;
    join->parent = path.join;
    join->frame = frame;
  }
  const std::uint32_t lanes = mask_;
  drop_current();
  // The last path pushed runs first: the one with the lowest address, as the lanes that are behind must catch
  // up.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> groups; // target, lanes
  for (std::uint32_t left = lanes; left;) {
    const std::uint32_t target = targets[std::countr_zero(left)];
    std::uint32_t group = 0;
    for (std::uint32_t rest = left; rest; rest &= rest - 1)
      if (targets[std::countr_zero(rest)] == target)
        group |= rest & -rest;
    groups.emplace_back(target, group);
    left &= ~group;
  }
  std::sort(groups.begin(), groups.end(), std::greater<>());
  for (const auto &[target, group] : groups) {
    if (target == reconverge) {
      arrive(join, group);
      continue;
    }
    Path split;
    split.pc = target;
    split.mask = group;
    split.join = join;
    split.frame = frame;
    paths_.push_back(std::move(split));
  }
}

void Warp::reconverge() {
  const std::shared_ptr<Join> join = paths_[current_].join;
  const std::uint32_t lanes = mask_;
  drop_current();
  arrive(join, lanes);
}

void Warp::arrive(const std::shared_ptr<Join> &join, std::uint32_t lanes) {
  join->arrived |= lanes;
  if (join->arrived == join->expected)
    complete(join);
}

void Warp::complete(const std::shared_ptr<Join> &join) {
  Path path;
  path.pc = join->pc;
  path.mask = join->arrived;
  path.join = join->parent;
  path.frame = join->frame;
  join->expected = join->arrived = 0;
  paths_.push_back(std::move(path));
}

void Warp::leave_join(const std::shared_ptr<Join> &join, std::uint32_t lanes) {
  join->expected &= ~lanes;
  if (join->arrived && join->arrived == join->expected)
    complete(join);
}

Frame &Warp::call(std::uint32_t frame_index) {
  Path &path = paths_[current_];
  auto join = std::make_shared<Join>();
  join->pc = pc_;
  join->expected = mask_;
  join->arrived = mask_ & ~active_; // lanes whose guard is false wait for the others at the return address
  join->parent = path.join;
  join->frame = path.frame;
  join->is_call = true;
  std::shared_ptr<Frame> frame = make_frame(frame_index, path.frame);
  path.join = std::move(join);
  path.frame = frame;
  path.mask = active_;
  path.pc = frame->layout->entry;
  enter(current_);
  return *frame;
}

std::vector<Frame *> Warp::call_indexed(const std::uint32_t (&frame_indices)[32]) {
  std::uint32_t left = active_;
  std::vector<Frame *> callees;
  auto join = std::make_shared<Join>();
  join->pc = pc_;
  join->expected = mask_;
  join->arrived = mask_ & ~active_;
  join->parent = paths_[current_].join;
  join->frame = paths_[current_].frame;
  join->is_call = true;
  drop_current();
  while (left) {
    const std::uint32_t index = frame_indices[std::countr_zero(left)];
    Path path;
    for (std::uint32_t rest = left; rest; rest &= rest - 1)
      if (frame_indices[std::countr_zero(rest)] == index)
        path.mask |= rest & -rest;
    left &= ~path.mask;
    path.frame = make_frame(index, join->frame);
    path.join = join;
    path.pc = path.frame->layout->entry;
    callees.push_back(path.frame.get());
    paths_.push_back(std::move(path));
  }
  return callees;
}

void Warp::ret() {
  if (!frame_->caller) {
    exit();
    return;
  }
  const std::uint32_t lanes = active_;
  std::shared_ptr<Join> join = paths_[current_].join;
  mask_ &= ~lanes;
  leave();
  if (mask_ == 0)
    drop_current();
  while (!join->is_call) {
    leave_join(join, lanes);
    join = join->parent;
  }
  arrive(join, lanes);
}

void Warp::exit() {
  const std::uint32_t lanes = active_;
  std::shared_ptr<Join> join = paths_[current_].join;
  mask_ &= ~lanes;
  live_ &= ~lanes;
  leave();
  if (mask_ == 0)
    drop_current();
  for (; join; join = join->parent)
    leave_join(join, lanes);
  for (std::size_t i = 0; i < paths_.size(); ++i)
    if (paths_[i].state == Path::State::converge)
      try_release_converge(paths_[i].members);
  if (live_ == 0)
    wait_copies(0, true); // what is still in flight lands
  block_->lanes_exited(lanes);
}

bool Warp::release_joins() {
  if (!switch_path_)
    leave();
  std::vector<std::shared_ptr<Join>> joins;
  for (const Path &path : paths_)
    for (std::shared_ptr<Join> join = path.join; join; join = join->parent)
      if (join->arrived && !join->is_call && std::find(joins.begin(), joins.end(), join) == joins.end())
        joins.push_back(join);
  for (const std::shared_ptr<Join> &join : joins) {
    Path path;
    path.pc = join->pc;
    path.mask = join->arrived;
    path.join = join->parent;
    path.frame = join->frame;
    join->expected &= ~join->arrived;
    join->arrived = 0;
    paths_.insert(paths_.begin(), std::move(path));
    ++current_;
  }
  return !joins.empty();
}

// --- waiting

bool Warp::take_release() {
  Path &path = paths_[current_];
  const bool released = path.released;
  path.released = false;
  return released;
}

std::uint32_t Warp::about_to_exit() const {
  const auto ends = [&](std::uint32_t pc, const Frame &frame) {
    const std::string &opcode = block_->code().sources[pc]->opcode;
    return opcode == "exit" || (opcode == "ret" && !frame.caller);
  };
  std::uint32_t lanes = 0;
  for (std::size_t i = 0; i < paths_.size(); ++i)
    if (i != current_ && ends(paths_[i].pc, *paths_[i].frame))
      lanes |= paths_[i].mask;
  for (const Path &path : paths_)
    for (const Join *join = path.join.get(); join; join = join->parent.get())
      if (!join->is_call && ends(join->pc, *join->frame))
        lanes |= join->arrived;
  return lanes;
}

void Warp::wait_barrier(int barrier) {
  paths_[current_].barrier = barrier;
  wait_current(Path::State::barrier);
}

void Warp::release_barrier(int barrier) {
  for (Path &path : paths_)
    if (path.state == Path::State::barrier && path.barrier == barrier) {
      path.state = Path::State::ready;
      path.released = true;
    }
}

bool Warp::converge(std::uint32_t members) {
  if ((members & live_ & ~mask_) == 0)
    return true;
  if (take_release())
    return true;
  paths_[current_].members = members;
  wait_current(Path::State::converge);
  try_release_converge(members);
  return false;
}

void Warp::offer(const Offer &offer) { paths_[current_].offer = std::make_shared<const Offer>(offer); }

std::shared_ptr<const Offer> Warp::take_offers() { return std::move(paths_[current_].offer); }

void Warp::try_release_converge(std::uint32_t members) {
  std::vector<std::size_t> waiting;
  std::uint32_t come = 0;
  bool together = true;
  for (std::size_t i = 0; i < paths_.size(); ++i) {
    const Path &path = paths_[i];
    if (path.state != Path::State::converge || path.members != members)
      continue;
    if (!waiting.empty()) {
      const Path &first = paths_[waiting.front()];
      together = together && first.pc == path.pc && first.join == path.join && first.frame == path.frame;
    }
    waiting.push_back(i);
    come |= path.mask;
  }
  if (waiting.empty() || (members & live_ & ~come))
    return;
  Offer offers;
  bool alike = !together;
  const auto &sources = block_->code().sources;
  for (const std::size_t i : waiting) {
    Path &path = paths_[i];
    path.state = Path::State::ready;
    path.released = true;
    const std::shared_ptr<const Offer> offer = std::move(path.offer);
    alike = alike && offer &&
            sources[path.pc]->full_opcode() == sources[paths_[waiting.front()].pc]->full_opcode();
    for (std::uint32_t left = alike ? offer->lanes : 0; left; left &= left - 1)
      offers.value[std::countr_zero(left)] = offer->value[std::countr_zero(left)];
    offers.lanes |= alike ? offer->lanes : 0;
  }
  if (!together) { // they meet from different places: each goes on from where it is
    const auto all = alike ? std::make_shared<const Offer>(offers) : nullptr;
    for (const std::size_t i : waiting)
      paths_[i].offer = all;
    return;
  }
  Path &first = paths_[waiting.front()];
  first.mask = come;
  first.released = false; // one path holds all members now
  for (std::size_t i = waiting.size(); i-- > 1;) {
    paths_.erase(paths_.begin() + std::ptrdiff_t(waiting[i]));
    if (waiting[i] < current_)
      --current_;
  }
}

std::string Warp::describe_waits() const {
  std::ostringstream out;
  bool first = true;
  for (const Path &path : paths_) {
    if (path.state == Path::State::ready)
      continue;
    out << (first ? "" : "; ") << lanes_text(path.mask);
    const program::Instruction &instruction = *block_->code().sources[path.pc];
    if (path.state == Path::State::barrier)
      out << " at barrier " << path.barrier;
    else
      out << " at " << instruction.full_opcode() << " for " << lanes_text(path.members & live_ & ~path.mask);
    if (instruction.location >= 0) {
      const ptx::Module &module = block_->code().program->module;
      const ptx::SourcePosition &place = module.locations[std::size_t(instruction.location)].chain.back();
      const auto file = module.files.find(place.file);
      const std::string path_text = file == module.files.end() ? "?" : file->second;
      out << " (" << path_text.substr(path_text.rfind('/') + 1) << ":" << place.line << ")";
    }
    first = false;
  }
  return out.str();
}

std::uint32_t Warp::instruction_for_messages() const {
  for (const Path &path : paths_)
    if (path.state != Path::State::ready)
      return path.pc;
  return pc_ ? pc_ - 1 : 0;
}

// --- asynchronous copies

void Warp::commit_copies() { groups_.push_back(std::move(open_copies_)), open_copies_.clear(); }

void Warp::wait_copies(std::size_t pending, bool all) {
  while (groups_.size() > pending) {
    complete_copies(groups_.front());
    if (open_copies_.capacity() == 0)
      open_copies_.swap(groups_.front()); // its room is wanted again
    groups_.erase(groups_.begin());
  }
  if (all)
    complete_copies(open_copies_);
}

void Warp::complete_copies(std::vector<PendingCopy> &copies) {
  for (const PendingCopy &copy : copies) {
    std::uint8_t *const to = block_->shared(copy.shared_address, copy.bytes, copy.lane);
    if (copy.bytes == sizeof copy.data) // of constant size, which is much faster
      std::memcpy(to, copy.data, sizeof copy.data);
    else
      std::memcpy(to, copy.data, copy.bytes);
  }
  copies.clear();
}

// --- memory

std::uint8_t *Warp::local(int lane, std::uint64_t address, std::uint64_t bytes) {
  const std::uint64_t top = local_top();
  if (address + bytes > top || address + bytes < address)
    throw FaultError(FaultKind::out_of_bounds,
                     "an access of " + std::to_string(bytes) + " bytes outside the thread's " +
                         std::to_string(top) + " bytes of local memory",
                     lane)
        .at(address);
  if (top > local_capacity_) {
    const std::uint64_t capacity =
        std::max<std::uint64_t>((top + 15) & ~std::uint64_t(15), 2 * local_capacity_);
    std::vector<std::uint8_t> grown(capacity * 32);
    for (std::uint64_t i = 0; local_capacity_ && i < 32; ++i)
      std::memcpy(grown.data() + i * capacity, local_.data() + i * local_capacity_, local_capacity_);
    local_ = std::move(grown);
    local_capacity_ = capacity;
  }
  return local_.data() + std::uint64_t(lane) * local_capacity_ + address;
}

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
