#include "sanitizer/block_checker.h"

#include "instructions/async_copy.h"
#include "instructions/shuffle.h"
#include "machine/address_space.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace ladder::sanitizer {

using instructions::for_lanes;
using instructions::Space;
using machine::Instruction;
using machine::kAllLanes;
using machine::Warp;

namespace {

BlockChecker &checker_of(Warp &warp) { return static_cast<BlockChecker &>(*warp.block().observer()); }

std::uint64_t align_down(std::uint64_t address) { return address / kGranule * kGranule; }

/// Which bytes of the granule at `granule` an access takes, a bit each.
std::uint8_t bytes_within(std::uint64_t granule, std::uint64_t address, unsigned bytes) {
  std::uint8_t mask = 0;
  for (std::uint64_t i = 0; i < kGranule; ++i)
    mask |= std::uint8_t((granule + i >= address && granule + i < address + bytes) << i);
  return mask;
}

std::string lanes_text(std::uint32_t lanes) {
  std::string text = std::popcount(lanes) == 1 ? "lane " : "lanes ";
  for (int lane = 0; lane < 32; ++lane) {
    if (!(lanes >> lane & 1))
      continue;
    int end = lane;
    while (end < 31 && lanes >> (end + 1) & 1)
      ++end;
    text += (text.back() == ' ' ? "" : ",") + std::to_string(lane);
    if (end > lane)
      text += "-" + std::to_string(end);
    lane = end;
  }
  return text;
}

const void *key_of(const LaunchChecker &launch) { return &launch.code(); }

} // namespace

void checked_load(Warp &warp, const Instruction &in) { checker_of(warp).load(warp, in); }
void checked_store(Warp &warp, const Instruction &in) { checker_of(warp).store(warp, in); }
void checked_atomic(Warp &warp, const Instruction &in) { checker_of(warp).atomic(warp, in); }
void checked_matrix_load(Warp &warp, const Instruction &in) { checker_of(warp).matrix(warp, in, false); }
void checked_matrix_store(Warp &warp, const Instruction &in) { checker_of(warp).matrix(warp, in, true); }
void checked_fragment_load(Warp &warp, const Instruction &in) { checker_of(warp).fragment(warp, in, false); }
void checked_fragment_store(Warp &warp, const Instruction &in) { checker_of(warp).fragment(warp, in, true); }
void checked_copy(Warp &warp, const Instruction &in) { checker_of(warp).copy(warp, in); }
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

// --- where the lanes go ------------------------------------------------------------------------------------

BlockChecker::Reach BlockChecker::reach(const Context &at, std::uint32_t lanes, Space space, unsigned bytes,
                                        bool writes, const std::uint64_t (&addresses)[32]) {
  Reach reach;
  std::copy_n(addresses, 32, reach.address);
  for_lanes(lanes, [&](int lane) { place_lane(at, reach, lane, space, bytes, bytes, writes); });
  return reach;
}

BlockChecker::Reach BlockChecker::reach_operand(const Context &at, std::uint32_t lanes, unsigned bytes,
                                                bool writes) {
  std::uint64_t addresses[32];
  instructions::lane_addresses(at.warp, instructions::address_base(at.in.flags), at.in.op[0], at.in.imm,
                               addresses);
  return reach(at, lanes, instructions::address_space(at.in.flags), bytes, writes, addresses);
}

void BlockChecker::place_lane(const Context &at, Reach &reach, int lane, Space space, unsigned bytes,
                              unsigned alignment, bool writes) {
  const std::uint64_t address = reach.address[lane];
  const std::uint64_t window = address & machine::kWindowMask;
  if (address % alignment != 0)
    return note(Kind::misaligned, lane, address,
                space == Space::shared || window == machine::kSharedWindow ? "shared" : "global");
  if (space == Space::shared)
    place_shared(reach, lane, address, bytes);
  else if (space == Space::local)
    place_local(at, reach, lane, address, bytes);
  else if (space == Space::global || window == 0)
    place_global(at, reach, lane, address, bytes, writes);
  else if (window == machine::kSharedWindow)
    place_shared(reach, lane, address - window, bytes);
  else if (window == machine::kLocalWindow)
    place_local(at, reach, lane, address - window, bytes);
  else
    reach.elsewhere |= 1u << lane;
}

