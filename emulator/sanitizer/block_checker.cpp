// Checked loads, stores, atomics and matrix instructions.
#include "sanitizer/block_checker.h"

#include "machine/address_space.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace ladder::sanitizer {

using instructions::for_lanes;
using machine::Instruction;
using machine::kAllLanes;
using machine::Warp;

BlockChecker::BlockChecker(LaunchChecker &launch, machine::Block &block)
    : launch_(launch), block_(block), block_index_(std::uint32_t(block.linear_index())),
      clocks_(block_index_, block.thread_count(), machine::kBarriers),
      shadow_(block.shared_base_address(), kRow * (shared_bytes() / kRow + 1)),
      displaced_reads_(block.shared_base_address(), shared_bytes()),
      written_(block.shared_base_address(), shared_bytes()),
      async_(block.shared_base_address(), launch.uses_async_proxy() ? shared_bytes() : 0,
             std::uint32_t(block.warps().size()) * 32, (block.warps().size() + 3) / 4 + 1),
      products_(block.warps().size()), copies_(block.warps().size()), local_(block.warps().size()),
      undefined_registers_(block.warps().size()), has_spun_(block.warps().size()),
      polls_(block.warps().size()), cluster_arrivals_(block.warps().size() * 32) {
  first_arrival_.fill(-1);
  // The system owns and initialises the reserved bytes.
  written_.mark(block.shared_base_address(), block.shared_begin() - block.shared_base_address());
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
  const Reach where = reach_load(at);
  if (at.site.flags & Access::strong)
    order_by_atomics(at, where, true, false);
  partly_read_.lanes = 0;
  partly_read_.is_unwritten = false;
  // Each run of used bytes is a separate read.
  for (std::uint32_t left = at.site.used; left;) {
    const auto begin = unsigned(std::countr_zero(left)), bytes = unsigned(std::countr_one(left >> begin));
    touch(at, where, Act::read, begin, bytes);
    left &= bytes + begin >= 32 ? 0 : ~0u << (begin + bytes);
  }
  report(at, at.site.bytes);
  carry_out(at, where.lanes());
  if (partly_read_.lanes || !undefined_registers(warp).empty()) [[unlikely]]
    define_loaded(at, where.lanes());
}

/// Nothing in the launch writes constant memory, but copies on other streams may.
void BlockChecker::load_constant(Warp &warp, const Instruction &in) {
  std::uint64_t addresses[32];
  instructions::lane_addresses(warp, instructions::address_base(in.flags), in.op[0], in.imm, addresses);
  const std::uint64_t address = addresses[std::countr_zero(warp.active())];
  if (const machine::MemoryRange *const range = launch_.memory().find(address, 1))
    launch_.constants.try_emplace(range->begin, range->end);
  carry_out(context(warp, in), warp.active());
}

