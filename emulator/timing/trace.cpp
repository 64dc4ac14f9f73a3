#include "timing/trace.h"

#include "instructions/addressing.h"
#include "instructions/bulk_copy.h"
#include "instructions/mbarrier.h"
#include "machine/block.h"

#include <bit>

namespace ladder::timing {

namespace {

using instructions::for_lanes;
using machine::Instruction;
using machine::Warp;

/// The address of an mbarrier operand in each lane.
void mbarrier_addresses(Warp &warp, const Instruction &in, std::uint64_t (&addresses)[32]) {
  instructions::lane_addresses(warp, instructions::address_base(in.flags), in.op[0], in.imm, addresses);
}

} // namespace

Recorder::Recorder(const machine::LaunchContext &launch, const Facts &facts, std::uint64_t blocks)
    : facts_(facts), blocks_(blocks), states_(blocks) {
  const std::size_t warps = (launch.block.count() + 31) / 32;
  for (std::size_t block = 0; block < blocks; ++block) {
    blocks_[block].warps.resize(warps);
    states_[block].resize(warps);
  }
}

void Recorder::before(Warp &warp, std::uint32_t lanes) {
  finish();
  const std::uint64_t block = warp.block().linear_index();
  if (block >= blocks_.size())
    return;
  const std::uint32_t pc = warp.pc();
  State &state = states_[block][std::size_t(warp.index())];
  WarpTrace &trace = blocks_[block].warps[std::size_t(warp.index())];
  if (state.polled != ~0u && state.polled != pc)
    return; // the way back to the wait
  const bool is_again = state.last == pc && state.polled == ~0u && facts_.is_recorded(pc);
  state.polled = ~0u;
  state.last = pc;
  if (is_again)
    return; // it has waited
  if (trace.runs.size() + trace.costs.size() >= kMostRecorded) {
    is_cut_ = true;
    return;
  }
  if (!trace.runs.empty() && pc == trace.runs.back().last + 1 && !facts_[pc].leads)
    trace.runs.back().last = pc;
  else
    trace.runs.push_back({pc, pc, std::uint32_t(trace.costs.size())});
  if (!facts_.is_recorded(pc))
    return;
  open_ = {&warp, &trace, &state, pc, lanes, 0, 0, {}};
  if (lanes) {
    count(warp, pc, open_.wavefronts, open_.sectors);
    open_.cost = cost_before(warp, pc, lanes);
  }
}

void Recorder::finish() {
  if (!open_.trace)
    return;
  Open open = std::exchange(open_, {});
  const Kind kind = facts_[open.pc].kind;
  Warp &warp = *open.warp;
  if (open.lanes && (kind == Kind::memory || kind == Kind::copy)) {
    std::uint64_t wavefronts, sectors;
    count(warp, open.pc, wavefronts, sectors);
    open.cost.wavefronts = std::uint32_t(wavefronts - open.wavefronts);
    open.cost.sectors = std::uint32_t(sectors - open.sectors);
  }
  if (open.lanes && kind == Kind::mbarrier_wait) {
    const Instruction &in = warp.block().code().instructions[open.pc];
    if ((warp.predicate(in.op[1]) & open.lanes) != open.lanes) {
      open.state->polled = open.pc;
      Run &run = open.trace->runs.back();
      if (run.first == open.pc)
        open.trace->runs.pop_back();
      else
        --run.last;
      return;
    }
  }
  open.trace->costs.push_back(open.cost);
}

void Recorder::count(Warp &warp, std::uint32_t pc, std::uint64_t &wavefronts, std::uint64_t &sectors) const {
  machine::Block &block = warp.block();
  const machine::InstructionCounters &counters = block.counters().access[pc];
  wavefronts = sectors = 0;
  for (const machine::AccessCounters &access : counters.access) {
    wavefronts += access.wavefronts;
    sectors += access.sectors;
  }
  const machine::Instruction &in = block.code().instructions[pc];
  if (block.code().memory_sites == 0)
    return;
  const machine::AccessPattern &pattern = block.pattern(in);
  if (pattern.kind != machine::AccessKind::none && pattern.instruction == pc) {
    wavefronts += pattern.open_wavefronts();
    sectors += pattern.open_sectors();
  }
}

Cost Recorder::cost_before(Warp &warp, std::uint32_t pc, std::uint32_t lanes) const {
  const Instruction &in = warp.block().code().instructions[pc];
  const int lane = std::countr_zero(lanes);
  Cost cost{.takes_part = true};
  std::uint64_t addresses[32];
  switch (facts_[pc].kind) {
  case Kind::mbarrier_init:
    mbarrier_addresses(warp, in, addresses);
    cost.wavefronts = std::uint32_t(addresses[lane]);
    cost.sectors = warp.lanes<std::uint32_t>(in.op[2])[lane];
    break;
  case Kind::mbarrier_arrive: {
    mbarrier_addresses(warp, in, addresses);
    const program::Instruction &source = warp.source(in);
    const bool expects = source.is(program::Trait::expects_bytes),
               arrives = source.is(program::Trait::arrives);
    cost.wavefronts = std::uint32_t(addresses[lane]);
    for_lanes(lanes, [&](int other) {
      if (addresses[other] != addresses[lane])
        return;
      const std::uint32_t value = warp.lanes<std::uint32_t>(in.op[2])[other];
      cost.bytes += expects ? std::int32_t(value) : 0;
      cost.sectors += arrives ? (expects ? 1 : value) : 0;
    });
    break;
  }
  case Kind::copy_arrive:
    mbarrier_addresses(warp, in, addresses);
    cost.wavefronts = std::uint32_t(addresses[lane]);
    cost.sectors = warp.source(in).has("noinc") ? std::uint32_t(std::popcount(lanes)) : 0;
    break;
  case Kind::mbarrier_wait:
    mbarrier_addresses(warp, in, addresses);
    cost.wavefronts = std::uint32_t(addresses[lane]);
    cost.sectors = in.flags & instructions::kWaitsByParity
                       ? warp.lanes<std::uint32_t>(in.op[2])[lane] & 1
                       : instructions::Mbarrier::unpack(warp.lanes<std::uint64_t>(in.op[2])[lane]).phase;
    break;
  case Kind::bulk_copy:
    for_lanes(lanes, [&](int other) {
      const instructions::BulkCopy copy = instructions::bulk_copy_of(warp, in, other);
      cost.wavefronts = std::uint32_t(copy.mbarrier);
      cost.bytes += std::int32_t(copy.bytes);
      cost.is_store = copy.kind == instructions::BulkKind::store;
      cost.takes_part = copy.kind != instructions::BulkKind::prefetch;
    });
    break;
  case Kind::block_barrier:
    cost.wavefronts = warp.lanes<std::uint32_t>(in.op[0])[lane];
    cost.sectors = warp.lanes<std::uint32_t>(in.op[1])[lane];
    break;
  default:
    break;
  }
  return cost;
}

} // namespace ladder::timing