void BlockChecker::place_shared(Reach &reach, int lane, std::uint64_t address, unsigned bytes) {
  reach.address[lane] = address;
  if (address < block_.shared_first() || address + bytes > block_.shared_end() || address + bytes < address)
    return note(Kind::out_of_bounds, lane, address, "shared");
  reach.shared |= 1u << lane;
}

void BlockChecker::place_global(const Context &at, Reach &reach, int lane, std::uint64_t address,
                                unsigned bytes, bool writes) {
  if (!at.warp.remembered_range(address, bytes, writes)) {
    const machine::MemoryRange *const range = launch_.memory().find(address, bytes);
    if (!range) {
      const auto stray = launch_.explain(address);
      return note(stray ? stray->kind : Kind::out_of_bounds, lane, address, "global");
    }
    if (writes && !range->writable)
      return note(Kind::read_only, lane, address, "global");
  }
  reach.global |= 1u << lane;
}

void BlockChecker::place_local(const Context &at, Reach &reach, int lane, std::uint64_t address,
                               unsigned bytes) {
  reach.address[lane] = address;
  if (address + bytes > at.warp.local_top() || address + bytes < address)
    return note(Kind::out_of_bounds, lane, address, "local");
  reach.local |= 1u << lane;
}

// --- what the accesses meet --------------------------------------------------------------------------------

Access BlockChecker::access(const Context &at, int lane, Act act) const {
  Access now;
  now.thread = std::uint16_t(at.thread(lane));
  now.epoch = clocks_.epoch(now.thread);
  now.flags = at.site.flags;
  if (act == Act::copy)
    now.flags |= Access::in_flight;
  now.instruction = at.index;
  now.block = block_index_;
  return now;
}

bool BlockChecker::races(const Access &past, const Access &now, bool now_reads) const {
  if (past.epoch == 0 || !(past.bytes & now.bytes))
    return false;
  const bool both_strong = past.flags & now.flags & Access::strong;
  if (past.block != now.block) {
    if (both_strong)
      return false;
    const auto known = known_.find(past.block);
    return known == known_.end() || (*known->second)[past.thread] < past.epoch;
  }
  const bool same_warp = past.thread / 32 == now.thread / 32;
  if (both_strong && !(same_warp && past.flags & now.flags & Access::is_volatile))
    return false;
  std::uint32_t thread = now.thread;
  if (same_warp) {
    // All lanes take part in a collective access: what one did before it, and what it did before another
    // one's store, is in order.
    if (past.flags & Access::collective && !now_reads)
      return !(now.flags & Access::collective) ? false : !clocks_.knows(thread, past.thread, past.epoch);
    if (past.thread == now.thread) {
      if (!(now.flags & Access::collective) || !now_reads)
        return false;
      thread ^= 1; // the data goes to other lanes than the one that gave the address, too
      if (thread >= block_.thread_count())
        return false;
    }
  }
  return !clocks_.knows(thread, past.thread, past.epoch);
}

void BlockChecker::remember_read(Cell &cell, const Access &now) const {
  const auto is_past = [&](const Access &read) {
    return read.epoch == 0 ||
           (read.block == now.block &&
            (read.thread == now.thread || clocks_.knows(now.thread, read.thread, read.epoch)));
  };
  auto &[first, second] = cell.reads;
  if (is_past(first)) {
    first = now;
    return;
  }
  // Two warps, or two blocks, are worth more than two lanes of one warp.
  const auto is_near = [&](const Access &read) {
    return read.block == now.block && read.thread / 32 == now.thread / 32;
  };
  if (!is_past(second) && is_near(first) && !is_near(second))
    return;
  second = now;
}