void BlockChecker::store(Warp &warp, const Instruction &in) {
  const Context at = context(warp, in);
  const Reach where = reach_operand(at, warp.active(), at.site.bytes, true);
  touch(at, where, Act::write, at.site.bytes);
  if (uses_maps_in_memory_) [[unlikely]]
    check_maps_in_use(at, where, at.site.bytes);
  if (!undefined_registers(warp).empty()) [[unlikely]]
    keep_undefined(at, where);
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

/// Atomics and flags publish what their writers did before a fence.
///
/// Blocks that poll one word must see its values one after the other, so a block that writes the word or
/// learns from it gives way to the others. Otherwise a block that waits for one arrival would also see later
/// arrivals, and know what happened before them.
void BlockChecker::order_by_atomics(const Context &at, const Reach &reach, bool acquires, bool releases) {
  if (at.warp.polled())
    has_spun_[std::size_t(at.warp.index())] = true;
  const std::uint32_t lanes = reach.shared | reach.global | reach.elsewhere;
  if (!lanes)
    return;
  const Poll poll{at.index, reach.address[std::countr_zero(lanes)]};
  const bool polls = acquires && std::exchange(polls_[std::size_t(at.warp.index())], poll) == poll;
  bool gives_way = false;
  for_lanes(lanes, [&](int lane) {
    const bool is_global = reach.global >> lane & 1;
    const auto place = is_global ? std::nullopt : owner(reach.address[lane], at.site.bytes);
    if (!is_global && !place)
      return;
    auto &objects = is_global ? launch_.objects : place->first->objects_;
    const std::uint64_t address = is_global ? reach.address[lane] : place->second;
    const std::uint32_t thread = at.thread(lane);
    auto object = objects.find(address);
    bool is_new =
        acquires && object != objects.end() &&
        clocks_.acquire(thread, object->second.knowledge, at.site.is(program::Trait::acquires) || !is_global);
    const Knowledge own = !releases                              ? nullptr
                          : at.site.is(program::Trait::releases) ? clocks_.release(thread)
                                                                 : clocks_.fenced(thread);
    if (own || (polls && is_global))
      object = objects.try_emplace(address).first;
    if (own) {
      const Knowledge before = object->second.knowledge;
      object->second.knowledge = merge(before, own);
      is_new |= object->second.knowledge != before;
    }
    if (!is_global || object == objects.end())
      return;
    object->second.is_polled |= polls;
    gives_way |= is_new && object->second.is_polled;
  });
  if (gives_way)
    block_.give_way(at.warp);
}

bool BlockChecker::knows(std::uint32_t thread, const Access &past) const {
  if (past.block != block_index_)
    return knows_block(thread, past, true);
  return past.thread == thread || clocks_.knows(thread, past.thread, past.epoch);
}

void BlockChecker::heap_allocated(Warp &warp, int lane, std::uint64_t address, std::uint64_t bytes) {
  const machine::Dim3 block = block_.index();
  launch_.heap().allocated(
      address, {bytes, launch_.kernel(),
                launch_.party({block.x, block.y, block.z}, warp.index(), 1u << lane, warp.pc() - 1)});
  launch_.initialised().track(address, bytes);
}

/// As if the instruction that calls the function stored there itself.
void BlockChecker::written(Warp &warp, int lane, std::uint64_t address, std::uint64_t bytes) {
  const Context at = context(warp, launch_.code().instructions[warp.pc() - 1]);
  const auto size = unsigned(bytes);
  Reach where;
  where.address[lane] = address;
  place_lane(at, where, lane, instructions::Space::generic, size, size, true);
  touch(at, where, Act::write, size);
  report(at, size);
}

bool BlockChecker::heap_freed(Warp &, int lane, std::uint64_t address) {
  if (launch_.heap().is_freed(address))
    throw machine::FaultError(machine::FaultKind::bad_operand, "free of memory that is already freed", lane)
        .at(address);
  launch_.initialised().forget(address);
  return launch_.heap().keep_freed(address);
}

/// A recursive function uses the thread's stack; the driver cannot know how much it needs.
void BlockChecker::call(Warp &warp, const Instruction &in) {
  constexpr std::uint64_t kLeastFrame = 16; ///< the return address and other state a call saves
  const Context at = context(warp, in);
  carry_out(at, warp.active());
  const machine::Frame &frame = warp.frame();
  undefined_registers(warp).forget(frame); // of an earlier call that used the same storage
  bool is_recursive = false;
  for (const machine::Frame *caller = frame.caller.get(); caller && !is_recursive;
       caller = caller->caller.get())
    is_recursive = caller->layout == frame.layout;
  const std::uint64_t bytes =
      frame.local_base + frame.layout->local_bytes + kLeastFrame * std::uint64_t(frame.depth);
  if (!is_recursive || bytes <= launch_.stack_bytes())
    return;
  launch_.findings().add({Kind::out_of_bounds, &launch_.code(), at.index, kNoInstruction}, 1, [&] {
    Finding finding;
    finding.kind = Kind::out_of_bounds;
    finding.kernel = launch_.kernel();
    finding.message = "the recursion is " + std::to_string(frame.depth) + " calls deep and takes at least " +
                      std::to_string(bytes) + " bytes of stack; a thread has " +
                      std::to_string(launch_.stack_bytes()) +
                      " (cudaDeviceSetLimit(cudaLimitStackSize, ...))";
    const machine::Dim3 block = block_.index();
    finding.who = launch_.party({block.x, block.y, block.z}, warp.index(), warp.active(), at.index);
    finding.space = "local";
    return finding;
  });
}

/// Tags a generic address of local memory with its owner: thread, block and launch.
std::uint64_t BlockChecker::tag_of(const Context &at, int lane) const {
  const std::uint64_t place = block_.linear_index() * 31 + block_.launch().grid_id * 7;
  return (std::uint64_t(at.thread(lane) + 1) | (place & 0xfff) << 12) << 32;
}

void BlockChecker::to_generic(Warp &warp, const Instruction &in) {
  const Context at = context(warp, in);
  carry_out(at, warp.active());
  auto *const addresses = warp.lanes<std::uint64_t>(in.op[0]);
  for_lanes(warp.active(), [&](int lane) {
    addresses[lane] =
        (addresses[lane] & ~(~machine::kWindowMask & ~machine::kLocalOffsetMask)) | tag_of(at, lane);
  });
}

void BlockChecker::from_generic(Warp &warp, const Instruction &in) {
  const Context at = context(warp, in);
  carry_out(at, warp.active());
  auto *const addresses = warp.lanes<std::uint64_t>(in.op[0]);
  for_lanes(warp.active(), [&](int lane) { addresses[lane] &= machine::kLocalOffsetMask; });
}

void BlockChecker::fence(Warp &warp, const Instruction &in) {
  clocks_.fence(warp.index(), warp.active());
  publish_inits(warp, warp.active());
  carry_out(context(warp, in), warp.active());
}

void BlockChecker::grid_wait(Warp &warp, const Instruction &in) {
  const Context at = context(warp, in);
  for_lanes(warp.active(),
            [&](int lane) { grid_waits_.emplace_back(at.thread(lane), clocks_.epoch(at.thread(lane))); });
  carry_out(at, warp.active());
}

/// Records an access before its thread, or one of whose wait it knows, has waited for the previous launch.
void BlockChecker::note_early(const Deed &deed, int lane, std::uint64_t address, unsigned bytes) {
  const std::uint32_t thread = deed.at.thread(lane);
  const auto is_known = [&](const auto &wait) {
    return wait.first == thread || clocks_.knows(thread, wait.first, wait.second);
  };
  if (std::ranges::any_of(grid_waits_, is_known))
    return;
  std::vector<EarlyUse> &all = launch_.early_uses;
  if (!all.empty() && all.back().end == address && all.back().access.instruction == deed.at.index)
    all.back().end += bytes;
  else
    all.push_back({address, address + bytes, !deed.reads(), access(deed.at, lane, deed.act),
                   launch_place(block_index_)});
}

void BlockChecker::matrix(Warp &warp, const Instruction &in, bool writes) {
  const Context at = context(warp, in);
  if (warp.active() == kAllLanes) {
    const std::uint32_t rows = at.site.matrices == 4 ? kAllLanes : (1u << (8 * at.site.matrices)) - 1;
    const Reach where = reach_operand(at, rows, at.site.bytes, writes);
    touch(at, where, writes ? Act::write : Act::read, at.site.bytes);
    if (!writes && launch_.copies_in_bulk())
      for_lanes(where.shared,
                [&](int lane) { async_.read_matrix(where.address[lane], access(at, lane, Act::read)); });
    report(at, at.site.bytes);
    if (where.lanes() != rows)
      return; // a row was masked off
  }
  carry_out(at, warp.active());
}

void BlockChecker::fragment(Warp &warp, const Instruction &in, bool writes) {
  const Context at = context(warp, in);
  if (warp.active() != kAllLanes)
    return carry_out(at, warp.active());
  // Encoding of instructions/wmma.cpp: op[1] the stride in elements, op[2] log2 of the element size in bytes,
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
  constexpr unsigned kAlignment = 16; // of every line
  for_lanes(rows, [&](int line) {
    place_lane(at, where, line, instructions::address_space(in.flags), bytes, kAlignment, writes);
  });
  touch(at, where, writes ? Act::write : Act::read, bytes);
  report(at, bytes);
  if (where.lanes() == rows)
    carry_out(at, kAllLanes);
}

} // namespace ladder::sanitizer
