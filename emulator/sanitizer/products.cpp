// Accesses of the async proxy to shared memory: products of a warpgroup, and boxes that TMA stores.
#include "sanitizer/block_checker.h"

#include "instructions/wgmma.h"

#include <bit>
#include <utility>

namespace ladder::sanitizer {

using instructions::for_lanes;
using machine::Instruction;
using machine::Warp;

/// Makes the threads' writes visible to the async proxy, in the memory that the fence names.
void BlockChecker::proxy_fence(Warp &warp, const Instruction &in) {
  const Context at = context(warp, in);
  if (!at.site.is(program::Trait::in_global)) {
    for_lanes(warp.active(), [&](int lane) { async_.fenced(clocks_.now(at.thread(lane))); });
    publish_inits(warp, warp.active());
  }
  if (!at.site.is(program::Trait::in_shared) && launch_.copies_in_bulk())
    for_lanes(warp.active(), [&](int lane) {
      launch_.add_proxy_fence(block_index_, clocks_.now(at.thread(lane)), clocks_.others(at.thread(lane)));
    });
  carry_out(at, warp.active());
}

/// The last access by a thread if no fence orders it before one of the async proxy; epoch 0: it is ordered.
Access BlockChecker::unfenced(const Context &at, int lane, const BlockChecker &owner,
                              const AsyncProxy::Touched &last) const {
  const auto is_known = [&](std::uint32_t thread, std::uint32_t epoch) {
    return knows(at.thread(lane),
                 {.epoch = epoch, .thread = std::uint16_t(thread), .block = owner.block_index_});
  };
  return owner.async_.is_unfenced(last, at.warp.index(), at.warp.live()) &&
                 !owner.async_.is_fenced_between(last, is_known)
             ? last.access
             : Access{};
}

/// Reports an async proxy read of data that a thread wrote without a fence.
void BlockChecker::check_proxy(const Context &at, int lane, std::uint32_t address) {
  const Access write = unfenced(at, lane, *this, async_.last_write(address));
  if (write.epoch)
    note({Kind::proxy, lane, address, Where::shared, write, true, false});
}

/// Whether some thread that knew the write to global memory has executed a fence for it, of which this lane
/// knows.
bool BlockChecker::is_fenced(const Context &at, int lane, const Access &write) const {
  return launch_.any_proxy_fence([&](const LaunchChecker::ProxyFence &fence) {
    const Access own{.epoch = fence.by.epoch, .thread = std::uint16_t(fence.by.thread), .block = fence.block};
    const bool knew = fence.block != write.block ? is_in(fence.others, write.block, write.thread, write.epoch)
                      : fence.by.thread == write.thread ? fence.by.epoch >= write.epoch
                                                        : fence.by.knows(write.thread, write.epoch);
    return knew && knows(at.thread(lane), own);
  });
}

/// The same in global memory, for what threads have written in this launch. The end of a launch orders the
/// proxies.
void BlockChecker::check_global_proxy(const Context &at, int lane, std::uint64_t address, unsigned bytes,
                                      bool writes) {
  Access checked; // the last write that was found to be fenced
  bool is_noted = false;
  launch_.shadow.visit(address, bytes, [&](const Cell &cell, std::uint64_t place, std::uint8_t) {
    const Access &write = cell.write;
    if (is_noted || !write.epoch ||
        launch_.code().sources[write.instruction]->row->effect == program::Effect::bulk_copy)
      return;
    if (write.epoch == checked.epoch && write.thread == checked.thread && write.block == checked.block)
      return;
    if (is_fenced(at, lane, write)) {
      checked = write;
      return;
    }
    note({Kind::proxy, lane, place, Where::global, write, true, writes});
    is_noted = true;
  });
}

/// A tensor map that a copy in flight may still read must not change.
void BlockChecker::check_maps_in_use(const Context &at, const Reach &reach, unsigned bytes) {
  const auto check = [&](std::uint64_t map, const Access &reader) {
    for_lanes(reach.global, [&](int lane) {
      if (map && reach.address[lane] < map + instructions::kTensorMapBytes &&
          map < reach.address[lane] + bytes)
        note({Kind::async_read, lane, reach.address[lane], Where::global, reader, false, true});
    });
  };
  for (const auto &[mbarrier, copies] : bulk_copies_)
    for (const CopyInFlight &copy : copies)
      check(copy.map, copy.write);
  for (const auto &[thread, stores] : stores_) {
    for (const StoreInFlight &store : stores.open)
      check(store.map, store.read->reader);
    for (const std::vector<StoreInFlight> &group : stores.groups)
      for (const StoreInFlight &store : group)
        if (store.read)
          check(store.map, store.read->reader);
  }
}

/// In global memory; in shared memory the map is under construction.
void BlockChecker::map_change(Warp &warp, const Instruction &in) {
  const Context at = context(warp, in);
  if (uses_maps_in_memory_) {
    Reach to;
    instructions::lane_addresses(warp, instructions::address_base(in.flags), in.op[0], in.imm, to.address);
    to.global = warp.active();
    check_maps_in_use(at, to, instructions::kTensorMapBytes);
    report(at, instructions::kTensorMapBytes);
  }
  carry_out(at, warp.active());
}

/// Numbers the product. Its four warps, from `first` on, share one read; none can complete its wait before
/// all four have issued the product.
SharedRead BlockChecker::issue(const Context &at, std::size_t first) {
  WarpProducts &own = products_[std::size_t(at.warp.index())];
  const std::uint64_t number = own.issued++;
  own.seen_phases.push_back(clocks_.seen_phases(at.warp.index()));
  SharedRead read;
  for (std::size_t i = first; !read && i < first + machine::kWarpsOfGroup; ++i) {
    const WarpProducts &other = products_[i];
    if (other.issued > number && !other.reads.empty() && other.reads.front().first <= number &&
        &other != &own)
      read = other.reads[number - other.reads.front().first].second;
  }
  if (!read)
    read = std::make_shared<AsyncRead>(AsyncRead{access(at, 0, Act::async_read), {}});
  own.reads.emplace_back(number, read);
  return read;
}

/// Records the wait: the reads are complete for all threads that know of it.
AsyncRead::Wait BlockChecker::wait_of(const Warp &warp, std::uint32_t lanes) const {
  AsyncRead::Wait wait{block_index_, warp.index(), {}};
  for_lanes(lanes, [&](int lane) {
    wait.epochs[std::size_t(lane)] = clocks_.epoch(std::uint32_t(warp.index() * 32 + lane));
  });
  return wait;
}

/// The whole warp reads the operands, at any time until the wait.
void BlockChecker::product(Warp &warp, const Instruction &in) {
  const Context at = context(warp, in);
  if (warp.active() != machine::kAllLanes || !block_.warpgroup(warp.index()))
    return carry_out(at, warp.active()); // the original handler waits for the other warps, or rejects it
  const Deed read = deed(at, 1, Act::async_read, Where::shared);
  const bool in_step = clocks_.is_in_step(warp.index());
  std::vector<std::uint32_t> chunks;
  bool is_swizzle_noted = false;
  for (const instructions::OperandChunk &chunk : instructions::operand_chunks(warp, in)) {
    if (chunk.address < block_.shared_first() || chunk.address + kChunk > block_.shared_end())
      continue; // rejected when it executes
    if (!undefined_.empty() || !read_settled(read, 0, chunk.address, kChunk, in_step))
      touch_shared(read, 0, chunk.address, kChunk);
    check_proxy(at, 0, chunk.address);
    if (!is_swizzle_noted && async_.has_other_swizzle(chunk.address, chunk.swizzle)) {
      note(Kind::swizzle, 0, chunk.address, Where::shared);
      is_swizzle_noted = true;
    }
    chunks.push_back(chunk.address);
  }
  const auto group = std::size_t(warp.index() / machine::kWarpsOfGroup);
  async_.read(chunks, group, issue(at, group * machine::kWarpsOfGroup));
  check_product_registers(at);
  report(at, kChunk);
  carry_out(at, warp.active());
}

// --- registers of products

void BlockChecker::product_fence(Warp &warp, const Instruction &in) {
  WarpProducts &own = products_[std::size_t(warp.index())];
  own.fence = ++own.time;
  carry_out(context(warp, in), warp.active());
}

/// For a product: a register that the warp has accessed needs a wgmma.fence after that access. The product
/// uses it until the wait. Reads of a fragment of A are harmless.
void BlockChecker::check_product_registers(const Context &at) {
  WarpProducts &own = products_[std::size_t(at.warp.index())];
  own.registers.resize(launch_.product_registers());
  for (const ProductUse use : launch_.product_uses(at.site)) {
    ProductRegister &reg = own.registers[use.number];
    const bool is_late = use.writes ? reg.accessed > own.fence : reg.written > own.fence;
    if (is_late)
      note_register(at, Kind::product_fence, use.writes ? reg.accessed_by : reg.written_by);
    reg.product = at.index;
    reg.number = own.issued; // already counts this product
    reg.is_accumulator = use.writes;
  }
  if (!own.fence)
    note_register(at, Kind::product_fence, kNoInstruction);
}

/// For any other instruction. Compilers place moves between a fence and its product; ptxas removes them.
void BlockChecker::use_product_registers(const Context &at) {
  WarpProducts &own = products_[std::size_t(at.warp.index())];
  own.registers.resize(launch_.product_registers());
  ++own.time;
  const bool moves = at.warp.source(at.in).is(program::Trait::moves);
  for (const ProductUse use : launch_.product_uses(at.site)) {
    ProductRegister &reg = own.registers[use.number];
    if (reg.number > own.complete && (reg.is_accumulator || use.writes)) {
      note_register(at, Kind::product_wait, reg.product);
      reg.number = 0; // report it once
    }
    if (moves)
      continue;
    reg.accessed = own.time;
    reg.accessed_by = at.index;
    if (use.writes) {
      reg.written = own.time;
      reg.written_by = at.index;
    }
  }
  report(at, 0);
}

void BlockChecker::note_register(const Context &at, Kind kind, std::uint32_t instruction) {
  const int lane = std::countr_zero(at.warp.active());
  const Access past{.epoch = instruction != kNoInstruction,
                    .thread = std::uint16_t(at.thread(lane)),
                    .instruction = instruction,
                    .block = block_index_};
  note({kind, lane, 0, Where::none, past, false, false});
}

void BlockChecker::product_commit(Warp &warp, const Instruction &in) {
  const Context at = context(warp, in);
  WarpProducts &own = products_[std::size_t(warp.index())];
  if (warp.active() == machine::kAllLanes)
    own.groups.push_back(own.issued);
  carry_out(at, warp.active());
}

/// The operands of the four warps are read together, so a wait by one warp waits for all.
void BlockChecker::product_wait(Warp &warp, const Instruction &in) {
  const Context at = context(warp, in);
  machine::Warpgroup *const group = block_.warpgroup(warp.index());
  const auto pending = std::size_t(in.imm);
  if (warp.active() == machine::kAllLanes && group && group->wait(warp, pending)) {
    WarpProducts &own = products_[std::size_t(warp.index())];
    for (; own.groups.size() > pending; own.groups.pop_front())
      own.complete = own.groups.front();
    for (; !own.reads.empty() && own.reads.front().first < own.complete; own.reads.pop_front())
      own.reads.front().second->waits.push_back(wait_of(warp, machine::kAllLanes));
    learn_phases_of_group(warp);
  }
  carry_out(at, warp.active());
}

/// A product is complete only after all four warps have issued it: the warp knows which phases of mbarriers
/// they had seen then. It learns nothing of their accesses, which the product does not order.
void BlockChecker::learn_phases_of_group(const Warp &warp) {
  const std::uint64_t complete = products_[std::size_t(warp.index())].complete;
  const int first = warp.index() / machine::kWarpsOfGroup * machine::kWarpsOfGroup;
  for (int other = first; complete && other < first + machine::kWarpsOfGroup; ++other)
    if (const auto &seen = products_[std::size_t(other)].seen_phases; seen.size() >= complete)
      clocks_.learn_phases(warp.index(), other, seen[complete - 1]);
}

// --- boxes and spans in flight from shared memory

SharedRead BlockChecker::begin_read(const Context &at, int lane, std::uint64_t address, unsigned bytes) {
  std::vector<std::uint32_t> chunks;
  for (std::uint64_t chunk = address; chunk < address + bytes; chunk += kChunk) {
    check_proxy(at, lane, std::uint32_t(chunk));
    chunks.push_back(std::uint32_t(chunk));
  }
  touch_shared(deed(at, 1u << lane, Act::async_read, Where::shared), lane, address, bytes);
  const auto read = std::make_shared<AsyncRead>(AsyncRead{access(at, lane, Act::async_read), {}});
  async_.read(chunks, store_party(), read);
  return read;
}

void BlockChecker::bulk_commit(Warp &warp, const Instruction &in) {
  const Context at = context(warp, in);
  for_lanes(warp.active(), [&](int lane) {
    ThreadStores &stores = stores_[at.thread(lane)];
    stores.groups.push_back(std::exchange(stores.open, {}));
  });
  carry_out(at, warp.active());
}

void BlockChecker::bulk_wait(Warp &warp, const Instruction &in) {
  const Context at = context(warp, in);
  carry_out(at, warp.active());
  const bool only_reads = warp.source(in).is(program::Trait::only_reads);
  for_lanes(warp.active(), [&](int lane) {
    std::deque<std::vector<StoreInFlight>> &groups = stores_[at.thread(lane)].groups;
    const auto pending = std::size_t(in.imm), done = groups.size() > pending ? groups.size() - pending : 0;
    for (std::size_t i = 0; i < done; ++i)
      for (StoreInFlight &store : groups[i]) {
        if (const SharedRead read = std::exchange(store.read, nullptr))
          read->waits.push_back(wait_of(warp, 1u << lane));
        if (!only_reads)
          complete_store(store, at.thread(lane));
      }
    if (!only_reads)
      groups.erase(groups.begin(), groups.begin() + std::ptrdiff_t(done));
  });
}

/// From now on the data counts as written by its thread.
void BlockChecker::complete_store(const StoreInFlight &store, std::uint32_t thread) {
  for (const auto &[address, bytes] : store.runs)
    launch_.shadow.visit(address, bytes, [&](Cell &cell, std::uint64_t, std::uint8_t) {
      if (cell.write.block != block_index_ || cell.write.thread != thread)
        return;
      cell.write.flags &= std::uint8_t(~Access::in_flight);
      cell.write.epoch = clocks_.epoch(thread);
    });
}

/// After the end of the block its shared memory may be reused, so no transfer from or to it may be in flight.
void BlockChecker::check_end() {
  for (auto &[thread, stores] : stores_) {
    stores.groups.push_back(std::move(stores.open));
    for (const std::vector<StoreInFlight> &group : stores.groups)
      for (const StoreInFlight &store : group)
        if (store.read)
          report_past(Kind::async_read, store.read->reader, {},
                      "the block exits while this store may still be reading its shared memory");
  }
  for (const auto &[mbarrier, copies] : bulk_copies_)
    for (const CopyInFlight &copy : copies)
      report_past(Kind::async_copy, copy.write, {},
                  "the block exits while this copy to its shared memory is still in flight: no thread has "
                  "waited for that phase of the mbarrier");
  if (tensor_)
    check_tensor_end();
  if (is_used_by_cluster_)
    check_use_by_cluster();
}

void BlockChecker::report_past(Kind kind, const Access &access, const Access &other, const char *message) {
  const auto party = [&](const Access &of) {
    return launch_.party(launch_place(of.block), of.thread / 32, 1u << of.thread % 32, of.instruction);
  };
  const std::uint32_t key = other.epoch ? other.instruction : kNoInstruction;
  launch_.findings().add({kind, &launch_.code(), access.instruction, key}, 1, [&] {
    Finding finding;
    finding.kind = kind;
    finding.kernel = launch_.kernel();
    finding.message = message;
    finding.who = party(access);
    if (other.epoch)
      finding.other = party(other);
    finding.space = "shared";
    return finding;
  });
}

} // namespace ladder::sanitizer