template <typename CellAt>
void BlockChecker::touch_cells(const Context &at, int lane, std::uint64_t address, unsigned bytes, Act act,
                               const char *space, CellAt cell_at) {
  const bool reads = act == Act::read, writes = !reads;
  Access now = access(at, lane, act);
  bool noted = false; // one event a lane is enough
  const auto meets = [&](const Access &past, bool past_wrote, std::uint64_t place) {
    if (noted || !races(past, now, reads) || (past_wrote && writes && is_same_store(at, lane, past)))
      return;
    const bool same_warp = past.thread / 32 == now.thread / 32;
    const Kind kind = past.block != now.block ? Kind::race_blocks
                      : same_warp             ? Kind::race_lanes
                                              : Kind::race_warps;
    note({kind, lane, place, space, past, past_wrote, writes});
    noted = true;
  };
  for (std::uint64_t granule = align_down(address); granule < address + bytes; granule += kGranule) {
    Cell &cell = cell_at(granule);
    now.bytes = bytes_within(granule, address, bytes);
    const std::uint64_t place = std::max(granule, address);
    // No barrier helps before the copy has been waited for; two copies are another matter.
    const bool in_flight = cell.write.flags & Access::in_flight && cell.write.bytes & now.bytes;
    if (in_flight && act != Act::copy && !noted) {
      note({Kind::async_copy, lane, place, space, cell.write, true, writes});
      noted = true;
    }
    meets(cell.write, true, place);
    if (reads) {
      remember_read(cell, now);
      continue;
    }
    meets(cell.reads[0], false, place);
    meets(cell.reads[1], false, place);
    // An atomic of the thread that has just made a plain write does not make that one atomic.
    const bool stays_weak = cell.write.thread == now.thread && cell.write.epoch == now.epoch &&
                            cell.write.block == now.block && !(cell.write.flags & Access::strong);
    cell.write = now;
    if (stays_weak)
      cell.write.flags &= std::uint8_t(~Access::strong);
  }
}

void BlockChecker::touch(const Context &at, const Reach &reach, Act act, unsigned bytes) {
  for_lanes(reach.shared, [&](int lane) { touch_shared(at, lane, reach.address[lane], bytes, act); });
  for_lanes(reach.global, [&](int lane) { touch_global(at, lane, reach.address[lane], bytes, act); });
  for_lanes(reach.local, [&](int lane) { touch_local(at, lane, reach.address[lane], bytes, act); });
}

void BlockChecker::touch_shared(const Context &at, int lane, std::uint64_t address, unsigned bytes, Act act) {
  std::uint8_t *const written = shared_.written.data() + address;
  if (act == Act::write && changes_nothing(at, lane, address, true))
    return;
  const std::size_t events = events_.size();
  touch_cells(at, lane, address, bytes, act, "shared",
              [&](std::uint64_t granule) -> Cell & { return shared_.cells[granule / kGranule]; });
  if (act == Act::read || act == Act::update) {
    const std::uint8_t *const unwritten = std::find(written, written + bytes, std::uint8_t(0));
    // Of data in flight the copy has been told already.
    if (unwritten != written + bytes && events_.size() == events)
      note(Kind::uninitialised, lane, address + std::uint64_t(unwritten - written), "shared");
  }
  if (act == Act::write || act == Act::update)
    std::fill_n(written, bytes, std::uint8_t(1));
}

void BlockChecker::touch_global(const Context &at, int lane, std::uint64_t address, unsigned bytes, Act act) {
  InitialisedMemory &initialised = launch_.initialised();
  if (act != Act::write && initialised.is_unwritten(address, bytes))
    note(Kind::uninitialised, lane, address, "global");
  if (act != Act::read)
    initialised.mark(address, bytes);
  // Nobody writes what is read-only, so nothing can race there.
  const machine::MemoryRange *range = at.warp.remembered_range(address, bytes, false);
  if (!range)
    range = launch_.memory().find(address, bytes);
  if (!range->writable)
    return;
  if (act == Act::write && changes_nothing(at, lane, address, false))
    return;
  touch_cells(at, lane, address, bytes, act, "global",
              [&](std::uint64_t granule) -> Cell & { return launch_.shadow.cell(granule); });
}

