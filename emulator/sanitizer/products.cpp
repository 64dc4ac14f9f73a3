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
  carry_out(at, warp.active());
}

/// Reports an async proxy read of data that a thread wrote without a fence.
void BlockChecker::check_proxy(const Context &at, int lane, std::uint32_t address) {
  const Access write = async_.unfenced(address, at.warp.index(), at.warp.live());
  if (write.epoch)
    note({Kind::proxy, lane, address, "shared", write, true, false});
}

/// The whole warp reads the operands, at any time up to the wait.
void BlockChecker::product(Warp &warp, const Instruction &in) {
  const Context at = context(warp, in);
  if (warp.active() != machine::kAllLanes || !block_.warpgroup(warp.index()))
    return carry_out(at, warp.active()); // which waits for the others, or rejects it
  const Deed read = deed(at, 1, Act::async_read, "shared");
  std::vector<std::uint32_t> chunks;
  bool is_swizzle_noted = false;
  for (const instructions::OperandChunk &chunk : instructions::operand_chunks(warp, in)) {
    if (chunk.address < block_.shared_first() || chunk.address + kChunk > block_.shared_end())
      continue; // rejected when it executes
    touch_shared(read, 0, chunk.address, kChunk);
    check_proxy(at, 0, chunk.address);
    if (!is_swizzle_noted && async_.has_other_swizzle(chunk.address, chunk.swizzle)) {
      note(Kind::swizzle, 0, chunk.address, "shared");
      is_swizzle_noted = true;
    }
    chunks.push_back(chunk.address);
  }
  report(at, kChunk);
  WarpProducts &own = products_[std::size_t(warp.index())];
  own.reads.emplace_back(own.issued++, async_.begin_read(std::move(chunks), access(at, 0, Act::async_read)));
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
    const int first = warp.index() / machine::kWarpsOfGroup * machine::kWarpsOfGroup;
    for (int i = first; i < first + machine::kWarpsOfGroup; ++i) {
      auto &reads = products_[std::size_t(i)].reads;
      for (; !reads.empty() && reads.front().first < complete; reads.pop_front())
        async_.end_read(reads.front().second);
    }
  }
  carry_out(at, warp.active());
}

// --- boxes and spans in flight from shared memory

void BlockChecker::begin_store(const Context &at, int lane, std::uint64_t address, unsigned bytes) {
  std::vector<std::uint32_t> chunks;
  for (std::uint64_t chunk = address; chunk < address + bytes; chunk += kChunk) {
    check_proxy(at, lane, std::uint32_t(chunk));
    chunks.push_back(std::uint32_t(chunk));
  }
  touch_shared(deed(at, 1u << lane, Act::async_read, "shared"), lane, address, bytes);
  stores_[at.thread(lane)].open.push_back(
      async_.begin_read(std::move(chunks), access(at, lane, Act::async_read)));
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
      for (const std::uint64_t read : stores.groups.front())
        async_.end_read(read);
  });
  carry_out(at, warp.active());
}

/// At the end of the block its shared memory may be reused, even if something still reads it.
void BlockChecker::check_end() {
  for (const Access &reader : async_.going_on()) {
    const program::Instruction &source = *launch_.code().sources[reader.instruction];
    if (source.row->effect != program::Effect::bulk_copy)
      continue; // a product's results are lost anyway
    launch_.findings().add({Kind::async_read, &launch_.code(), reader.instruction, kNoInstruction}, 1, [&] {
      Finding finding;
      finding.kind = Kind::async_read;
      finding.kernel = launch_.kernel();
      finding.message = "the block exits while this store may still read its shared memory";
      const machine::Dim3 block = block_.index();
      finding.who = launch_.party({block.x, block.y, block.z}, reader.thread / 32, 1u << reader.thread % 32,
                                  reader.instruction);
      finding.space = "shared";
      return finding;
    });
  }
}

} // namespace ladder::sanitizer
