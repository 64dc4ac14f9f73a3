// What checked loads, stores, atomics and matrix instructions do.
#include "sanitizer/block_checker.h"

#include <algorithm>

namespace ladder::sanitizer {

using instructions::for_lanes;
using machine::Instruction;
using machine::kAllLanes;
using machine::Warp;

namespace {

BlockChecker &checker_of(Warp &warp) { return static_cast<BlockChecker &>(*warp.block().observer()); }

} // namespace

void checked_load(Warp &warp, const Instruction &in) { checker_of(warp).load(warp, in); }
void checked_store(Warp &warp, const Instruction &in) { checker_of(warp).store(warp, in); }
void checked_atomic(Warp &warp, const Instruction &in) { checker_of(warp).atomic(warp, in); }
void checked_matrix_load(Warp &warp, const Instruction &in) { checker_of(warp).matrix(warp, in, false); }
void checked_matrix_store(Warp &warp, const Instruction &in) { checker_of(warp).matrix(warp, in, true); }
void checked_fragment_load(Warp &warp, const Instruction &in) { checker_of(warp).fragment(warp, in, false); }
void checked_fragment_store(Warp &warp, const Instruction &in) { checker_of(warp).fragment(warp, in, true); }
void checked_copy(Warp &warp, const Instruction &in) { checker_of(warp).copy(warp, in); }
void checked_bulk_copy(Warp &warp, const Instruction &in) { checker_of(warp).bulk_copy(warp, in); }
void checked_commit(Warp &warp, const Instruction &in) { checker_of(warp).commit(warp, in); }
void checked_wait(Warp &warp, const Instruction &in) { checker_of(warp).wait(warp, in); }
void checked_copy_arrive(Warp &warp, const Instruction &in) { checker_of(warp).copy_arrive(warp, in); }
void checked_mbarrier(Warp &warp, const Instruction &in) { checker_of(warp).mbarrier(warp, in); }
void checked_mbarrier_wait(Warp &warp, const Instruction &in) { checker_of(warp).mbarrier_wait(warp, in); }
void checked_barrier(Warp &warp, const Instruction &in) { checker_of(warp).barrier(warp, in); }
void checked_warp_barrier(Warp &warp, const Instruction &in) { checker_of(warp).warp_barrier(warp, in); }
void checked_shuffle(Warp &warp, const Instruction &in) { checker_of(warp).shuffle(warp, in); }
void checked_fence(Warp &warp, const Instruction &in) { checker_of(warp).fence(warp, in); }

BlockChecker::BlockChecker(LaunchChecker &launch, machine::Block &block)
    : launch_(launch), block_(block), block_index_(std::uint32_t(block.linear_index())),
      clocks_(block.thread_count(), machine::kBarriers), shared_(block.shared_end()),
      copies_(block.warps().size()), local_(block.warps().size()) {
  first_arrival_.fill(-1);
  // The reserved bytes belong to the system, which has set them up.
  std::fill_n(shared_.written.begin(), block.shared_begin(), std::uint8_t(1));
}

BlockChecker::Context BlockChecker::context(Warp &warp, const Instruction &in) const {
  const auto index = std::uint32_t(&in - launch_.code().instructions.data());
  return {warp, in, launch_.site(index), index};
}

void BlockChecker::carry_out(const Context &at, std::uint32_t lanes) {
  if (lanes == 0)
    return;
  at.warp.restrict_active(lanes);
  at.site.original(at.warp, at.in);
}

void BlockChecker::load(Warp &warp, const Instruction &in) {
  const Context at = context(warp, in);
  const Reach where = reach_operand(at, warp.active(), at.site.bytes, false);
  if (at.site.flags & Access::strong)
    order_by_atomics(at, where, true, false);
  touch(at, where, Act::read, at.site.bytes);
  report(at, at.site.bytes);
  carry_out(at, where.lanes());
}

void BlockChecker::store(Warp &warp, const Instruction &in) {
  const Context at = context(warp, in);
  const Reach where = reach_operand(at, warp.active(), at.site.bytes, true);
  touch(at, where, Act::write, at.site.bytes);
  if (at.site.flags & Access::strong)
    order_by_atomics(at, where, false, true);
  report(at, at.site.bytes);
  carry_out(at, where.lanes());
}

void BlockChecker::atomic(Warp &warp, const Instruction &in) {
  const Context at = context(warp, in);
  const Reach where = reach_operand(at, warp.active(), at.site.bytes, true);
  order_by_atomics(at, where, true, false);
  touch(at, where, Act::update, at.site.bytes);
  order_by_atomics(at, where, false, true);
  report(at, at.site.bytes);
  carry_out(at, where.lanes());
}

/// Atomics and flags pass on what their writers had done before a fence.
void BlockChecker::order_by_atomics(const Context &at, const Reach &reach, bool acquires, bool releases) {
  const auto objects_of = [&](int lane) -> auto & {
    return reach.shared >> lane & 1 ? objects_ : launch_.objects;
  };
  for_lanes(reach.shared | reach.global, [&](int lane) {
    auto &objects = objects_of(lane);
    const std::uint32_t thread = at.thread(lane);
    if (acquires)
      if (const auto found = objects.find(reach.address[lane]); found != objects.end())
        acquire(thread, found->second);
    if (!releases)
      return;
    SharedClock own = at.site.releases ? clocks_.release(thread) : clocks_.fenced(thread);
    if (own)
      merge_into(objects[reach.address[lane]], all_known(std::move(own)));
  });
}

Knowledge BlockChecker::all_known(SharedClock own) const {
  Knowledge all = known_;
  all[block_index_] = std::move(own);
  return all;
}

/// What a thread learns of other blocks counts for its whole block.
void BlockChecker::acquire(std::uint32_t thread, const Knowledge &knowledge) {
  for (const auto &[block, clock] : knowledge) {
    if (block == block_index_) {
      clocks_.acquire(thread, clock);
    } else {
      SharedClock &known = known_[block];
      known = merge(known, clock);
    }
  }
}

void BlockChecker::fence(Warp &warp, const Instruction &in) {
  clocks_.fence(warp.index(), warp.active());
  carry_out(context(warp, in), warp.active());
}

void BlockChecker::matrix(Warp &warp, const Instruction &in, bool writes) {
  const Context at = context(warp, in);
  if (warp.active() == kAllLanes) {
    const std::uint32_t rows = at.site.matrices == 4 ? kAllLanes : (1u << (8 * at.site.matrices)) - 1;
    const Reach where = reach_operand(at, rows, at.site.bytes, writes);
    touch(at, where, writes ? Act::write : Act::read, at.site.bytes);
    report(at, at.site.bytes);
    if (where.lanes() != rows)
      return; // a matrix lacks rows
  }
  carry_out(at, warp.active());
}

void BlockChecker::fragment(Warp &warp, const Instruction &in, bool writes) {
  const Context at = context(warp, in);
  if (warp.active() != kAllLanes)
    return carry_out(at, warp.active());
  // As instructions/wmma.cpp encodes it: op[1] the stride in elements, op[2] log2 of an element's bytes,
  // op[3] rows, op[4] columns.
  const bool column_major = in.flags >> instructions::kAddressFlagBits & 1;
  const std::uint32_t lines = column_major ? in.op[4] : in.op[3], length = column_major ? in.op[3] : in.op[4];
  const std::uint64_t pitch = std::uint64_t(warp.lanes<std::uint32_t>(in.op[1])[0]) << in.op[2];
  std::uint64_t addresses[32];
  instructions::lane_addresses(warp, instructions::address_base(in.flags), in.op[0], in.imm, addresses);
  for (std::uint32_t line = 1; line < lines; ++line)
    addresses[line] = addresses[0] + line * pitch;
  const unsigned bytes = length << in.op[2];
  const std::uint32_t rows = lines == 32 ? kAllLanes : (1u << lines) - 1;
  Reach where;
  std::copy_n(addresses, 32, where.address);
  constexpr unsigned kAlignment = 16; // of a line, however long
  for_lanes(rows, [&](int line) {
    place_lane(at, where, line, instructions::address_space(in.flags), bytes, kAlignment, writes);
  });
  touch(at, where, writes ? Act::write : Act::read, bytes);
  report(at, bytes);
  if (where.lanes() == rows)
    carry_out(at, kAllLanes);
}

} // namespace ladder::sanitizer