void BlockChecker::touch_local(const Context &at, int lane, std::uint64_t address, unsigned bytes, Act act) {
  LocalShadow &shadow = local_[std::size_t(at.warp.index())];
  const std::uint64_t top = at.warp.local_top();
  if (top > shadow.bytes) {
    LocalShadow grown{2 * top, std::vector<std::uint8_t>(32 * 2 * top)};
    for (std::uint64_t i = 0; shadow.bytes && i < 32; ++i)
      std::copy_n(shadow.written.data() + i * shadow.bytes, shadow.bytes,
                  grown.written.data() + i * grown.bytes);
    shadow = std::move(grown);
  }
  std::uint8_t *const written = shadow.written.data() + std::uint64_t(lane) * shadow.bytes + address;
  // Copies of structs read padding that nobody writes, so a part is no fault.
  if (act == Act::read && std::none_of(written, written + bytes, [](std::uint8_t byte) { return byte; }))
    note(Kind::uninitialised, lane, address, "local");
  if (act != Act::read)
    std::fill_n(written, bytes, std::uint8_t(1));
}

// --- stores that change nothing ----------------------------------------------------------------------------

void BlockChecker::store_value(const Context &at, int lane, std::uint8_t *value) {
  const Site &site = at.site;
  const unsigned elements = site.bytes / site.element_bytes;
  for (unsigned i = 0; i < elements; ++i) {
    const std::uint32_t slot = elements <= 4 ? at.in.op[1 + i] : at.warp.more(at.in)[i];
    std::memcpy(value + i * site.element_bytes,
                at.warp.lanes<std::uint8_t>(slot) + unsigned(lane) * site.lane_bytes, site.element_bytes);
  }
}

/// Whether a store writes what is there already: then nobody can tell who wrote it, or when.
bool BlockChecker::changes_nothing(const Context &at, int lane, std::uint64_t address, bool in_shared) const {
  if (at.site.lane_bytes == 0)
    return false; // no plain store
  if (in_shared) {
    const std::uint8_t *const written = shared_.written.data() + address;
    if (std::find(written, written + at.site.bytes, std::uint8_t(0)) != written + at.site.bytes)
      return false;
  }
  std::uint8_t value[64];
  store_value(at, lane, value);
  const auto *const host =
      in_shared ? block_.shared_base() + address : reinterpret_cast<const std::uint8_t *>(address);
  return std::memcmp(value, host, at.site.bytes) == 0;
}

/// Whether `past` is another lane's store of the same value by this execution of the instruction.
bool BlockChecker::is_same_store(const Context &at, int lane, const Access &past) const {
  if (at.site.lane_bytes == 0 || past.instruction != at.index || past.block != block_index_ ||
      int(past.thread / 32) != at.warp.index())
    return false;
  const int other = past.thread % 32;
  if (other >= lane || !(at.warp.active() >> other & 1))
    return false;
  std::uint64_t addresses[32];
  instructions::lane_addresses(at.warp, instructions::address_base(at.in.flags), at.in.op[0], at.in.imm,
                               addresses);
  return addresses[lane] == addresses[other] && same_value(at, lane, other);
}

bool BlockChecker::same_value(const Context &at, int lane, int other) const {
  std::uint8_t mine[64], theirs[64];
  store_value(at, lane, mine);
  store_value(at, other, theirs);
  return std::memcmp(mine, theirs, at.site.bytes) == 0;
}

// --- loads, stores, atomics --------------------------------------------------------------------------------

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

// --- matrices ----------------------------------------------------------------------------------------------

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

// --- asynchronous copies -----------------------------------------------------------------------------------

void BlockChecker::copy(Warp &warp, const Instruction &in) {
  using namespace instructions::async_copy;
  const Context at = context(warp, in);
  const unsigned bytes = bytes_written(in);
  const Reach to = reach_operand(at, warp.active(), bytes, true);
  std::uint32_t reading = 0;
  for_lanes(warp.active(),
            [&](int lane) { reading |= std::uint32_t(bytes_read(warp, in, lane) != 0) << lane; });
  std::uint64_t sources[32];
  source_addresses(warp, in, sources);
  const Reach from =
      reach(at, reading, in.flags & kSourceGeneric ? Space::generic : Space::global, bytes, false, sources);
  const std::uint32_t good = to.lanes() & (from.lanes() | ~reading);
  for_lanes(good & from.global, [&](int lane) {
    touch_global(at, lane, from.address[lane], std::min(bytes, bytes_read(warp, in, lane)), Act::read);
  });
  WarpCopies &copies = copies_[std::size_t(warp.index())];
  for_lanes(good & to.shared, [&](int lane) {
    touch_shared(at, lane, to.address[lane], bytes, Act::copy);
    copies.open.push_back({std::uint32_t(to.address[lane]), std::uint8_t(bytes), std::uint8_t(lane)});
  });
  report(at, bytes);
  carry_out(at, good);
}

