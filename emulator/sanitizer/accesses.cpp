// What accesses meet where they go: races, data in flight, memory that nobody has written.
#include "sanitizer/block_checker.h"

#include <algorithm>
#include <cstring>

namespace ladder::sanitizer {

using instructions::for_lanes;

namespace {

/// Which bytes of the granule at `granule` an access takes, a bit each.
std::uint8_t bytes_within(std::uint64_t granule, std::uint64_t address, unsigned bytes) {
  std::uint8_t mask = 0;
  for (std::uint64_t i = 0; i < kGranule; ++i)
    mask |= std::uint8_t((granule + i >= address && granule + i < address + bytes) << i);
  return mask;
}

} // namespace

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
  for (std::uint64_t granule = granule_of(address); granule < address + bytes; granule += kGranule) {
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

} // namespace ladder::sanitizer
