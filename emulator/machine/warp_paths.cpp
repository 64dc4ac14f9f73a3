// The paths of a warp: divergence, joins, calls, waiting.
#include "machine/block.h"
#include "machine/source_place.h"
#include "machine/tensor_core.h"
#include "machine/warp.h"

#include <algorithm>
#include <bit>
#include <sstream>

namespace ladder::machine {

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
  // A loop's exit branch diverges repeatedly towards the same target: its lanes gather at one join.
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
  // The last path pushed runs first. Push the lowest address last, since lanes that are behind must catch up.
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
  join->arrived = mask_ & ~active_; // lanes whose guard is false wait at the return address
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
    wait_copies(0, true); // copies still in flight land
  block_->lanes_exited(*this, lanes);
}

std::vector<std::shared_ptr<Warp::Join>> Warp::waiting_joins() const {
  std::vector<std::shared_ptr<Join>> joins;
  for (const Path &path : paths_)
    for (std::shared_ptr<Join> join = path.join; join; join = join->parent)
      if (join->arrived && !join->is_call && std::ranges::find(joins, join) == joins.end())
        joins.push_back(join);
  return joins;
}

bool Warp::release_joins(std::uint32_t lanes) {
  if (!switch_path_)
    leave();
  bool any = false;
  for (const std::shared_ptr<Join> &join : waiting_joins()) {
    if (!(join->arrived & lanes))
      continue;
    any = true;
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
  return any;
}

/// When every path waits: releases lanes that a member mask names but that skipped the instruction and now
/// wait at a join. PTX has no joins: the instruction waits until these lanes execute it or exit.
bool Warp::release_members() {
  std::uint32_t at_joins = 0, skipped = 0;
  for (const std::shared_ptr<Join> &join : waiting_joins())
    at_joins |= join->arrived;
  for (const Path &path : paths_) {
    const std::uint32_t absent = path.members & at_joins;
    if (path.state != Path::State::converge || !absent ||
        !block_->code().sources[path.pc]->is(program::Trait::by_mask))
      continue;
    skipped |= absent;
    if (BlockObserver *const observer = block_->observer())
      observer->members_skipped(*this, path.pc, path.mask, absent);
  }
  return skipped && release_joins(skipped);
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
    const program::Instruction &instruction = *block_->code().sources[pc];
    return instruction.is(program::Trait::exits) ||
           (instruction.is(program::Trait::returns) && !frame.caller);
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

/// Instructions that touch the registers of a product in flight wait for it.
bool Warp::settle_products() {
  TensorCore *const tensor_core = block_->used_tensor_core();
  Warpgroup *const group = block_->warpgroup(index_);
  const bool has_loads = tensor_core && tensor_core->has_loads(index_);
  const bool has_products = group && group->has_in_flight(index_);
  if (!has_loads && !has_products)
    return true;
  const std::vector<std::uint32_t> &slots = block_->code().settles.at(pc_);
  if (has_loads)
    tensor_core->settle_loads(*this, slots);
  if (!has_products)
    return true;
  if (group->settle(*this, slots.empty() ? nullptr : slots.data(), slots.size()))
    return true;
  leave();
  paths_[current_].describe = describe_missing_products;
  paths_[current_].state = Path::State::event;
  switch_path_ = true;
  return false;
}

void Warp::release_waits() {
  for (Path &path : paths_)
    if (path.state == Path::State::event)
      path.state = Path::State::ready;
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
    alike = alike && offer && sources[path.pc]->is_like(*sources[paths_[waiting.front()].pc]);
    for (std::uint32_t left = alike ? offer->lanes : 0; left; left &= left - 1)
      offers.value[std::countr_zero(left)] = offer->value[std::countr_zero(left)];
    offers.lanes |= alike ? offer->lanes : 0;
  }
  if (!together) { // they come from different instructions; each continues from its own
    const auto all = alike ? std::make_shared<const Offer>(offers) : nullptr;
    for (const std::size_t i : waiting)
      paths_[i].offer = all;
    return;
  }
  Path &first = paths_[waiting.front()];
  first.mask = come;
  first.released = false; // one path now holds all members
  for (std::size_t i = waiting.size(); i-- > 1;) {
    paths_.erase(paths_.begin() + std::ptrdiff_t(waiting[i]));
    if (waiting[i] < current_)
      --current_;
  }
}

std::string Warp::describe_waits() const {
  std::ostringstream out;
  bool first = true;
  const auto place = [&](const program::Instruction &instruction) {
    return own_line_text(source_place(block_->code().program->module, instruction));
  };
  for (const Path &path : paths_) {
    const bool polls = path.state == Path::State::ready && polled_ && !starves_;
    if (path.state == Path::State::ready && !polls)
      continue;
    out << (first ? "" : "; ") << lanes_text(path.mask);
    const bool is_current = !switch_path_ && &path == &paths_[current_];
    const program::Instruction &instruction = *block_->code().sources[is_current ? pc_ : path.pc];
    if (polls)
      out << " in a loop";
    else if (path.state == Path::State::barrier)
      out << " at barrier " << path.barrier;
    else if (path.state == Path::State::event)
      out << " at " << instruction.full_opcode() << " for " << path.describe(const_cast<Warp &>(*this));
    else
      out << " at " << instruction.full_opcode() << " for " << lanes_text(path.members & live_ & ~path.mask);
    out << place(instruction);
    first = false;
  }
  for (const std::shared_ptr<Join> &join : waiting_joins()) {
    out << (first ? "" : "; ") << lanes_text(join->arrived) << " behind the branch"
        << place(*block_->code().sources[join->pc]);
    first = false;
  }
  return out.str();
}

std::vector<LanesAt> Warp::lanes_at() const {
  std::vector<LanesAt> all;
  for (const Path &path : paths_) {
    const bool is_current = !switch_path_ && &path == &paths_[current_];
    LanesAt &one = all.emplace_back();
    one.lanes = is_current ? mask_ : path.mask;
    one.pc = is_current ? pc_ : path.pc;
    one.frame = path.frame;
    one.state = path.state == Path::State::barrier    ? LanesAt::State::at_barrier
                : path.state == Path::State::converge ? LanesAt::State::at_warp_barrier
                : path.state == Path::State::event    ? LanesAt::State::at_event
                                                      : LanesAt::State::ready;
  }
  for (const std::shared_ptr<Join> &join : waiting_joins())
    all.push_back({join->arrived, join->pc, join->frame, LanesAt::State::at_join});
  return all;
}

std::uint32_t Warp::instruction_for_messages() const {
  if (switch_path_) // none of the paths is under way
    for (const Path &path : paths_)
      if ((path.state == Path::State::ready) == (polled_ && !starves_))
        return path.pc;
  return pc_ ? pc_ - 1 : 0;
}

} // namespace ladder::machine