void BlockChecker::commit(Warp &warp, const Instruction &in) {
  WarpCopies &copies = copies_[std::size_t(warp.index())];
  copies.groups.push_back(std::exchange(copies.open, {}));
  carry_out(context(warp, in), warp.active());
}

void BlockChecker::wait(Warp &warp, const Instruction &in) {
  const Context at = context(warp, in);
  WarpCopies &copies = copies_[std::size_t(warp.index())];
  const bool all = warp.source(in).has("wait_all");
  const std::size_t pending = all ? 0 : std::size_t(in.imm);
  for (; copies.groups.size() > pending; copies.groups.pop_front())
    complete_copies(at, copies.groups.front());
  if (all)
    complete_copies(at, copies.open);
  carry_out(at, warp.active());
}

/// From here on the data counts as written by the lane that copied and waited.
void BlockChecker::complete_copies(const Context &at, std::vector<CopyInFlight> &copies) {
  for (const CopyInFlight &copy : copies) {
    const std::uint32_t thread = at.thread(copy.lane);
    for (std::uint64_t granule = align_down(copy.address); granule < copy.address + copy.bytes;
         granule += kGranule) {
      Access &write = shared_.cells[granule / kGranule].write;
      if (write.thread != thread || !(write.flags & Access::in_flight))
        continue;
      write.flags &= std::uint8_t(~Access::in_flight);
      write.epoch = clocks_.epoch(thread);
    }
    std::fill_n(shared_.written.begin() + copy.address, copy.bytes, std::uint8_t(1));
  }
  copies.clear();
}

void BlockChecker::copy_arrive(Warp &warp, const Instruction &in) {
  const Context at = context(warp, in);
  WarpCopies &copies = copies_[std::size_t(warp.index())];
  for (; !copies.groups.empty(); copies.groups.pop_front())
    complete_copies(at, copies.groups.front());
  complete_copies(at, copies.open);
  mbarrier(warp, in);
}

// --- barriers ----------------------------------------------------------------------------------------------

/// Arrivals at an mbarrier make known all that their threads did.
void BlockChecker::mbarrier(Warp &warp, const Instruction &in) {
  const Context at = context(warp, in);
  const Reach where = reach_operand(at, warp.active(), 8, true);
  touch(at, where, at.site.flags ? Act::update : Act::write, 8);
  report(at, 8);
  if (at.site.flags) // setting one up makes nothing known
    for_lanes(where.shared, [&](int lane) {
      merge_into(objects_[where.address[lane]], {{block_index_, clocks_.release(at.thread(lane))}});
    });
  carry_out(at, where.lanes());
}

void BlockChecker::mbarrier_wait(Warp &warp, const Instruction &in) {
  const Context at = context(warp, in);
  const Reach where = reach_operand(at, warp.active(), 8, true);
  touch(at, where, Act::update, 8);
  report(at, 8);
  carry_out(at, where.lanes());
  for_lanes(where.shared & warp.predicate(in.op[1]), [&](int lane) {
    if (const auto found = objects_.find(where.address[lane]); found != objects_.end())
      acquire(at.thread(lane), found->second);
  });
}

