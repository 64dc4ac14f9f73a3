#include "instructions/addressing.h"

#include "machine/address_space.h"

#include <string>

namespace ladder::instructions {

using machine::AccessCounters;
using machine::AccessKind;
using machine::FaultError;
using machine::FaultKind;
using machine::Instruction;
using machine::kAllLanes;
using machine::Warp;

namespace {

using Base = Binder::Address::Base;

/// True if [address, address + bytes) of some lane leaves [begin, end). One of the differences is then
/// negative, even after wrapping, provided begin and end are below 2^62.
bool any_outside(const std::uint64_t (&addresses)[32], std::uint64_t begin, std::uint64_t end,
                 std::uint64_t bytes) {
  const std::uint64_t last = end - bytes;
  if (end - begin < bytes)
    return true;
  std::uint64_t outside = 0;
  for (int lane = 0; lane < 32; ++lane)
    outside |= (addresses[lane] - begin) | (last - addresses[lane]);
  return outside >> 63;
}

void check_alignment(const std::uint64_t (&addresses)[32], std::uint32_t lanes, unsigned bytes,
                     unsigned alignment) {
  std::uint64_t low = 0;
  for (int lane = 0; lane < 32; ++lane)
    low |= addresses[lane];
  if ((low & (alignment - 1)) == 0) [[likely]]
    return;
  for (; lanes; lanes &= lanes - 1) {
    const int lane = std::countr_zero(lanes);
    if (addresses[lane] & (alignment - 1))
      throw FaultError(FaultKind::misaligned,
                       "an access of " + std::to_string(bytes) +
                           " bytes at an address that is not a multiple of " + std::to_string(alignment),
                       lane)
          .at(addresses[lane]);
  }
}

/// Copies the first active lane's value to the inactive lanes.
template <typename T> void fill_inactive(T *values, std::uint32_t lanes) {
  if (lanes == kAllLanes)
    return;
  const T first = values[std::countr_zero(lanes)];
  for (int lane = 0; lane < 32; ++lane)
    values[lane] = lanes >> lane & 1 ? values[lane] : first;
}

// Each of these translates access.host, valid in `lanes`, to host addresses.

void resolve_global(Warp &warp, std::uint32_t lanes, unsigned bytes, Direction direction,
                    LaneAccess &access) {
  const bool write = direction == Direction::write;
  const int first = std::countr_zero(lanes);
  const machine::MemoryRange &range = warp.global_range(access.host[first], bytes, write, first);
  if (!any_outside(access.host, range.begin, range.end, bytes)) [[likely]]
    return;
  for (std::uint32_t rest = lanes; rest; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    warp.global_range(access.host[lane], bytes, write, lane);
  }
}

void resolve_shared(Warp &warp, std::uint32_t lanes, unsigned bytes, LaneAccess &access) {
  machine::Block &block = warp.block();
  if (any_outside(access.host, block.shared_first(), block.shared_end(), bytes)) [[unlikely]] {
    // Some lanes access another block of the cluster, or nothing valid.
    for (std::uint32_t rest = lanes; rest; rest &= rest - 1) {
      const int lane = std::countr_zero(rest);
      std::uint8_t *const place = block.shared(access.host[lane], bytes, lane);
      access.shared[std::size_t(lane)] = std::uint32_t(access.host[lane]);
      access.host[lane] = std::uint64_t(reinterpret_cast<std::uintptr_t>(place));
    }
    fill_inactive(access.host, lanes);
    fill_inactive(access.shared.data(), lanes);
    return;
  }
  const auto base = std::uint64_t(reinterpret_cast<std::uintptr_t>(block.shared_base()));
  for (int lane = 0; lane < 32; ++lane) {
    access.shared[lane] = std::uint32_t(access.host[lane]);
    access.host[lane] += base;
  }
}

void resolve_local(Warp &warp, std::uint32_t lanes, unsigned bytes, LaneAccess &access) {
  const int first = std::countr_zero(lanes);
  const std::uint64_t address = access.host[first];
  std::uint64_t differ = 0;
  for (int lane = 0; lane < 32; ++lane)
    differ |= access.host[lane] ^ address;
  const auto place = [&](int lane, std::uint64_t at) {
    return std::uint64_t(reinterpret_cast<std::uintptr_t>(warp.local(lane, at, bytes)));
  };
  if (differ == 0) {
    const std::uint64_t host = place(0, address), stride = warp.local_stride();
    for (int lane = 0; lane < 32; ++lane)
      access.host[lane] = host + stride * std::uint64_t(lane);
  } else {
    for_lanes(lanes, [&](int lane) { access.host[lane] = place(lane, access.host[lane]); });
  }
}

[[noreturn]] void outside_params(int lane, std::uint64_t address, unsigned bytes, std::uint64_t size) {
  throw FaultError(FaultKind::out_of_bounds,
                   "an access of " + std::to_string(bytes) + " bytes outside the " + std::to_string(size) +
                       " bytes of parameters",
                   lane)
      .at(address);
}

/// The kernel's argument block: the same for all lanes, read-only.
void resolve_kernel_params(Warp &warp, std::uint32_t lanes, unsigned bytes, Direction direction,
                           LaneAccess &access) {
  const std::vector<std::uint8_t> &params = warp.block().launch().params;
  const auto base = std::uint64_t(reinterpret_cast<std::uintptr_t>(params.data()));
  for_lanes(lanes, [&](int lane) {
    const std::uint64_t address = access.host[lane];
    if (address > params.size() || bytes > params.size() - address)
      outside_params(lane, address, bytes, params.size());
    if (direction == Direction::write)
      throw FaultError(FaultKind::read_only, "a write to the kernel's parameters", lane).at(address);
    access.host[lane] = base + address;
  });
}

/// The parameter area of the current call.
void resolve_param_area(Warp &warp, std::uint32_t lanes, unsigned bytes, LaneAccess &access) {
  machine::Frame &frame = warp.frame();
  const std::uint64_t size = frame.layout->param_area_bytes;
  const auto base = std::uint64_t(reinterpret_cast<std::uintptr_t>(frame.params.data()));
  for_lanes(lanes, [&](int lane) {
    const std::uint64_t address = access.host[lane];
    if (address > size || bytes > size - address)
      outside_params(lane, address, bytes, size);
    access.host[lane] = base + std::uint64_t(lane) * size + address;
  });
}

void resolve_generic_lanes(Warp &warp, std::uint32_t lanes, unsigned bytes, Direction direction,
                           LaneAccess &access) {
  const std::uint64_t window = access.host[std::countr_zero(lanes)] & machine::kWindowMask;
  std::uint32_t here = lanes;
  std::uint64_t differ = 0;
  for (int lane = 0; lane < 32; ++lane)
    differ |= (access.host[lane] & machine::kWindowMask) ^ window;
  if (differ) {
    // Lanes in another window are resolved in a separate pass.
    for (int lane = 0; lane < 32; ++lane)
      if ((access.host[lane] & machine::kWindowMask) != window)
        here &= ~(1u << lane);
    LaneAccess others = access;
    fill_inactive(others.host, lanes & ~here);
    resolve_generic_lanes(warp, lanes & ~here, bytes, direction, others);
    fill_inactive(access.host, here);
    resolve_generic_lanes(warp, here, bytes, direction, access);
    for (int lane = 0; lane < 32; ++lane)
      if (!(here >> lane & 1))
        access.host[lane] = others.host[lane];
    if (others.shared_lanes) {
      access.shared = others.shared;
      access.shared_lanes = others.shared_lanes;
    }
    access.global_lanes |= others.global_lanes;
    return;
  }
  if (window != 0)
    for (std::uint64_t &address : access.host)
      address -= window;
  switch (window) {
  case 0:
    resolve_global(warp, lanes, bytes, direction, access);
    access.global_lanes = lanes;
    return;
  case machine::kSharedWindow:
    resolve_shared(warp, lanes, bytes, access);
    access.shared_lanes = lanes;
    return;
  case machine::kLocalWindow:
    for (std::uint64_t &address : access.host)
      address &= machine::kLocalOffsetMask;
    resolve_local(warp, lanes, bytes, access);
    return;
  case machine::kParamWindow:
    resolve_kernel_params(warp, lanes, bytes, direction, access);
    return;
  default: {
    const int lane = std::countr_zero(lanes);
    throw FaultError(FaultKind::out_of_bounds,
                     window == machine::kFunctionWindow ? "an access to a function's address"
                                                        : "an address outside all state spaces",
                     lane)
        .at(access.host[lane] + window);
  }
  }
}

} // namespace

Space space_of(const Binder &binder) {
  if (binder.has("global"))
    return Space::global;
  if (binder.has("shared") || binder.has("shared::cta") || binder.has("shared::cluster"))
    return Space::shared;
  if (binder.has("local"))
    return Space::local;
  if (binder.has("const"))
    return Space::constant;
  if (binder.has("param") || binder.has("param::entry") || binder.has("param::func"))
    return Space::param;
  return Space::generic;
}

void lane_addresses(Warp &warp, Base base, std::uint32_t slot, std::int64_t offset,
                    std::uint64_t (&addresses)[32]) {
  switch (base) {
  case Base::reg64: {
    const std::uint64_t *const registers = warp.lanes<std::uint64_t>(slot);
    for (int lane = 0; lane < 32; ++lane)
      addresses[lane] = registers[lane] + std::uint64_t(offset);
    return;
  }
  case Base::reg32: {
    const std::uint32_t *const registers = warp.lanes<std::uint32_t>(slot);
    for (int lane = 0; lane < 32; ++lane)
      addresses[lane] = registers[lane] + std::uint32_t(offset);
    return;
  }
  case Base::local_frame:
    offset += warp.frame().local_base;
    break;
  case Base::shared_variable:
    offset += warp.block().shared_base_address();
    break;
  case Base::absolute:
  case Base::param_area:
  case Base::entry_param:
    break;
  }
  for (std::uint64_t &address : addresses)
    address = std::uint64_t(offset);
}

void resolve(Warp &warp, Space space, Base base, std::uint32_t slot, std::int64_t offset, std::uint32_t lanes,
             unsigned bytes, unsigned alignment, Direction direction, LaneAccess &access) {
  lane_addresses(warp, base, slot, offset, access.host);
  fill_inactive(access.host, lanes);
  check_alignment(access.host, lanes, bytes, alignment);
  switch (space) {
  case Space::generic:
    resolve_generic_lanes(warp, lanes, bytes, direction, access);
    return;
  case Space::global:
    resolve_global(warp, lanes, bytes, direction, access);
    access.global_lanes = lanes;
    return;
  case Space::constant:
    resolve_global(warp, lanes, bytes, direction, access);
    return;
  case Space::shared:
    resolve_shared(warp, lanes, bytes, access);
    access.shared_lanes = lanes;
    return;
  case Space::local:
    resolve_local(warp, lanes, bytes, access);
    return;
  case Space::param:
    // A parameter address held in a register may be generic.
    if (base == Base::reg64)
      for (std::uint64_t &address : access.host)
        if ((address & machine::kWindowMask) == machine::kParamWindow)
          address -= machine::kParamWindow;
    if (base == Base::entry_param || (base != Base::param_area && !warp.frame().caller))
      resolve_kernel_params(warp, lanes, bytes, direction, access);
    else
      resolve_param_area(warp, lanes, bytes, access);
    return;
  }
}

std::uint8_t *resolve_lane(Warp &warp, Space space, int lane, std::uint64_t address, std::uint64_t bytes,
                           Direction direction) {
  switch (space) {
  case Space::global:
  case Space::constant:
    warp.global_range(address, bytes, direction == Direction::write, lane);
    return reinterpret_cast<std::uint8_t *>(address);
  case Space::shared:
    return warp.block().shared(address, bytes, lane);
  case Space::local:
    return warp.local(lane, address, bytes);
  case Space::param:
    break;
  case Space::generic:
    switch (address & machine::kWindowMask) {
    case 0:
      return resolve_lane(warp, Space::global, lane, address, bytes, direction);
    case machine::kSharedWindow:
      return resolve_lane(warp, Space::shared, lane, address - machine::kSharedWindow, bytes, direction);
    case machine::kLocalWindow:
      return resolve_lane(warp, Space::local, lane, address & machine::kLocalOffsetMask, bytes, direction);
    }
    break;
  }
  throw FaultError(FaultKind::out_of_bounds, "an address in a state space that is not allowed here", lane)
      .at(address);
}

unsigned global_sectors(const std::uint64_t (&addresses)[32], std::uint32_t lanes, unsigned bytes) {
  const unsigned pass_lanes = bytes <= 4 ? 32 : bytes == 8 ? 16 : bytes == 16 ? 8 : 4;
  unsigned sectors = 0;
  for (unsigned begin = 0; begin < 32; begin += pass_lanes) {
    const std::uint32_t all = pass_lanes == 32 ? kAllLanes : (1u << pass_lanes) - 1;
    std::uint32_t rest = lanes & (all << begin);
    if (rest == 0)
      continue;
    // Addresses mostly increase with the lane; for one that does not, search the sectors seen so far.
    std::uint64_t seen[32];
    unsigned count = 0;
    bool rising = true;
    for (; rest; rest &= rest - 1) {
      const std::uint64_t sector = addresses[std::countr_zero(rest)] / 32;
      if (count && sector == seen[count - 1])
        continue;
      if (count && sector < seen[count - 1])
        rising = false;
      if (!rising) {
        bool known = false;
        for (unsigned i = 0; i < count; ++i)
          known |= seen[i] == sector;
        if (known)
          continue;
      }
      seen[count++] = sector;
    }
    sectors += count;
  }
  return sectors;
}

void count_shared(Warp &warp, const Instruction &instruction, AccessKind kind,
                  machine::SharedCostCache::Op op, const machine::LaneAddresses &addresses,
                  std::uint32_t lanes, unsigned width) {
  const auto index = std::uint32_t(&instruction - warp.block().code().instructions.data());
  machine::Block &block = warp.block();
  const machine::SharedCost &cost = block.shared_costs().cost(index, op, addresses, lanes, width);
  // A repeated pattern costs the same, so it cannot be a new worst case.
  if (block.shared_costs().has_counted())
    block.counters().note(index, {op, width, lanes, addresses, cost, block.linear_index(), warp.index()});
  AccessCounters &counters = warp.access(instruction, kind);
  ++counters.executed;
  counters.wavefronts += cost.wavefronts;
  counters.passes += cost.passes;
  counters.conflicts += cost.conflicts;
  counters.ideal += cost.ideal;
}

void remember_shared(Warp &warp, const Instruction &instruction, AccessKind kind,
                     machine::SharedCostCache::Op op, const machine::LaneAddresses &addresses, int lanes,
                     unsigned width, unsigned bytes) {
  machine::Block &block = warp.block();
  const std::uint32_t active = lanes == 32 ? kAllLanes : (1u << lanes) - 1;
  const machine::SharedCost cost = machine::SharedCostCache::compute(op, addresses, active, width);
  machine::AccessPattern &pattern = block.renew_pattern(instruction, kind);
  block.counters().note(pattern.instruction,
                        {op, width, active, addresses, cost, block.linear_index(), warp.index()});
  pattern.remember(addresses.data(), lanes, bytes, cost);
}

void count_unmodelled(Warp &warp, const Instruction &instruction, AccessKind kind) {
  AccessCounters &counters = warp.access(instruction, kind);
  ++counters.executed;
  ++counters.unmodelled;
}

void count_global(Warp &warp, const Instruction &instruction, AccessKind kind, const LaneAccess &access,
                  unsigned bytes) {
  AccessCounters &counters = warp.access(instruction, kind);
  ++counters.executed;
  counters.sectors += global_sectors(access.host, access.global_lanes, bytes);
}

} // namespace ladder::instructions
