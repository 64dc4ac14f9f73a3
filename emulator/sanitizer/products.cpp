// Accesses of the async proxy to shared memory: products of a warpgroup, and boxes that TMA stores.
#include "sanitizer/block_checker.h"

#include "instructions/wgmma.h"

#include <bit>
#include <utility>

namespace ladder::sanitizer {

using instructions::for_lanes;
using machine::Instruction;
using machine::Warp;

/// Makes the threads' writes visible to the async proxy.
void BlockChecker::proxy_fence(Warp &warp, const Instruction &in) {
  const Context at = context(warp, in);
  for_lanes(warp.active(), [&](int lane) { async_.fenced(at.thread(lane)); });
  publish_inits(warp, warp.active());
  carry_out(at, warp.active());
}

/// Reports an async proxy read of data that a thread wrote without a fence.
void BlockChecker::check_proxy(const Context &at, int lane, std::uint32_t address) {
  const Access write = async_.unfenced(address, at.warp.index(), at.warp.live());
  if (write.epoch)
    note({Kind::proxy, lane, address, Where::shared, write, true, false});
}

/// Numbers the product. Its four warps, from `first` on, share one read; none can wait before all have issued
/// it.
SharedRead BlockChecker::issue(const Context &at, std::size_t first) {
  WarpProducts &own = products_[std::size_t(at.warp.index())];
  const std::uint64_t number = own.issued++;
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

/// What the lanes of a warp have waited for is over for all who know of it.
AsyncRead::Wait BlockChecker::wait_of(const Warp &warp, std::uint32_t lanes) const {
  AsyncRead::Wait wait{block_index_, warp.index(), {}};
  for_lanes(lanes, [&](int lane) {
    wait.epochs[std::size_t(lane)] = clocks_.epoch(std::uint32_t(warp.index() * 32 + lane));
  });
  return wait;
}

/// The whole warp reads the operands, at any time up to the wait.
void BlockChecker::product(Warp &warp, const Instruction &in) {
  const Context at = context(warp, in);
  if (warp.active() != machine::kAllLanes || !block_.warpgroup(warp.index()))
    return carry_out(at, warp.active()); // which waits for the others, or rejects it
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
  report(at, kChunk);
  const auto group = std::size_t(warp.index() / machine::kWarpsOfGroup);
  async_.read(chunks, group, issue(at, group * machine::kWarpsOfGroup));
  carry_out(at, warp.active());
}

void BlockChecker::product_commit(Warp &warp, const Instruction &in) {
  const Context at = context(warp, in);
  WarpProducts &own = products_[std::size_t(warp.index())];
  if (warp.active() == machine::kAllLanes)
    own.groups.push_back(own.issued);
  carry_out(at, warp.active());
}

/// The four warps' operands are read together, so waiting for one warp's waits for all.
void BlockChecker::product_wait(Warp &warp, const Instruction &in) {
  const Context at = context(warp, in);
  machine::Warpgroup *const group = block_.warpgroup(warp.index());
  const auto pending = std::size_t(in.imm);
  if (warp.active() == machine::kAllLanes && group && group->wait(warp, pending)) {
    WarpProducts &own = products_[std::size_t(warp.index())];
    std::uint64_t complete = 0;
    for (; own.groups.size() > pending; own.groups.pop_front())
      complete = own.groups.front();
    for (; !own.reads.empty() && own.reads.front().first < complete; own.reads.pop_front())
      own.reads.front().second->waits.push_back(wait_of(warp, machine::kAllLanes));
  }
  carry_out(at, warp.active());
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
  for_lanes(warp.active(), [&](int lane) {
    ThreadStores &stores = stores_[at.thread(lane)];
    for (; stores.groups.size() > std::size_t(in.imm); stores.groups.pop_front())
      for (const SharedRead &read : stores.groups.front())
        read->waits.push_back(wait_of(warp, 1u << lane));
  });
  carry_out(at, warp.active());
}

/// At the end of the block its shared memory may be reused: nothing may still be on its way from or to it.
void BlockChecker::check_end() {
  for (auto &[thread, stores] : stores_) {
    stores.groups.push_back(std::move(stores.open));
    for (const std::vector<SharedRead> &group : stores.groups)
      for (const SharedRead &read : group)
        report_end(Kind::async_read, read->reader,
                   "the block exits while this store may still read its shared memory");
  }
  for (const auto &[mbarrier, copies] : bulk_copies_)
    for (const CopyInFlight &copy : copies)
      report_end(
          Kind::async_copy, copy.write,
          "the block exits while this copy is still on its way to its shared memory: nobody has waited "
          "for that phase of the mbarrier");
  if (is_used_by_cluster_)
    check_use_by_cluster();
}

void BlockChecker::report_end(Kind kind, const Access &access, const char *message) {
  launch_.findings().add({kind, &launch_.code(), access.instruction, kNoInstruction}, 1, [&] {
    Finding finding;
    finding.kind = kind;
    finding.kernel = launch_.kernel();
    finding.message = message;
    finding.who = launch_.party(launch_place(access.block), access.thread / 32, 1u << access.thread % 32,
                                access.instruction);
    finding.space = "shared";
    return finding;
  });
}

} // namespace ladder::sanitizer
