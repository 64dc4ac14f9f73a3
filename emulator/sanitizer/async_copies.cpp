// Asynchronous copies: from their issue until their wait.
#include "sanitizer/block_checker.h"

#include "instructions/async_copy.h"
#include "instructions/bulk_copy.h"
#include "instructions/cluster.h"
#include "machine/cluster.h"

#include <algorithm>
#include <bit>
#include <set>
#include <tuple>
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
  Reach from;
  std::copy_n(sources, 32, from.address);
  for_lanes(reading, [&](int lane) {
    const Space space = in.flags & kSourceGeneric ? Space::generic : Space::global;
    place_lane(at, from, lane, space, std::min(bytes, bytes_read(warp, in, lane)), bytes, false);
  });
  const std::uint32_t good = to.lanes() & (from.lanes() | ~reading);
  partly_read_ = {};
  {
    const Deed read = deed(at, good & from.global, Act::read, Where::global);
    InitialisedMemory::Locked initialised(launch_.initialised());
    for_lanes(good & from.global, [&](int lane) {
      const unsigned used = std::min(bytes, bytes_read(warp, in, lane));
      if (launch_.overlaps_previous)
        note_early(read, lane, from.address[lane], used);
      touch_global(read, initialised, lane, from.address[lane], used);
    });
  }
  WarpCopies &copies = copies_[std::size_t(warp.index())];
  const Deed write = deed(at, good & to.shared, Act::copy, Where::shared);
  for_lanes(good & to.shared, [&](int lane) {
    touch_shared(write, lane, to.address[lane], bytes);
    if (partly_read_.lanes >> lane & 1)
      undefined_.set(to.address[lane], bytes, partly_read_.masks[lane], at.index);
    copies.open.push_back({std::uint32_t(to.address[lane]), bytes, write.accesses[lane], nullptr, nullptr});
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
  const bool all = warp.source(in).is(program::Trait::all_groups);
  const std::size_t pending = all ? 0 : std::size_t(in.imm);
  for (; copies.groups.size() > pending; copies.groups.pop_front())
    complete_thread_copies(copies.groups.front());
  if (all)
    complete_thread_copies(copies.open);
  carry_out(at, warp.active());
}

/// Data written by a thread's cp.async needs a fence before the async proxy reads it, like the thread's
/// stores.
void BlockChecker::complete_thread_copies(std::vector<CopyInFlight> &copies) {
  if (launch_.uses_async_proxy())
    for (const CopyInFlight &copy : copies)
      async_.wrote(copy.address, copy.bytes, copy.write);
  complete_copies(copies);
  copies.clear();
}

/// From now on the data counts as written by the lane that issued the copy: at its wait, or, for a bulk copy
/// that others wait for, at the issue.
void BlockChecker::complete_copies(const std::vector<CopyInFlight> &copies) {
  for (const CopyInFlight &copy : copies) {
    const std::uint32_t epoch =
        copy.issuer ? copy.write.epoch : checker(copy.write.block).clocks_.epoch(copy.write.thread);
    shadow_.visit(copy.address, copy.bytes, [&](Cell &cell, std::uint64_t, std::uint8_t) {
      Access &write = cell.write;
      if (write.thread != copy.write.thread || write.block != copy.write.block ||
          !(write.flags & Access::in_flight))
        return;
      write.flags &= std::uint8_t(~Access::in_flight);
      write.epoch = epoch;
    });
    written_.mark(copy.address, copy.bytes);
  }
}

void BlockChecker::bulk_copy(Warp &warp, const Instruction &in) {
  constexpr unsigned kAlignment = 16;
  const Context at = context(warp, in);
  unsigned bytes = 0;
  // Only one lane may issue these: loads to one address, or reductions of one source into one address.
  std::set<std::tuple<std::uint64_t, std::uint64_t, decltype(instructions::BulkCopy::coordinates)>> issued;
  Phases phases;
  for_lanes(warp.active(), [&](int lane) {
    const instructions::BulkCopy copy = instructions::bulk_copy_of(warp, in, lane);
    const bool loads = copy.kind == instructions::BulkKind::load;
    bytes = unsigned(copy.shared_extent);
    const auto key = loads ? std::tuple{copy.shared, std::uint64_t(0), decltype(copy.coordinates){}}
                           : std::tuple{copy.shared, copy.other, copy.coordinates};
    const bool is_first = issued.insert(key).second;
    if (!is_first && !loads && !copy.reduces) // the same store again
      return note(Kind::flag, lane, std::uint64_t(std::popcount(warp.active())), Where::none);
    Reach shared;
    shared.address[lane] = copy.shared;
    place_lane(at, shared, lane, Space::shared, bytes, kAlignment, loads);
    StoreInFlight store;
    const bool good = touch_bulk_global(at, copy, lane, store);
    if (!(shared.shared | shared.elsewhere) || !good)
      return;
    if (!is_first)
      return note(Kind::election, lane, std::uint64_t(std::popcount(warp.active())), Where::none);
    uses_maps_in_memory_ |= copy.map && launch_.memory().find(copy.other, instructions::kTensorMapBytes);
    if (loads)
      return begin_load(at, lane, copy, phases);
    store.map = copy.map ? copy.other : 0;
    store.read = begin_read(at, lane, copy.shared, bytes);
    if (copy.kind == instructions::BulkKind::exchange)
      begin_landing(at, lane,
                    {.to = copy.other,
                     .mbarrier = copy.mbarrier,
                     .bytes = bytes,
                     .reduces = copy.reduces,
                     .is_bulk = true,
                     .swizzle = {},
                     .source = store.read},
                    phases);
    else
      stores_[at.thread(lane)].open.push_back(std::move(store));
  });
  report(at, bytes);
  carry_out(at, warp.active()); // invalid ones too, which end the block: its waiters would wait forever
  check_waits(at, phases);
}

/// Records the global memory that a bulk copy reads or writes; returns false if part of it does not exist.
/// Its writes stay in flight until its thread has waited for more than the reads.
bool BlockChecker::touch_bulk_global(const Context &at, const instructions::BulkCopy &copy, int lane,
                                     StoreInFlight &store) {
  if (copy.kind == instructions::BulkKind::exchange)
    return true;
  const bool writes = copy.kind == instructions::BulkKind::store;
  bool good = true;
  Deed accesses = deed(at, 1u << lane,
                       copy.reduces ? Act::update
                       : writes     ? Act::write
                                    : Act::read,
                       Where::global);
  const bool adds_floats =
      copy.reduces && at.site.is(program::Trait::sums) && at.site.is(program::Trait::floats);
  accesses.accesses[lane].flags |=
      std::uint8_t((copy.reduces ? Access::strong : 0) | (adds_floats ? Access::sums : 0) |
                   (writes ? Access::in_flight : 0));
  const auto touch_run = [&](std::uint64_t address, unsigned bytes) {
    Reach run;
    run.address[lane] = address;
    place_lane(at, run, lane, Space::global, bytes, 1, writes);
    good = good && run.global;
    if (run.global && launch_.overlaps_previous)
      note_early(accesses, lane, address, bytes);
    if (run.global)
      check_global_proxy(at, lane, address, bytes, writes);
    if (InitialisedMemory::Locked initialised(launch_.initialised()); run.global)
      touch_global(accesses, initialised, lane, address, bytes);
    if (writes)
      store.runs.emplace_back(address, bytes);
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

void BlockChecker::async_store(Warp &warp, const Instruction &in) {
  const Context at = context(warp, in);
  unsigned bytes = 0;
  Phases phases;
  for_lanes(warp.active(), [&](int lane) {
    const instructions::AsyncStore store = instructions::async_store_of(warp, in, lane);
    bytes = store.bytes;
    Reach to;
    to.address[lane] = store.to;
    place_lane(at, to, lane, Space::shared, bytes, bytes, true);
    if (to.shared | to.elsewhere)
      begin_landing(at, lane,
                    {.to = store.to,
                     .mbarrier = store.mbarrier,
                     .bytes = bytes,
                     .reduces = store.reduces,
                     .swizzle = {},
                     .source = nullptr},
                    phases);
  });
  report(at, bytes);
  carry_out(at, warp.active()); // invalid ones too, which end the block: its waiters would wait forever
  check_waits(at, phases);
}

/// A load lands in this block, in another block of the cluster, or at the same offset in several.
void BlockChecker::begin_load(const Context &at, int lane, const instructions::BulkCopy &copy,
                              Phases &phases) {
  const auto land = [&](std::uint64_t to, std::uint64_t mbarrier) {
    begin_landing(at, lane,
                  {.to = to,
                   .mbarrier = mbarrier,
                   .bytes = unsigned(copy.shared_extent),
                   .is_bulk = true,
                   .swizzle = copy.map ? std::optional(copy.map->swizzle) : std::nullopt,
                   .source = nullptr,
                   .map = copy.map ? copy.other : 0},
                  phases);
  };
  if (!copy.cta_mask)
    return land(copy.shared, copy.mbarrier);
  const auto in_block = [](std::uint32_t rank, std::uint64_t address) {
    return machine::cluster_address(rank, std::uint32_t(address) & machine::kOffsetInBlock);
  };
  for (std::uint32_t rank = 0; rank < block_.cluster().size(); ++rank)
    if (*copy.cta_mask >> rank & 1)
      land(in_block(rank, copy.shared), in_block(rank, copy.mbarrier));
}

/// Reductions commute: they race with other accesses, but not with each other. `phases` gets the phase that
/// counts the bytes.
void BlockChecker::begin_landing(const Context &at, int lane, const Landing &landing, Phases &phases) {
  const auto place = owner(landing.to, landing.bytes),
             signal = owner(landing.mbarrier, sizeof(std::uint64_t));
  if (!place || !signal || place->first != signal->first)
    return; // rejected when it executes
  BlockChecker &other = *place->first;
  const std::uint64_t address = place->second;
  Deed write = deed(at, 1u << lane, Act::copy, Where::shared);
  if (landing.reduces)
    write.accesses[lane].flags |= Access::strong;
  for (const auto &[awaited, copies] : other.bulk_copies_)
    for (const CopyInFlight &coming : copies)
      if (coming.address == address && !(landing.reduces && coming.write.flags & Access::strong))
        note({Kind::async_copy, lane, address, Where::shared, coming.write, true, true});
  if (const auto init = other.inits_.find(signal->second);
      landing.is_bulk && &other == this && init != inits_.end() && !init->second.is_published)
    note({Kind::proxy, lane, signal->second, Where::shared, init->second.access, true, false});
  else if (landing.is_bulk)
    check_overwriting(at, lane, other, address, landing.bytes);
  check_init_by_cluster(at, lane, other, signal->second);
  if (landing.reduces && !other.written_.any(address, landing.bytes))
    note(Kind::uninitialised, lane, address, Where::shared);
  touch_shared(write, lane, address, landing.bytes, other);
  if (landing.swizzle)
    other.async_.copied(address, landing.bytes, *landing.swizzle);
  if (const auto parity = other.phase_of(signal->second))
    phases.try_emplace(*signal, Phase{lane, *parity});
  other.bulk_copies_[signal->second].push_back({std::uint32_t(address), landing.bytes, write.accesses[lane],
                                                landing.source, clocks_.release(at.thread(lane)),
                                                landing.map});
}

/// A thread's write without a proxy fence may take effect after that of the async proxy. Of reads, ldmatrix
/// needs the fence, too: on an H200 TMA overwrote rows that ldmatrix still read, though the warp had arrived
/// at the mbarrier. Plain loads, whose values their threads use before they arrive, were never seen to fail.
void BlockChecker::check_overwriting(const Context &at, int lane, const BlockChecker &owner,
                                     std::uint64_t address, unsigned bytes) {
  for (std::uint64_t chunk = address; chunk < address + bytes; chunk += kChunk)
    for (const bool wrote : {true, false}) {
      const AsyncProxy::Touched &last =
          wrote ? owner.async_.last_write(chunk) : owner.async_.last_matrix_read(chunk);
      if (const Access past = unfenced(at, lane, owner, last); past.epoch)
        return note({Kind::proxy, lane, chunk, Where::shared, past, wrote, true});
    }
}

/// Waiters at the mbarrier see the copies that have landed, and everything that the issuing threads did
/// before. If a phase completes before all copies have landed, its expected bytes did not include the rest.
void BlockChecker::complete_bulk_copies(const Context &at, std::uint64_t mbarrier, std::uint32_t parity) {
  const auto found = bulk_copies_.find(mbarrier);
  if (found == bulk_copies_.end())
    return;
  const auto is_in_flight = [&](const CopyInFlight &copy) {
    return std::ranges::any_of(block_.bulk_copies(), [&](const machine::BulkCopyInFlight &other) {
      return other.mbarrier == mbarrier && other.place.address == copy.address;
    });
  };
  std::vector<CopyInFlight> landed, left;
  for (CopyInFlight &copy : found->second)
    (is_in_flight(copy) ? left : landed).push_back(std::move(copy));
  if (left.empty())
    bulk_copies_.erase(found);
  else
    found->second = left;
  complete_copies(landed);
  std::vector<SharedRead> &sources = landed_[mbarrier];
  if (!landed.empty())
    sources.clear();
  Knowledge &published = objects_[mbarrier].knowledge;
  for (const CopyInFlight &copy : landed) {
    published = merge(published, copy.issuer);
    if (copy.source)
      sources.push_back(copy.source);
  }
  if (phase_of(mbarrier).value_or(parity) != parity)
    for (const CopyInFlight &copy : left)
      report_past(Kind::async_copy, copy.write, expectations_[mbarrier],
                  "is still in flight when the phase of its mbarrier completes: the expected bytes of that "
                  "phase do not include this copy");
}

void BlockChecker::copy_arrive(Warp &warp, const Instruction &in) {
  WarpCopies &copies = copies_[std::size_t(warp.index())];
  for (; !copies.groups.empty(); copies.groups.pop_front())
    complete_thread_copies(copies.groups.front());
  complete_thread_copies(copies.open);
  mbarrier(warp, in);
}

} // namespace ladder::sanitizer
