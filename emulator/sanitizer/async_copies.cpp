// Asynchronous copies: from their issue until their wait.
#include "sanitizer/block_checker.h"

#include "instructions/async_copy.h"
#include "instructions/bulk_copy.h"

#include <algorithm>
#include <bit>
#include <map>
#include <utility>

namespace ladder::sanitizer {

using instructions::for_lanes;
using instructions::Space;
using machine::Instruction;
using machine::Warp;

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
  {
    const Deed read = deed(at, good & from.global, Act::read, "global");
    InitialisedMemory::Locked initialised(launch_.initialised());
    for_lanes(good & from.global, [&](int lane) {
      touch_global(read, initialised, lane, from.address[lane], std::min(bytes, bytes_read(warp, in, lane)));
    });
  }
  WarpCopies &copies = copies_[std::size_t(warp.index())];
  const Deed write = deed(at, good & to.shared, Act::copy, "shared");
  for_lanes(good & to.shared, [&](int lane) {
    touch_shared(write, lane, to.address[lane], bytes);
    copies.open.push_back({std::uint32_t(to.address[lane]), bytes, at.thread(lane)});
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
    complete_copies(copies.groups.front());
  if (all)
    complete_copies(copies.open);
  carry_out(at, warp.active());
}

/// From now on the data counts as written by the lane that copied and waited.
void BlockChecker::complete_copies(std::vector<CopyInFlight> &copies) {
  for (const CopyInFlight &copy : copies) {
    shadow_.visit(copy.address, copy.bytes, [&](Cell &cell, std::uint64_t, std::uint8_t) {
      Access &write = cell.write;
      if (write.thread != copy.thread || !(write.flags & Access::in_flight))
        return;
      write.flags &= std::uint8_t(~Access::in_flight);
      write.epoch = clocks_.epoch(copy.thread);
    });
    written_.mark(copy.address, copy.bytes);
  }
  copies.clear();
}

void BlockChecker::bulk_copy(Warp &warp, const Instruction &in) {
  constexpr unsigned kAlignment = 16;
  const Context at = context(warp, in);
  unsigned bytes = 0;
  std::map<std::uint64_t, int> first_lanes; // by destination in shared memory
  for_lanes(warp.active(), [&](int lane) {
    const instructions::BulkCopy copy = instructions::bulk_copy_of(warp, in, lane);
    const bool loads = copy.kind == instructions::BulkKind::load;
    bytes = unsigned(copy.shared_extent);
    Reach shared;
    shared.address[lane] = copy.shared;
    place_lane(at, shared, lane, Space::shared, bytes, kAlignment, loads);
    const bool good = touch_bulk_global(at, copy, lane);
    if (!shared.shared || !good)
      return;
    if (!loads) {
      begin_store(at, lane, copy.shared, bytes);
      return;
    }
    if (const auto [first, is_first] = first_lanes.try_emplace(copy.shared, lane); !is_first) {
      note(Kind::election, lane, std::uint64_t(std::popcount(warp.active())), "");
      return;
    }
    touch_shared(deed(at, 1u << lane, Act::copy, "shared"), lane, copy.shared, bytes);
    if (copy.map)
      async_.copied(copy.shared, bytes, copy.map->swizzle);
    bulk_copies_[copy.mbarrier].push_back({std::uint32_t(copy.shared), bytes, at.thread(lane)});
  });
  report(at, bytes);
  carry_out(at, warp.active()); // invalid ones too, which end the block: its waiters would wait forever
}

/// Records the global memory that a bulk copy reads or writes; returns false if part of it does not exist.
bool BlockChecker::touch_bulk_global(const Context &at, const instructions::BulkCopy &copy, int lane) {
  if (copy.kind == instructions::BulkKind::exchange)
    return true;
  const bool writes = copy.kind == instructions::BulkKind::store;
  bool good = true;
  Deed accesses = deed(at, 1u << lane,
                       copy.reduces ? Act::update
                       : writes     ? Act::write
                                    : Act::read,
                       "global");
  if (copy.reduces)
    accesses.accesses[lane].flags |= Access::strong;
  const auto touch_run = [&](std::uint64_t address, unsigned bytes) {
    Reach run;
    run.address[lane] = address;
    place_lane(at, run, lane, Space::global, bytes, 1, writes);
    good = good && run.global;
    if (InitialisedMemory::Locked initialised(launch_.initialised()); run.global)
      touch_global(accesses, initialised, lane, address, bytes);
  };
  if (!copy.map)
    touch_run(copy.other, unsigned(copy.bytes));
  else
    instructions::visit_box(*copy.map, copy.coordinates, [&](const instructions::BoxRun &run) {
      if (run.address)
        touch_run(run.address, run.bytes);
    });
  return good;
}

/// Waiters at the mbarrier see the copies, and everything the copying threads did before.
void BlockChecker::complete_bulk_copies(std::uint64_t mbarrier) {
  const auto found = bulk_copies_.find(mbarrier);
  if (found == bulk_copies_.end())
    return;
  std::vector<std::uint32_t> threads;
  for (const CopyInFlight &copy : found->second)
    threads.push_back(copy.thread);
  complete_copies(found->second);
  for (const std::uint32_t thread : threads)
    merge_into(objects_[mbarrier], {{block_index_, clocks_.release(thread)}});
}

void BlockChecker::copy_arrive(Warp &warp, const Instruction &in) {
  WarpCopies &copies = copies_[std::size_t(warp.index())];
  for (; !copies.groups.empty(); copies.groups.pop_front())
    complete_copies(copies.groups.front());
  complete_copies(copies.open);
  mbarrier(warp, in);
}

} // namespace ladder::sanitizer