void BlockChecker::report_barrier(const Context &at, std::string message, std::uint32_t other) {
  launch_.findings().add(
      {Kind::barrier, key_of(launch_), at.index, other}, std::uint64_t(std::popcount(at.warp.active())), [&] {
        Finding finding;
        finding.kind = Kind::barrier;
        finding.kernel = launch_.kernel();
        finding.message = std::move(message);
        const machine::Dim3 block = block_.index();
        finding.who = launch_.party({block.x, block.y, block.z}, at.warp.index(), at.warp.active(), at.index);
        if (other != kNoInstruction)
          finding.other = launch_.party({block.x, block.y, block.z}, -1, 0, other);
        return finding;
      });
}

void BlockChecker::check_arrival(const Context &at, std::uint32_t barrier) {
  Warp &warp = at.warp;
  if (!at.site.is_aligned)
    return;
  // Lanes that have returned already, or do so next, are not waited for.
  if (const std::uint32_t wanted = warp.live() & ~warp.about_to_exit(); wanted & ~warp.active())
    report_barrier(at,
                   "only " + lanes_text(warp.active()) + " of the warp's " + lanes_text(wanted) +
                       " come to the barrier: all lanes of a warp must, or none",
                   kNoInstruction);
  // Barriers with a count are for parts of a block, which may come from different places.
  if (warp.lanes<std::uint32_t>(at.in.op[1])[std::countr_zero(warp.active())] != 0)
    return;
  std::int64_t &first = first_arrival_[barrier];
  if (first < 0)
    first = at.index;
  const machine::Code &code = launch_.code();
  if (machine::source_place(code, std::size_t(first)) != machine::source_place(code, at.index))
    report_barrier(at, "threads of the block wait for each other at two different barriers",
                   std::uint32_t(first));
}

void BlockChecker::barrier(Warp &warp, const Instruction &in) {
  const Context at = context(warp, in);
  const std::uint32_t active = warp.active();
  const std::uint32_t id = warp.lanes<std::uint32_t>(in.op[0])[std::countr_zero(active)];
  if (id >= std::uint32_t(machine::kBarriers))
    return carry_out(at, active); // which refuses it
  if (!at.site.arrives_only && warp.released()) {
    clocks_.leave(int(id), warp.index(), active);
    return carry_out(at, active);
  }
  check_arrival(at, id);
  clocks_.arrive(int(id), warp.index(), active);
  carry_out(at, active);
}

/// Lanes that name the same members wait for each other.
void BlockChecker::meet(const Context &at) {
  Warp &warp = at.warp;
  std::uint32_t left = warp.active();
  const std::uint32_t *const masks = warp.lanes<std::uint32_t>(at.in.op[0]);
  while (left) {
    const std::uint32_t members = masks[std::countr_zero(left)];
    std::uint32_t group = 0;
    for_lanes(left, [&](int lane) { group |= std::uint32_t(masks[lane] == members) << lane; });
    left &= ~group;
    if (warp.released())
      clocks_.take(warp.index(), group, members);
    else if ((members & warp.live() & ~warp.path_mask()) == 0)
      clocks_.meet(warp.index(), group);
    else
      clocks_.give(warp.index(), group, members);
  }
}

void BlockChecker::warp_barrier(Warp &warp, const Instruction &in) {
  const Context at = context(warp, in);
  meet(at);
  carry_out(at, warp.active());
}

/// A lane that is named but is not there gives nothing to read.
void BlockChecker::check_sources(const Context &at) {
  using instructions::Shuffle;
  Warp &warp = at.warp;
  const program::Instruction &source = warp.source(at.in);
  const Shuffle mode = source.has("up")     ? Shuffle::up
                       : source.has("down") ? Shuffle::down
                       : source.has("bfly") ? Shuffle::bfly
                                            : Shuffle::idx;
  const auto *b = warp.lanes<std::uint32_t>(at.in.op[3]), *c = warp.lanes<std::uint32_t>(at.in.op[4]);
  for_lanes(warp.active(), [&](int lane) {
    const std::uint32_t from = instructions::source_lane(mode, lane, b[lane], c[lane]);
    const std::uint32_t missing = instructions::members_of(warp, at.in, lane) & ~warp.live();
    if (from < 32 && missing >> from & 1)
      note(Kind::mask, lane, from, "");
  });
  report(at, 4);
}

