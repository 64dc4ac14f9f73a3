// Checks accesses against shadow memory: races, data in flight, reads of unwritten memory.
#include "sanitizer/cells.h"

#include <algorithm>
#include <cstring>

namespace ladder::sanitizer {

using instructions::for_lanes;

namespace {

/// memcmp of a register's bytes; constant sizes are much faster.
bool are_equal(const std::uint8_t *a, const std::uint8_t *b, unsigned bytes) {
  switch (bytes) {
  case 2:
    return std::memcmp(a, b, 2) == 0;
  case 4:
    return std::memcmp(a, b, 4) == 0;
  case 8:
    return std::memcmp(a, b, 8) == 0;
  default:
    return std::memcmp(a, b, bytes) == 0;
  }
}

Kind race_between(const Access &past, const Access &now) {
  return past.block != now.block               ? Kind::race_blocks
         : past.thread / 32 == now.thread / 32 ? Kind::race_lanes
                                               : Kind::race_warps;
}

} // namespace

bool BlockChecker::races(const Access &past, const Access &now, bool now_reads, bool passes_l1) const {
  if (past.epoch == 0 || !(past.bytes & now.bytes))
    return false;
  const unsigned either = past.flags | now.flags;
  if (either & Access::guess && either & Access::strong)
    return false;
  const bool both_strong = past.flags & now.flags & Access::strong;
  if (past.block != now.block)
    return !(both_strong && are_of_one_scope(past, now)) &&
           !knows_block(now.thread, past, !now_reads || passes_l1);
  const bool same_warp = past.thread / 32 == now.thread / 32;
  if (both_strong && !(same_warp && past.flags & now.flags & Access::is_volatile))
    return false;
  std::uint32_t thread = now.thread;
  if (same_warp) {
    // All lanes take part in a collective access, so it is ordered before anything that any of them does
    // after it, stores included; but not before what an asynchronous copy does.
    if (past.flags & Access::collective && !now_reads)
      return now.flags & (Access::collective | Access::in_flight) &&
             !clocks_.knows(thread, past.thread, past.epoch);
    if (past.thread == now.thread) {
      if (!(now.flags & Access::collective) || !now_reads)
        return false;
      thread ^= 1; // ldmatrix also gives the data to lanes other than the one that provided the address
      if (thread >= block_.thread_count())
        return false;
    }
  }
  return !clocks_.knows(thread, past.thread, past.epoch);
}

/// Whether two strong accesses by different blocks are strong for each other.
bool BlockChecker::are_of_one_scope(const Access &past, const Access &now) const {
  const auto is_of_block = [&](const Access &access) {
    const Site &site = launch_.site(access.instruction);
    return site.is(program::Trait::of_block) && !site.is_mbarrier;
  };
  return !is_of_block(past) && !is_of_block(now);
}

/// Atomics do not race, but the sum of floats depends on their order. A load that only makes later writes
/// wait does not order them: it must acquire. A bulk reduction is in order only if it is complete before.
bool BlockChecker::are_unordered_sums(const Access &past, const Access &now) const {
  if (!(past.flags & now.flags & Access::sums) || past.epoch == 0 || !(past.bytes & now.bytes))
    return false;
  if (past.flags & Access::in_flight)
    return true;
  return past.block != now.block ? !knows_block(now.thread, past, false)
                                 : !clocks_.knows(now.thread, past.thread, past.epoch);
}

/// What is wrong with an access to a cell; nullopt if nothing is.
std::optional<BlockChecker::Event> BlockChecker::conflict(const Touch &touch, const Cell &cell,
                                                          std::uint64_t place) const {
  const Context &at = touch.deed.at;
  const Access &now = touch.now;
  const bool reads = touch.deed.reads(), is_silent = now.flags & Access::silent;
  const bool is_global = touch.deed.where == Where::global;
  const auto event = [&](Kind kind, const Access &past, bool past_wrote, bool now_writes) {
    return Event{kind, touch.lane, place, touch.deed.where, past, past_wrote, now_writes};
  };
  if (reads && at.site.is(program::Trait::read_only_path) && cell.write.epoch && cell.write.bytes & now.bytes)
    return event(Kind::read_only, cell.write, true, false);
  // Before the wait for the copy no barrier helps. Two copies, or two reductions, are a separate case.
  const bool both_add = is_global && cell.write.flags & now.flags & Access::strong;
  const bool in_flight = cell.write.flags & Access::in_flight && cell.write.bytes & now.bytes &&
                         !(now.flags & Access::in_flight) && !both_add;
  if (in_flight && !is_global)
    return event(Kind::async_copy, cell.write, true, !reads);
  const auto meets = [&](const Access &past, bool past_wrote) -> std::optional<Event> {
    if (past_wrote && are_unordered_sums(past, now))
      return event(Kind::order, past, true, true);
    const bool is_equal = is_silent || (past_wrote && past.flags & Access::silent);
    if ((past_wrote && !reads && is_equal) || !races(past, now, reads, at.site.passes_l1) ||
        (past_wrote == reads && is_same_flag(at, past)))
      return std::nullopt;
    if (past_wrote && !reads && is_same_store(at, touch.lane, past))
      return is_global && at.site.stores_constant ? std::optional(event(Kind::flag, past, true, true))
                                                  : std::nullopt;
    return event(is_equal ? Kind::race_equal : race_between(past, now), past, past_wrote, !reads);
  };
  auto found = meets(cell.write, true);
  const auto is_fault = [&] { return found && found->kind != Kind::flag && found->kind != Kind::order; };
  for (std::size_t i = 0; !is_fault() && !reads && i < 2; ++i)
    if (const auto fault = meets(cell.reads[i], false))
      found = fault;
  if (!found && in_flight)
    return event(Kind::async_copy, cell.write, true, !reads);
  return found;
}

/// Returns true if the lane already has an event; one per lane is enough.
inline bool BlockChecker::touch_cell(const Touch &touch, Cell &cell, std::uint64_t place, bool noted,
                                     Access &displaced) {
  if (!noted && !is_settled(touch, cell)) [[unlikely]]
    if (const auto event = conflict(touch, cell, place)) {
      note(*event);
      noted = true;
    }
  // AsyncProxy tracks an asynchronous read until its wait: any thread of the warpgroup may release the memory
  // then.
  if (touch.deed.act == Act::read)
    displaced = remember_read(cell, touch);
  else if (!touch.deed.reads())
    remember_write(cell, touch);
  return noted;
}

template <typename Memory>
void BlockChecker::touch_cells(const Deed &deed, int lane, bool is_silent, Memory &memory,
                               std::uint64_t address, unsigned bytes, BlockChecker *owner) {
  const BlockClocks::Known known = clocks_.known_to(deed.at.thread(lane));
  bool noted = false;
  memory.visit(address, bytes, [&](Cell &cell, std::uint64_t place, std::uint8_t bytes_of_granule) {
    Access displaced;
    if (bytes_of_granule == kAllBytes && !is_silent) {
      noted = touch_cell({deed, lane, deed.accesses[lane], known}, cell, place, noted, displaced);
    } else {
      Access now = deed.accesses[lane];
      now.bytes = bytes_of_granule;
      now.flags |= is_silent ? Access::silent : 0;
      noted = touch_cell({deed, lane, now, known}, cell, place, noted, displaced);
    }
    if (owner)
      owner->keep_displaced(place, displaced);
  });
}

/// A read that the cell at this place of shared memory no longer holds.
void BlockChecker::keep_displaced(std::uint64_t place, const Access &read) {
  if (read.epoch) [[unlikely]]
    displaced_reads_.add(place, shadow_.cell_bytes(place), read);
}

/// A write of shared memory must also be ordered after the reads that cells no longer hold.
void BlockChecker::check_displaced_reads(const Deed &deed, int lane, bool is_silent, std::uint64_t address,
                                         unsigned bytes, BlockChecker &owner) {
  const auto meets = [&](const Access &read, std::uint8_t bytes_of_granule) {
    Access now = deed.accesses[lane];
    now.bytes = bytes_of_granule;
    if (!races(read, now, false, deed.at.site.passes_l1) || is_same_flag(deed.at, read))
      return false;
    note({is_silent ? Kind::race_equal : race_between(read, now), lane, address, Where::shared, read, false,
          true});
    return true;
  };
  owner.displaced_reads_.any_of(address, bytes, meets);
  owner.displaced_reads_.forget(address, bytes);
}

void BlockChecker::touch_shared(const Deed &deed, int lane, std::uint64_t address, unsigned bytes,
                                BlockChecker &owner) {
  const Act act = deed.act;
  const std::size_t events = events_.size();
  const bool is_own = &owner == this;
  if (!is_own)
    owner.is_used_by_cluster_ = true;
  if (!deed.reads()) {
    if (!deed.at.site.is_mbarrier && address < owner.inits_end_)
      check_overwritten_inits(deed.at, lane, address, bytes, owner);
    const std::uint32_t thread = deed.at.thread(lane);
    const Access reader = owner.async_.reader(
        address, bytes, [&](std::uint32_t block, std::uint32_t past, std::uint32_t epoch) {
          return knows(thread, {.epoch = epoch, .thread = std::uint16_t(past), .block = block});
        });
    if (reader.epoch)
      note({Kind::async_read, lane, address, Where::shared, reader, false, true});
  }
  const bool is_silent = is_own && act == Act::write && changes_nothing(deed.at, lane, address, true);
  const std::size_t before = events_.size();
  touch_cells(deed, lane, is_silent, owner.shadow_, address, bytes, &owner);
  if (!deed.reads() && events_.size() == before)
    check_displaced_reads(deed, lane, is_silent, address, bytes, owner);
  if (act == Act::read || act == Act::async_read || act == Act::update) {
    // Struct copies read padding that is never written, so a partly unwritten read is not a fault by itself.
    // Matrices have no padding. Data in flight was reported with its copy.
    const bool is_collective = deed.at.site.flags & Access::collective;
    const bool is_whole = owner.written_.all(address, bytes) &&
                          (owner.undefined_.empty() || !owner.undefined_.find(address, bytes));
    if (!is_whole && (is_collective || !owner.written_.any(address, bytes))) {
      if (events_.size() == events)
        note(Kind::uninitialised, lane, address, Where::shared);
    } else if (!is_whole && act == Act::read && bytes <= 32) {
      partly_read_.add(lane, owner.written_.missing(address, bytes) | owner.undefined_.mask(address, bytes));
    }
  }
  if (act == Act::write || act == Act::update) {
    owner.written_.mark(address, bytes);
    owner.undefined_.clear(address, bytes);
    if (launch_.uses_async_proxy() && is_own)
      async_.wrote(address, bytes, deed.accesses[lane]);
    else if (launch_.uses_async_proxy())
      owner.async_.forget(address, bytes);
  }
}

void BlockChecker::touch_global(const Deed &deed, InitialisedMemory::Locked &initialised, int lane,
                                std::uint64_t address, unsigned bytes) {
  const Context &at = deed.at;
  const Act act = deed.act;
  if (act == Act::read && bytes <= 32) {
    const auto [unwritten, undefined] = initialised.missing(address, unsigned(bytes));
    if (unwritten == low_bits(bytes))
      note(Kind::uninitialised, lane, address, Where::global);
    else if (unwritten | undefined)
      partly_read_.add(lane, unwritten | undefined);
  } else if (act != Act::write && initialised.is_unwritten(address, bytes)) {
    note(Kind::uninitialised, lane, address, Where::global);
  }
  if (act != Act::read)
    initialised.mark(address, bytes);
  // Nothing writes read-only memory, so nothing can race there.
  const machine::MemoryRange *range = at.warp.remembered_range(address, bytes, false);
  if (!range)
    range = launch_.memory().find(address, bytes);
  if (!range->writable)
    return;
  const bool is_silent = act == Act::write && changes_nothing(at, lane, address, false);
  if (is_silent && at.site.stores_constant)
    return check_repeated_constant(deed, lane, address, bytes);
  if (act == Act::update)
    check_replaced_stores(deed, lane, address, bytes);
  touch_cells(deed, lane, is_silent, launch_.shadow, address, bytes, nullptr);
}

/// A cell keeps the last write alone. The plain store that an atomic replaces there is kept beside it, since
/// atomics of other blocks must be ordered after it, too.
void BlockChecker::check_replaced_stores(const Deed &deed, int lane, std::uint64_t address, unsigned bytes) {
  const Access &now = deed.accesses[lane];
  auto &replaced = launch_.replaced_stores;
  launch_.shadow.visit(address, bytes, [&](const Cell &cell, std::uint64_t place, std::uint8_t) {
    const Access &past = cell.write;
    if (past.epoch && !(past.flags & (Access::strong | Access::in_flight | Access::silent))) {
      replaced.insert_or_assign(place, past); // touch_cells compares it with this atomic
      return;
    }
    const auto kept = replaced.find(place);
    if (kept != replaced.end() && kept->second.block != now.block && races(kept->second, now, false, true))
      note({Kind::race_blocks, lane, place, Where::global, kept->second, true, true});
  });
}

void BlockChecker::touch_local(const machine::Warp &warp, int lane, std::uint64_t address, unsigned bytes,
                               Act act) {
  LocalShadow &shadow = local_[std::size_t(warp.index())];
  const std::uint64_t top = warp.local_top();
  if (top > shadow.bytes) {
    LocalShadow grown{2 * top, std::vector<std::uint8_t>(32 * 2 * top)};
    for (std::uint64_t i = 0; shadow.bytes && i < 32; ++i)
      std::copy_n(shadow.states.data() + i * shadow.bytes, shadow.bytes,
                  grown.states.data() + i * grown.bytes);
    shadow = std::move(grown);
  }
  std::uint8_t *const states = shadow.states.data() + std::uint64_t(lane) * shadow.bytes + address;
  if (act != Act::read) {
    std::fill_n(states, bytes, std::uint8_t(LocalShadow::written));
    return;
  }
  if (std::all_of(states, states + bytes, [](std::uint8_t byte) { return byte == LocalShadow::unwritten; }))
    partly_read_.is_unwritten = true;
  std::uint32_t mask = 0;
  for (unsigned i = 0; i < std::min(bytes, 32u); ++i)
    mask |= std::uint32_t(states[i] != LocalShadow::written) << i;
  if (mask)
    partly_read_.add(lane, mask);
}

// --- stores that change nothing ----------------------------------------------------------------------------

/// Calls same(bytes in the register, offset in memory) for each element that a lane stores; stops and returns
/// false once it returns false.
template <typename Same> bool BlockChecker::all_elements(const Context &at, int lane, Same same) {
  const Site &site = at.site;
  const unsigned elements = site.bytes / site.element_bytes;
  const std::uint32_t *const slots = elements <= 4 ? at.in.op + 1 : at.warp.more(at.in);
  for (unsigned i = 0; i < elements; ++i)
    if (!same(at.warp.lanes<std::uint8_t>(slots[i]) + unsigned(lane) * site.lane_bytes,
              i * site.element_bytes))
      return false;
  return true;
}

/// True if a store writes the value already in memory: the order of such stores does not matter.
bool BlockChecker::changes_nothing(const Context &at, int lane, std::uint64_t address, bool in_shared) const {
  if (at.site.lane_bytes == 0)
    return false; // not a plain store
  if (in_shared && !written_.all(address, at.site.bytes))
    return false;
  const auto *const host =
      in_shared ? block_.shared_base() + address : reinterpret_cast<const std::uint8_t *>(address);
  return all_elements(at, lane, [&](const std::uint8_t *value, unsigned offset) {
    return are_equal(value, host + offset, at.site.element_bytes);
  });
}

/// True if `past` is another lane's store of the same value by this execution of the instruction.
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

/// A store of the constant already in memory neither orders nor harms anything, so the shadow omits it.
void BlockChecker::check_repeated_constant(const Deed &deed, int lane, std::uint64_t address,
                                           unsigned bytes) {
  const Access &now = deed.accesses[lane];
  Access past = launch_.repeated_constants.try_emplace(address, now).first->second;
  const auto is_others = [&](const Access &write) {
    return (write.thread != now.thread || write.block != now.block) && races(write, now, false, true);
  };
  launch_.shadow.visit(address, bytes, [&](const Cell &cell, std::uint64_t, std::uint8_t) {
    if (cell.write.epoch && launch_.site(cell.write.instruction).stores_constant && is_others(cell.write))
      past = cell.write;
  });
  if (is_others(past))
    note({Kind::flag, lane, address, Where::global, past, true, true});
}

/// Whether both accesses test or set the same flag.
bool BlockChecker::is_same_flag(const Context &at, const Access &past) const {
  return at.site.flag && launch_.site(past.instruction).flag == at.site.flag;
}

bool BlockChecker::same_value(const Context &at, int lane, int other) const {
  const std::ptrdiff_t distance = (other - lane) * std::ptrdiff_t(at.site.lane_bytes);
  return all_elements(at, lane, [&](const std::uint8_t *value, unsigned) {
    return are_equal(value, value + distance, at.site.element_bytes);
  });
}

} // namespace ladder::sanitizer
