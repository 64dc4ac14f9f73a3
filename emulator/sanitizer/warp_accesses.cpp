// Accesses of a warp's lanes: all together if they lie side by side or at one address, else one by one.
//
// Checking the lanes together leaves the same shadow memory and reports the same findings as checking them
// one after the other. Where that is not certain, they are checked one by one.
#include "sanitizer/cells.h"

#include <bit>

namespace ladder::sanitizer {

using instructions::for_lanes;
using machine::kAllLanes;

namespace {

/// Access sizes that can be checked side by side: the sizes of a shadow's cells.
bool is_cell_size(unsigned bytes) { return bytes >= 2 && bytes <= kChunk && std::has_single_bit(bytes); }

} // namespace

Access BlockChecker::access(const Context &at, int lane, Act act) const {
  Access now;
  now.bytes = kAllBytes;
  now.thread = std::uint16_t(at.thread(lane));
  now.epoch = clocks_.epoch(now.thread);
  now.flags = at.site.flags;
  if (act == Act::copy)
    now.flags |= Access::in_flight;
  now.instruction = at.index;
  now.block = block_index_;
  return now;
}

void BlockChecker::record(Deed &deed, std::uint32_t lanes) const {
  const Access of_lane_0 = access(deed.at, 0, deed.act);
  for_lanes(lanes, [&](int lane) {
    Access &access = deed.accesses[lane];
    access = of_lane_0;
    access.thread = std::uint16_t(deed.at.thread(lane));
    access.epoch = clocks_.epoch(access.thread);
  });
}

BlockChecker::Deed BlockChecker::deed(const Context &at, std::uint32_t lanes, Act act, Where where) const {
  Deed deed{at, act, where, {}};
  record(deed, lanes);
  return deed;
}

void BlockChecker::touch(const Context &at, const Reach &reach, Act act, unsigned begin, unsigned bytes) {
  partly_read_.begin = begin;
  if (reach.shared)
    touch_shared(at, reach, act, begin, bytes);
  if (reach.global)
    touch_global(at, reach, act, begin, bytes);
  for_lanes(reach.local,
            [&](int lane) { touch_local(at.warp, lane, reach.address[lane] + begin, bytes, act); });
  if (reach.elsewhere)
    touch_cluster(at, reach, act, begin, bytes);
}

void BlockChecker::touch_shared(const Context &at, const Reach &reach, Act act, unsigned begin,
                                unsigned bytes) {
  Deed deed{at, act, Where::shared, {}};
  std::uint32_t lanes = reach.shared;
  if (undefined_.empty() && (deed.reads() || (!launch_.uses_async_proxy() && inits_.empty())))
    lanes &= ~for_rows(deed, reach, lanes, begin, bytes, [&](int lane, std::uint64_t address) {
      return touch_shared_row(deed, lane, address, bytes);
    });
  record(deed, lanes);
  if (act == Act::read && undefined_.empty())
    return read_shared(deed, reach, lanes, begin, bytes);
  for_lanes(lanes, [&](int lane) { touch_shared(deed, lane, reach.address[lane] + begin, bytes); });
}

void BlockChecker::touch_global(const Context &at, const Reach &reach, Act act, unsigned begin,
                                unsigned bytes) {
  Deed deed{at, act, Where::global, {}};
  if (launch_.overlaps_previous) [[unlikely]]
    for_lanes(reach.global, [&](int lane) { note_early(deed, lane, reach.address[lane] + begin, bytes); });
  InitialisedMemory::Locked initialised(launch_.initialised());
  const std::uint32_t lanes =
      reach.global & ~for_rows(deed, reach, reach.global, begin, bytes, [&](int lane, std::uint64_t address) {
        return touch_global_row(deed, initialised, lane, address, bytes);
      });
  record(deed, lanes);
  for_lanes(lanes,
            [&](int lane) { touch_global(deed, initialised, lane, reach.address[lane] + begin, bytes); });
}

// --- side by side ------------------------------------------------------------------------------------------

/// Calls touch_row(first lane, address) for each row that the lanes access completely, each lane the next
/// `bytes` bytes. Returns the lanes of the rows for which touch_row returned true.
template <typename TouchRow>
std::uint32_t BlockChecker::for_rows(const Deed &deed, const Reach &reach, std::uint32_t lanes,
                                     unsigned begin, unsigned bytes, TouchRow touch_row) const {
  const Context &at = deed.at;
  if (lanes != kAllLanes || (deed.act != Act::read && deed.act != Act::write) ||
      at.site.flags & Access::collective || !is_cell_size(bytes))
    return 0;
  const std::uint64_t first = reach.address[0] + begin;
  std::uint64_t differs = first % bytes;
  for (unsigned lane = 0; lane < 32; ++lane)
    differs |= reach.address[lane] - reach.address[0] - lane * bytes;
  if (differs || !clocks_.is_in_step(at.warp.index()))
    return 0;
  const unsigned count = kRow / bytes, before = unsigned(-first % kRow) / bytes;
  std::uint32_t done = 0;
  for (unsigned lane = before; lane + count <= 32; lane += count)
    if (touch_row(int(lane), first + lane * bytes))
      done |= std::uint32_t(low_bits(count)) << lane;
  return done;
}

/// Returns nullopt if the lanes' accesses to the row may conflict with earlier ones, or leave different
/// records; otherwise what remember_read returns.
std::optional<Access> BlockChecker::touch_row(const Deed &deed, int lane, Cell &row, unsigned bytes) const {
  const Access now = access(deed.at, lane, deed.act);
  for (const Access *const past : {&row.write, &row.reads[0], &row.reads[1]})
    if (past->epoch && past->block == now.block && past->thread != now.thread &&
        !clocks_.agree(now.thread, past->thread, past->epoch, kRow / bytes))
      return std::nullopt;
  const Touch first{deed, lane, now, clocks_.known_to(now.thread)}; // stands for all lanes from here on
  if (!is_settled(first, row))
    return std::nullopt;
  if (deed.reads())
    return remember_read(row, first);
  remember_write(row, first);
  return Access{};
}

/// True if any lane stores the value already in memory, in a row of elements of that size.
bool BlockChecker::any_changes_nothing(const Context &at, int first, std::uint64_t address, unsigned bytes,
                                       bool in_shared) const {
  for (unsigned i = 0; i < kRow / bytes; ++i)
    if (changes_nothing(at, first + int(i), address + i * bytes, in_shared))
      return true;
  return false;
}

/// For the lanes that write a row, each `bytes` bytes. If none races with them, the reads are forgotten.
bool BlockChecker::races_with_displaced(const Deed &deed, int lane, std::uint64_t row, unsigned bytes) {
  for (unsigned i = 0; i < kRow / bytes; ++i) {
    const Access now = access(deed.at, lane + int(i), deed.act);
    const auto meets = [&](const Access &read, std::uint8_t) { return races(read, now, false, false); };
    if (displaced_reads_.any_of(row + i * bytes, bytes, meets))
      return true;
  }
  displaced_reads_.forget(row, kRow);
  return false;
}

bool BlockChecker::touch_shared_row(const Deed &deed, int lane, std::uint64_t address, unsigned bytes) {
  Cell *const row = shadow_.row(address, bytes);
  if (!row || (deed.reads() && !row->write.epoch))
    return false;
  if (!deed.reads() && (any_changes_nothing(deed.at, lane, address, bytes, true) ||
                        races_with_displaced(deed, lane, address, bytes)))
    return false;
  const auto displaced = touch_row(deed, lane, *row, bytes);
  if (!displaced)
    return false;
  if (displaced->epoch)
    displaced_reads_.add_row(address, *displaced, bytes);
  if (!deed.reads())
    written_.mark(address, kRow);
  return true;
}

bool BlockChecker::touch_global_row(const Deed &deed, InitialisedMemory::Locked &initialised, int lane,
                                    std::uint64_t address, unsigned bytes) {
  const machine::MemoryRange *const range = deed.at.warp.remembered_range(address, kRow, !deed.reads());
  if (!range || (deed.reads() && !initialised.is_defined(address, kRow)))
    return false;
  if (!range->writable)
    return true; // nothing can race there
  if (!deed.reads() && any_changes_nothing(deed.at, lane, address, bytes, false))
    return false;
  Cell *const row = launch_.shadow.row(address, bytes);
  if (!row || !touch_row(deed, lane, *row, bytes))
    return false;
  if (!deed.reads())
    initialised.mark(address, kRow);
  return true;
}

// --- at one address
// ------------------------------------------------------------------------------------------

void BlockChecker::read_shared(const Deed &deed, const Reach &reach, std::uint32_t lanes, unsigned begin,
                               unsigned bytes) {
  const bool in_step = lanes == kAllLanes && clocks_.is_in_step(deed.at.warp.index());
  for (; lanes; lanes &= lanes - 1) {
    const int lane = std::countr_zero(lanes);
    const std::uint64_t address = reach.address[lane] + begin;
    int last = lane;
    while (in_step && last < 31 && reach.address[last + 1] == reach.address[lane])
      ++last;
    if (last > lane && read_together(deed, lane, last, address, bytes))
      lanes = std::uint32_t(~low_bits(unsigned(last))); // and the last bit goes above
    else if (!read_settled(deed, lane, address, bytes, in_step))
      touch_shared(deed, lane, address, bytes);
  }
}

namespace {

/// A write of whole granules without data in flight. A write of half a granule does not show that the other
/// half was written.
bool is_whole(const Access &write) {
  return write.epoch != 0 && write.bytes == kAllBytes && !(write.flags & Access::in_flight);
}

} // namespace

/// Reads at one address by the lanes `first` to `last`. Of concurrent reads, a cell keeps the first and the
/// last. Returns false if the lanes must be checked one by one.
bool BlockChecker::read_together(const Deed &deed, int first, int last, std::uint64_t address,
                                 unsigned bytes) {
  if (address % kChunk + bytes > kChunk)
    return false;
  const Access &now = deed.accesses[first];
  const Touch head{deed, first, now, clocks_.known_to(now.thread)},
      tail{deed, last, deed.accesses[last], clocks_.known_to(deed.accesses[last].thread)};
  return shadow_.all_cells(address, bytes, [&](Cell &cell, std::uint64_t place) {
    const Access &write = cell.write;
    if (!is_whole(write) || write.block != now.block || !head.known.through_block(write.thread, write.epoch))
      return false;
    keep_displaced(place, remember_read(cell, head)); // checking one by one may repeat this harmlessly
    const Access &kept = cell.reads[0];
    if (kept.block == now.block && kept.thread / 32 == now.thread / 32 && kept.thread != now.thread)
      return false; // some lane between may replace it
    keep_displaced(place, remember_read(cell, tail));
    return true;
  });
}

/// Whole cells of shared memory whose last write is ordered before. Returns false if touch_shared must handle
/// the access.
bool BlockChecker::read_settled(const Deed &deed, int lane, std::uint64_t address, unsigned bytes,
                                bool in_step) {
  if (address % kChunk + bytes > kChunk)
    return false;
  const Access &now = deed.accesses[lane];
  const Touch touch{deed, lane, now, clocks_.known_to(deed.at.thread(lane))};
  // Like is_settled, with fewer cases: nothing reads shared memory through the read-only path.
  const auto is_ordered = [&](const Access &write) {
    if (write.block != now.block)
      return false;
    if (in_step && touch.known.through_block(write.thread, write.epoch))
      return true;
    return write.thread == now.thread ? !(now.flags & Access::collective)
                                      : touch.known(write.thread, write.epoch);
  };
  return shadow_.all_cells(address, bytes, [&](Cell &cell, std::uint64_t place) {
    if (!is_whole(cell.write) || !is_ordered(cell.write))
      return false;
    if (deed.act == Act::read)
      keep_displaced(place, remember_read(cell, touch)); // touch_shared may repeat this harmlessly
    return true;
  });
}

} // namespace ladder::sanitizer
