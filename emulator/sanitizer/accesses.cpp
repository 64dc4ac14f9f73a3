// What accesses meet where they go: races, data in flight, memory that nobody has written.
#include "machine/cluster.h"
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

bool BlockChecker::races(const Access &past, const Access &now, bool now_reads, bool passes_l1) const {
  if (past.epoch == 0 || !(past.bytes & now.bytes))
    return false;
  const bool both_strong = past.flags & now.flags & Access::strong;
  if (past.block != now.block) {
    return !both_strong && !knows_block(past, !now_reads || passes_l1);
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
  // A race of two warps, or two blocks, is preferred to one of two lanes of a warp.
  const auto is_near = [&](const Access &read) {
    return read.block == now.block && read.thread / 32 == now.thread / 32;
  };
  if (!is_past(second) && is_near(first) && !is_near(second))
    return;
  second = now;
}

template <typename CellAt>
void BlockChecker::touch_cells(const Context &at, int lane, std::uint64_t address, unsigned bytes, Act act,
                               const char *space, bool is_silent, CellAt cell_at) {
  const bool reads = act == Act::read || act == Act::async_read, writes = !reads;
  Access now = access(at, lane, act);
  if (is_silent)
    now.flags |= Access::silent;
  bool noted = false; // one event a lane is enough
  const auto meets = [&](const Access &past, bool past_wrote, std::uint64_t place) {
    const bool is_equal = is_silent || (past_wrote && past.flags & Access::silent);
    if (noted || (past_wrote && writes && is_equal) || !races(past, now, reads, at.site.passes_l1) ||
        (past_wrote && writes && is_same_store(at, lane, past)))
      return;
    const bool same_warp = past.thread / 32 == now.thread / 32;
    const Kind kind = is_equal                  ? Kind::race_equal
                      : past.block != now.block ? Kind::race_blocks
                      : same_warp               ? Kind::race_lanes
                                                : Kind::race_warps;
    note({kind, lane, place, space, past, past_wrote, writes});
    noted = true;
  };
  for (std::uint64_t granule = granule_of(address); granule < address + bytes; granule += kGranule) {
    Cell &cell = cell_at(granule);
    now.bytes = bytes_within(granule, address, bytes);
    const std::uint64_t place = std::max(granule, address);
    if (reads && at.site.is_read_only_path && cell.write.epoch && cell.write.bytes & now.bytes && !noted) {
      note({Kind::read_only, lane, place, space, cell.write, true, false});
      noted = true;
    }
    // No barrier helps until the copy has been waited for; two copies are a different case.
    const bool in_flight = cell.write.flags & Access::in_flight && cell.write.bytes & now.bytes;
    if (in_flight && act != Act::copy && !noted) {
      note({Kind::async_copy, lane, place, space, cell.write, true, writes});
      noted = true;
    }
    meets(cell.write, true, place);
    if (reads) {
      // An asynchronous read is watched until its wait instead (AsyncProxy): any of a warpgroup's threads may
      // then hand the memory on.
      if (act == Act::read)
        remember_read(cell, now);
      continue;
    }
    meets(cell.reads[0], false, place);
    meets(cell.reads[1], false, place);
    // Prefers a write that changed something to one that did not, as long as somebody may race with it.
    if (is_silent && cell.write.epoch && !(cell.write.flags & Access::silent) &&
        (cell.write.flags & Access::in_flight || races(cell.write, now, false, true)))
      continue;
    // An atomic by the thread that just made a plain write does not make that write atomic.
    const bool stays_weak = cell.write.thread == now.thread && cell.write.epoch == now.epoch &&
                            cell.write.block == now.block && !(cell.write.flags & Access::strong);
    cell.write = now;
    if (stays_weak)
      cell.write.flags &= std::uint8_t(~Access::strong);
  }
}

void BlockChecker::touch(const Context &at, const Reach &reach, Act act, unsigned begin, unsigned bytes) {
  for_lanes(reach.shared, [&](int lane) { touch_shared(at, lane, reach.address[lane] + begin, bytes, act); });
  for_lanes(reach.global, [&](int lane) { touch_global(at, lane, reach.address[lane] + begin, bytes, act); });
  for_lanes(reach.local, [&](int lane) { touch_local(at, lane, reach.address[lane] + begin, bytes, act); });
  if (act == Act::write || act == Act::update)
    for_lanes(reach.elsewhere, [&](int lane) { write_to_cluster(reach.address[lane] + begin, lane, bytes); });
}

/// Of what a cluster's blocks do with each other's shared memory, only that it was written is kept.
void BlockChecker::write_to_cluster(std::uint64_t address, int lane, unsigned bytes) {
  if (address >> 32 || address >> machine::kClusterRankShift == 0)
    return;
  const auto [block, offset] = block_.owner(address, lane);
  auto &other = static_cast<BlockChecker &>(*block->observer());
  if (offset + bytes <= other.shared_.written.size())
    std::fill_n(other.shared_.written.begin() + offset, bytes, std::uint8_t(1));
}

void BlockChecker::touch_shared(const Context &at, int lane, std::uint64_t address, unsigned bytes, Act act) {
  std::uint8_t *const written = shared_.written.data() + address;
  const bool is_silent = act == Act::write && changes_nothing(at, lane, address, true);
  const std::size_t events = events_.size();
  const bool writes = act == Act::write || act == Act::update || act == Act::copy;
  if (const Access reader = writes ? async_.reader(address, bytes) : Access{}; reader.epoch)
    note({Kind::async_read, lane, address, "shared", reader, false, true});
  touch_cells(at, lane, address, bytes, act, "shared", is_silent,
              [&](std::uint64_t granule) -> Cell & { return shared_.cells[granule / kGranule]; });
  if (act == Act::read || act == Act::async_read || act == Act::update) {
    // Copies of structs read padding that nobody writes, so a partial read is no fault. Data in flight has
    // been reported by its copy.
    if (std::none_of(written, written + bytes, [](std::uint8_t byte) { return byte; }) &&
        events_.size() == events)
      note(Kind::uninitialised, lane, address, "shared");
  }
  if (act == Act::write || act == Act::update) {
    std::fill_n(written, bytes, std::uint8_t(1));
    async_.wrote(address, bytes, access(at, lane, act));
  }
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
  const bool is_silent = act == Act::write && changes_nothing(at, lane, address, false);
  if (is_silent && at.site.stores_constant)
    return; // a flag that many raise
  touch_cells(at, lane, address, bytes, act, "global", is_silent,
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
  // Copies of structs read padding that nobody writes, so a partial read is no fault.
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

/// Whether a store writes what is there already: then it makes no difference who wrote it, or when.
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
