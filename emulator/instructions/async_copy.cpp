// cp.async and mbarrier: "Data Movement and Conversion Instructions: Asynchronous copy" and "mbarrier" of the
// PTX manual.
#include "instructions/async_copy.h"

#include "instructions/addressing.h"
#include "instructions/bulk_copy.h"
#include "instructions/mbarrier.h"
#include "instructions/tcgen05.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

namespace ladder::instructions {

using machine::AccessCounters;
using machine::AccessKind;
using machine::FaultError;
using machine::FaultKind;
using machine::Instruction;
using machine::kAllLanes;
using machine::PendingCopy;
using machine::SharedCost;
using machine::Warp;
using program::Operand;
using ptx::Type;

namespace {

// --- cp.async

using namespace async_copy;

/// Sectors that 16-byte copies look up. Each pass of 8 lanes writes 32-byte pieces of shared memory and looks
/// up, once per piece, every 128-byte line the piece comes from. So rows that padding shifts by 16 bytes
/// against their sectors cost an extra look-up.
unsigned copied_sectors(const LaneAccess &from, const LaneAccess &to, std::uint32_t lanes) {
  constexpr int kPass = 8, kLineShift = 7, kPieceShift = 5;
  constexpr int kPieceBits = 16; // unused bits of a host address
  unsigned pieces = 0;
  for (int begin = 0; begin < 32; begin += kPass) {
    std::uint64_t seen[kPass];
    int count = 0;
    for (int lane = begin; lane < begin + kPass; ++lane) {
      if (!(lanes >> lane & 1))
        continue;
      const std::uint64_t piece =
          (from.host[lane] >> kLineShift) << kPieceBits | to.shared[std::size_t(lane)] >> kPieceShift;
      int known = count; // neighbours mostly share a piece, so check the last one first
      while (known > 0 && seen[known - 1] != piece)
        --known;
      if (known == 0)
        seen[count++] = piece;
    }
    pieces += unsigned(count);
  }
  return std::max(pieces, global_sectors(from.host, lanes, 16));
}

/// Cost of 4- and 8-byte copies, as an H200 counts it. Each 128-byte line of global memory that lanes copy
/// from (32 lanes of 4 bytes, 16 of 8) is written separately, in as many wavefronts as lanes write to its
/// busiest bank; a pass takes four lines.
SharedCost small_copy_cost(const LaneAccess &from, const LaneAccess &to, std::uint32_t lanes,
                           unsigned bytes) {
  const int group = bytes == 4 ? 32 : 16;
  SharedCost cost;
  for (int begin = 0; begin < 32; begin += group) {
    std::uint32_t left = lanes & (group == 32 ? kAllLanes : 0xffffu << begin);
    std::uint32_t lines = 0;
    while (left) {
      const std::uint64_t line = from.host[std::countr_zero(left)] / 128;
      std::uint32_t in_bank[32] = {}, most = 0;
      for (std::uint32_t rest = left; rest; rest &= rest - 1) {
        const auto lane = std::size_t(std::countr_zero(rest));
        if (from.host[lane] / 128 != line)
          continue;
        left &= ~(1u << lane);
        for (unsigned word = 0; word < bytes / 4; ++word)
          most = std::max(most, ++in_bank[(to.shared[lane] / 4 + word) % 32]);
      }
      cost.wavefronts += most;
      ++lines;
    }
    cost.passes += (lines + 3) / 4;
  }
  cost.conflicts = cost.wavefronts - cost.passes;
  return cost;
}

void copy_async(Warp &warp, const Instruction &in) {
  const std::uint32_t active = warp.active();
  const unsigned bytes = in.flags >> kSizeShift & 31;
  LaneAccess to;
  resolve(warp, address_space(in.flags), address_base(in.flags), in.op[0], in.imm, active, bytes, bytes,
          Direction::write, to);

  // Lanes read all, part or none of their source and write zeros for the rest.
  std::uint32_t whole = active, part = 0;
  if (in.flags & kHasIgnore)
    whole &= ~(warp.predicate(in.op[2]) ^ (in.flags & kIgnoreNegated ? ~0u : 0u));
  if (in.flags & kHasSourceSize) {
    const std::uint32_t *const sizes = warp.lanes<std::uint32_t>(in.op[2]);
    for_lanes(active, [&](int lane) {
      if (sizes[lane] > bytes)
        throw FaultError(FaultKind::bad_operand,
                         "cp.async has a source size of " + std::to_string(sizes[lane]) +
                             " bytes and copies " + std::to_string(bytes),
                         lane);
      if (sizes[lane] < bytes) {
        whole &= ~(1u << lane);
        part |= sizes[lane] ? 1u << lane : 0u;
      }
    });
  }

  const std::uint32_t *const more = warp.more(in);
  const auto offset = std::int64_t(more[0] | std::uint64_t(more[1]) << 32);
  const auto base = Binder::Address::Base(in.flags >> kSourceBaseShift & 7);
  LaneAccess from;
  if (whole)
    resolve(warp, in.flags & kSourceGeneric ? Space::generic : Space::global, base, in.op[1], offset, whole,
            bytes, bytes, Direction::read, from);
  if (part) {
    std::uint64_t addresses[32];
    lane_addresses(warp, base, in.op[1], offset, addresses);
    for_lanes(part, [&](int lane) {
      const unsigned size = warp.lanes<std::uint32_t>(in.op[2])[lane];
      warp.global_range(addresses[lane], size, false, lane);
      from.host[lane] = addresses[lane];
    });
  }

  if (active)
    warp.block().note_copy(in, to.shared[std::size_t(std::countr_zero(active))]);
  AccessCounters &counters = warp.access(in, AccessKind::async_copy);
  ++counters.executed;
  if (bytes != 16 && whole != active) // zero-filled bytes come from no line
    ++counters.unmodelled;
  else if (bytes != 16)
    counters.conflicts += small_copy_cost(from, to, active, bytes).conflicts;
  if (whole | part)
    counters.sectors +=
        bytes == 16 ? copied_sectors(from, to, whole | part) : global_sectors(from.host, whole | part, bytes);

  std::vector<PendingCopy> &copies = warp.open_copies();
  const std::size_t begin = copies.size();
  copies.resize(begin + std::size_t(std::popcount(active)));
  PendingCopy *copy = copies.data() + begin;
  for_lanes(active, [&](int lane) {
    copy->shared_address = to.shared[std::size_t(lane)];
    copy->lane = std::uint8_t(lane);
    copy->bytes = std::uint8_t(bytes);
    ++copy;
  });
  copy = copies.data() + begin;
  if (bytes == 16 && whole == active) { // constant size, which is much faster
    for_lanes(active, [&](int lane) { std::memcpy((copy++)->data, from.at<const std::uint8_t>(lane), 16); });
    return;
  }
  for_lanes(active, [&](int lane) {
    if (whole >> lane & 1)
      std::memcpy(copy->data, from.at<const std::uint8_t>(lane), bytes);
    else if (part >> lane & 1)
      std::memcpy(copy->data, from.at<const std::uint8_t>(lane), warp.lanes<std::uint32_t>(in.op[2])[lane]);
    ++copy;
  });
}

void commit_group(Warp &warp, const Instruction &) { warp.commit_copies(); }
void wait_group(Warp &warp, const Instruction &in) { warp.wait_copies(std::size_t(in.imm), false); }
void wait_all(Warp &warp, const Instruction &) { warp.wait_copies(0, true); }

// --- mbarrier

Mbarrier load_mbarrier(const LaneAccess &access, int lane) {
  return instructions::load_mbarrier(access.at<const std::uint8_t>(lane), access.shared[std::size_t(lane)],
                                     lane);
}

void store_mbarrier(const LaneAccess &access, int lane, std::uint64_t bits) {
  std::memcpy(access.at<std::uint8_t>(lane), &bits, sizeof bits);
}

void arrive(Warp &warp, Mbarrier &barrier, std::uint32_t count, int lane) {
  if (count == 0 || count > barrier.pending)
    throw FaultError(FaultKind::barrier,
                     std::to_string(count) + " arrivals at an mbarrier that waits for only " +
                         std::to_string(barrier.pending),
                     lane);
  barrier.pending -= count;
  settle(warp.block(), barrier);
}

LaneAccess mbarrier_access(Warp &warp, const Instruction &in) {
  LaneAccess access;
  resolve(warp, address_space(in.flags), address_base(in.flags), in.op[0], in.imm, warp.active(), 8, 8,
          Direction::write, access);
  if (const std::uint32_t other = warp.active() & ~access.shared_lanes)
    throw FaultError(FaultKind::bad_operand, "an mbarrier outside shared memory", std::countr_zero(other));
  return access;
}

// Operands: op[0] the address, op[1] the destination, op[2] the count, state or parity.
constexpr std::uint32_t kDrop = 1u << kAddressFlagBits;
constexpr std::uint32_t kExpectsBytes = 1u << (kAddressFlagBits + 1); ///< op[2] is a tx-count
constexpr std::uint32_t kNoComplete = 1u << (kAddressFlagBits + 3);

void mbarrier_init(Warp &warp, const Instruction &in) {
  const LaneAccess access = mbarrier_access(warp, in);
  const std::uint32_t *const counts = warp.lanes<std::uint32_t>(in.op[2]);
  for_lanes(warp.active(), [&](int lane) {
    if (counts[lane] == 0 || counts[lane] > Mbarrier::kMaxCount)
      throw FaultError(
          FaultKind::bad_operand,
          "an mbarrier for " + std::to_string(counts[lane]) + " arrivals; 1 to 1048575 are allowed", lane);
    store_mbarrier(access, lane, Mbarrier{.expected = counts[lane], .pending = counts[lane]}.pack());
  });
}

void mbarrier_inval(Warp &warp, const Instruction &in) {
  const LaneAccess access = mbarrier_access(warp, in);
  for_lanes(warp.active(), [&](int lane) {
    load_mbarrier(access, lane);
    store_mbarrier(access, lane, 0);
  });
}

void mbarrier_arrive(Warp &warp, const Instruction &in) {
  const LaneAccess access = mbarrier_access(warp, in);
  const std::uint32_t *const values = warp.lanes<std::uint32_t>(in.op[2]);
  std::uint64_t *const states = warp.lanes<std::uint64_t>(in.op[1]);
  for_lanes(warp.active(), [&](int lane) {
    Mbarrier barrier = load_mbarrier(access, lane);
    if (barrier.pending == 0) { // bulk copies that have arrived may complete the phase
      const std::uint32_t address = access.shared[std::size_t(lane)];
      land_bulk_copies(warp.block().owner(address, lane), address);
      barrier = load_mbarrier(access, lane);
    }
    const std::uint64_t before = barrier.pack();
    std::uint32_t count = values[lane];
    if (in.flags & kExpectsBytes) {
      expect_bytes(barrier, values[lane], lane);
      count = 1;
    }
    if ((in.flags & kNoComplete) && count >= barrier.pending)
      throw FaultError(FaultKind::barrier, "an arrival with .noComplete completes the phase of its mbarrier",
                       lane);
    if (in.flags & kDrop)
      barrier.expected -= std::min(count, barrier.expected);
    arrive(warp, barrier, count, lane);
    store_mbarrier(access, lane, barrier.pack());
    states[lane] = before;
  });
}

/// expect_tx; with kDrop, complete_tx.
void mbarrier_bytes(Warp &warp, const Instruction &in) {
  const LaneAccess access = mbarrier_access(warp, in);
  const std::uint32_t *const values = warp.lanes<std::uint32_t>(in.op[2]);
  for_lanes(warp.active(), [&](int lane) {
    Mbarrier barrier = load_mbarrier(access, lane);
    const bool completes = in.flags & kDrop;
    expect_bytes(barrier, completes ? -std::int64_t(values[lane]) : std::int64_t(values[lane]), lane);
    if (completes)
      settle(warp.block(), barrier);
    store_mbarrier(access, lane, barrier.pack());
  });
}

/// The parity of the phase that a lane waits for: bit 0 of the operand, of which PTX allows only 0 and 1.
/// Triton 3.9 waits for 0xffffffff.
std::uint32_t phase_waited_for(Warp &warp, const Instruction &in, int lane) {
  return in.flags & kWaitsByParity ? warp.lanes<std::uint32_t>(in.op[2])[lane] & 1
                                   : Mbarrier::unpack(warp.lanes<std::uint64_t>(in.op[2])[lane]).phase;
}

void mbarrier_wait(Warp &warp, const Instruction &in) {
  const LaneAccess access = mbarrier_access(warp, in);
  const auto is_complete = [&](int lane) {
    return load_mbarrier(access, lane).phase != phase_waited_for(warp, in, lane);
  };
  // A wait for an earlier phase says nothing about the next, and lands nothing that is bound for it.
  std::uint32_t complete = 0;
  for_lanes(warp.active(), [&](int lane) {
    if (!is_complete(lane)) {
      land_bulk_copies(warp.block(), access.shared[std::size_t(lane)]);
      land_commits(warp.block(), access.shared[std::size_t(lane)]);
    }
    complete |= std::uint32_t(is_complete(lane)) << lane;
  });
  warp.set_predicate(in.op[1], complete);
  if (complete == warp.active())
    return;
  const std::uint32_t waiting = warp.active() & ~complete;
  const int lane = std::countr_zero(waiting);
  const std::uint32_t phase = load_mbarrier(access, lane).phase;
  warp.block().note_mbarrier_wait(
      warp, {.lanes = waiting,
             .instruction = std::uint32_t(&in - warp.block().code().instructions.data()),
             .address = access.shared[std::size_t(lane)],
             .parity = phase,
             .describe = describe_mbarrier});
  warp.note_idle_poll(true);
  warp.yield(); // another warp must make progress
}

void mbarrier_pending_count(Warp &warp, const Instruction &in) {
  std::uint32_t *const to = warp.lanes<std::uint32_t>(in.op[1]);
  const std::uint64_t *const states = warp.lanes<std::uint64_t>(in.op[2]);
  for_lanes(warp.active(), [&](int lane) { to[lane] = Mbarrier::unpack(states[lane]).pending; });
}

/// cp.async.mbarrier.arrive: arrives once the copies issued so far have landed, and lands them now. Without
/// .noinc the expected count does not include this arrival, so no count is left to decrement.
void copy_arrive(Warp &warp, const Instruction &in) {
  const LaneAccess access = mbarrier_access(warp, in);
  warp.wait_copies(0, true);
  for_lanes(warp.active(), [&](int lane) {
    Mbarrier barrier = load_mbarrier(access, lane);
    if (in.flags & kNoComplete)
      return;
    arrive(warp, barrier, 1, lane);
    store_mbarrier(access, lane, barrier.pack());
  });
}

// --- binding

void set_address(Binder &binder, const Operand &operand) {
  const Binder::Address place = binder.address(operand);
  binder.out.op[0] = place.slot;
  binder.out.imm = place.offset;
  binder.out.flags |= address_flags(place.base, space_of(binder));
}

bool bind_copy(Binder &binder) {
  const Operand &size = binder.operand(2);
  if (size.kind != Operand::Kind::integer || (size.bits != 4 && size.bits != 8 && size.bits != 16))
    binder.unsupported("a size other than 4, 8 or 16 bytes");
  if (binder.has("cg") && size.bits != 16)
    binder.unsupported(".cg copies 16 bytes");
  const Binder::Address to = binder.address(binder.operand(0)), from = binder.address(binder.operand(1));
  machine::Instruction &out = binder.out;
  out.op[0] = to.slot;
  out.imm = to.offset;
  out.op[1] = from.slot;
  binder.set_more({std::uint32_t(from.offset), std::uint32_t(std::uint64_t(from.offset) >> 32)});
  out.flags = address_flags(to.base, Space::shared) | std::uint32_t(from.base) << kSourceBaseShift |
              std::uint32_t(size.bits) << kSizeShift;
  if (!binder.has("global"))
    out.flags |= kSourceGeneric;
  // The fourth operand is a size, a predicate or, with only .L2::cache_hint, a policy.
  const bool has_policy = binder.has("L2::cache_hint");
  if (binder.operand_count() > (has_policy ? 4u : 3u)) {
    const Operand &fourth = binder.operand(3);
    if (fourth.kind == Operand::Kind::reg && fourth.reg.type == Type::pred) {
      const Binder::Predicate ignore = binder.predicate(fourth);
      out.op[2] = ignore.offset;
      out.flags |= kHasIgnore | (ignore.negated ? kIgnoreNegated : 0);
    } else {
      out.op[2] = binder.source_slot(fourth, Type::u32);
      out.flags |= kHasSourceSize;
    }
  }
  out.execute = copy_async;
  return true;
}

bool bind_cp(Binder &binder) {
  if (binder.has("bulk"))
    return bind_bulk_copy(binder);
  if (!binder.has("async"))
    binder.unsupported("a copy that is not asynchronous");
  if (binder.has("commit_group")) {
    binder.out.execute = commit_group;
  } else if (binder.has("wait_group")) {
    if (binder.operand(0).kind != Operand::Kind::integer)
      binder.unsupported("the number of groups is not a constant");
    binder.out.imm = std::int64_t(binder.operand(0).bits);
    binder.out.execute = wait_group;
  } else if (binder.has("wait_all")) {
    binder.out.execute = wait_all;
  } else if (binder.has("mbarrier")) {
    binder.out.flags = binder.has("noinc") ? 0 : kNoComplete;
    set_address(binder, binder.operand(0));
    binder.out.execute = copy_arrive;
  } else {
    return bind_copy(binder);
  }
  return true;
}

bool bind_mbarrier(Binder &binder) {
  machine::Instruction &out = binder.out;
  if (binder.has("init")) {
    out.op[2] = binder.source_slot(1, Type::u32);
    out.execute = mbarrier_init;
    set_address(binder, binder.operand(0));
  } else if (binder.has("inval")) {
    out.execute = mbarrier_inval;
    set_address(binder, binder.operand(0));
  } else if (binder.has("arrive") || binder.has("arrive_drop")) {
    out.flags = (binder.has("arrive_drop") ? kDrop : 0) | (binder.has("expect_tx") ? kExpectsBytes : 0) |
                (binder.has("noComplete") ? kNoComplete : 0);
    out.op[1] = binder.destination_slot(0, Type::b64);
    Operand one;
    one.kind = Operand::Kind::integer;
    one.bits = 1;
    out.op[2] = binder.source_slot(binder.operand_count() > 2 ? binder.operand(2) : one, Type::u32);
    out.execute = mbarrier_arrive;
    set_address(binder, binder.operand(1));
  } else if (binder.has("expect_tx") || binder.has("complete_tx")) {
    out.flags = binder.has("complete_tx") ? kDrop : 0;
    out.op[2] = binder.source_slot(1, Type::u32);
    out.execute = mbarrier_bytes;
    set_address(binder, binder.operand(0));
  } else if (binder.has("test_wait") || binder.has("try_wait")) {
    const bool parity = binder.has("parity");
    out.flags = parity ? kWaitsByParity : 0;
    out.op[1] = binder.destination_predicate(binder.operand(0));
    out.op[2] = binder.source_slot(2, parity ? Type::u32 : Type::b64);
    out.execute = mbarrier_wait;
    set_address(binder, binder.operand(1));
  } else if (binder.has("pending_count")) {
    out.op[1] = binder.destination_slot(0, Type::u32);
    out.op[2] = binder.source_slot(1, Type::b64);
    out.execute = mbarrier_pending_count;
  } else {
    return false;
  }
  return true;
}

constexpr TableEntry kTable[] = {{"cp", bind_cp}, {"mbarrier", bind_mbarrier}};

} // namespace

std::span<const TableEntry> async_copy_table() { return kTable; }

} // namespace ladder::instructions