/// Shuffles and votes make lanes meet, but by the programming guide they order no memory.
void BlockChecker::shuffle(Warp &warp, const Instruction &in) {
  const Context at = context(warp, in);
  check_sources(at);
  carry_out(at, warp.active());
}

// --- reports -----------------------------------------------------------------------------------------------

void BlockChecker::report(const Context &at, unsigned bytes) {
  while (!events_.empty()) {
    const Event first = events_.front();
    std::uint32_t lanes = 0;
    std::uint64_t count = 0;
    std::erase_if(events_, [&](const Event &event) {
      const bool same = event.kind == first.kind && event.past.instruction == first.past.instruction &&
                        (event.past.epoch == 0) == (first.past.epoch == 0);
      lanes |= std::uint32_t(same) << event.lane;
      count += same;
      return same;
    });
    const std::uint32_t other = first.past.epoch ? first.past.instruction : kNoInstruction;
    launch_.findings().add({first.kind, key_of(launch_), at.index, other}, count,
                           [&] { return describe(at, first, lanes, bytes); });
  }
}

Finding BlockChecker::describe(const Context &at, const Event &event, std::uint32_t lanes,
                               unsigned bytes) const {
  Finding finding;
  finding.kind = event.kind;
  finding.kernel = launch_.kernel();
  const machine::Dim3 block = block_.index(), grid = block_.launch().grid;
  finding.who = launch_.party({block.x, block.y, block.z}, at.warp.index(), lanes, at.index);
  finding.space = event.space;
  finding.address = event.address;
  finding.has_address = event.kind != Kind::mask;
  finding.bytes = bytes;
  if (event.past.epoch) {
    const std::uint32_t index = event.past.block;
    finding.other =
        launch_.party({index % grid.x, index / grid.x % grid.y, index / grid.x / grid.y},
                      event.past.thread / 32, 1u << event.past.thread % 32, event.past.instruction);
  }
  if (finding.space == "shared") {
    const std::uint64_t offset = event.address - block_.shared_begin();
    std::tie(finding.object, finding.object_offset) = launch_.shared_variable(offset);
  } else if (finding.space == "global") {
    if (const machine::MemoryRange *const range = launch_.memory().find(event.address, 1)) {
      finding.object = range->name;
      finding.object_offset = event.address - range->begin;
    }
  }
  const std::string size = std::to_string(bytes) + " bytes of " + finding.space + " memory";
  const std::string now = event.now_writes ? "writes " : "reads ", past = event.past_wrote ? "wrote" : "read";
  switch (event.kind) {
  case Kind::out_of_bounds:
    finding.message = "uses " + size + " outside ";
    if (finding.space == "shared") {
      finding.message +=
          "the block's " + std::to_string(block_.shared_end() - block_.shared_begin()) + " bytes";
    } else if (finding.space == "local") {
      finding.message += "the thread's " + std::to_string(at.warp.local_top()) + " bytes";
    } else {
      finding.message += "all allocations: " + launch_.memory().describe(event.address);
    }
    break;
  case Kind::use_after_free:
  case Kind::host_pointer:
    finding.message = launch_.explain(event.address).value_or(Stray{}).message;
    break;
  case Kind::misaligned:
    finding.message = "uses " + size + " at an address that is no multiple of " + std::to_string(bytes);
    break;
  case Kind::read_only:
    finding.message = "writes " + size + " that is read-only";
    break;
  case Kind::uninitialised:
    finding.message = "reads " + size + " that nobody has written";
    break;
  case Kind::async_copy:
    finding.message = now + size + " that a copy is still on its way to";
    break;
  case Kind::race_warps:
    finding.message = now + size + " that another warp " + past + ", with no barrier between";
    break;
  case Kind::race_lanes:
    finding.message =
        now + size + " that another lane of the warp " + past + ", with no __syncwarp() between";
    break;
  case Kind::race_blocks:
    finding.message = now + size + " that another block " + past + " in the same launch";
    break;
  case Kind::mask:
    finding.message = "reads the value of lane " + std::to_string(event.address) +
                      ", which the mask names and which is not there";
    break;
  default:
    break;
  }
  return finding;
}

} // namespace ladder::sanitizer
