// Resolves the addresses of an instruction's lanes and finds those that would leave memory.
#include "sanitizer/block_checker.h"

#include "machine/address_space.h"
#include "machine/cluster.h"

#include <algorithm>
#include <bit>

namespace ladder::sanitizer {

using instructions::for_lanes;
using instructions::Space;

BlockChecker::Reach BlockChecker::reach(const Context &at, std::uint32_t lanes, Space space, unsigned bytes,
                                        bool writes, const std::uint64_t (&addresses)[32]) {
  Reach reach;
  std::copy_n(addresses, 32, reach.address);
  for_lanes(lanes, [&](int lane) { place_lane(at, reach, lane, space, bytes, bytes, writes); });
  return reach;
}

/// Fast path: the whole warp accesses one contiguous range and nothing is wrong. Returns false if place_lane
/// must handle the lanes one by one.
bool BlockChecker::reach_together(const Context &at, unsigned bytes, bool writes, Reach &reach) {
  const Space space = instructions::address_space(at.in.flags);
  std::uint64_t begin = block_.shared_begin(), end = block_.shared_end();
  if (space == Space::global || space == Space::generic) {
    const machine::MemoryRange *const range = at.warp.remembered_range(reach.address[0], bytes, writes);
    if (!range || launch_.heap().is_used())
      return false;
    begin = range->begin;
    end = range->end;
  } else if (space != Space::shared) {
    return false;
  } else if (at.site.object_end) {
    end = begin + at.site.object_end;
    begin += at.site.object_begin;
  }
  if (end - begin < bytes)
    return false;
  // The sign bit of `outside` is set if an address is below begin or above the last valid one.
  std::uint64_t outside = 0, low = 0;
  for (const std::uint64_t address : reach.address) {
    outside |= (address - begin) | (end - bytes - address);
    low |= address;
  }
  if (outside >> 63 || low & (bytes - 1))
    return false;
  (space == Space::shared ? reach.shared : reach.global) = machine::kAllLanes;
  return true;
}

BlockChecker::Reach BlockChecker::reach_operand(const Context &at, std::uint32_t lanes, unsigned bytes,
                                                bool writes) {
  Reach together;
  instructions::lane_addresses(at.warp, instructions::address_base(at.in.flags), at.in.op[0], at.in.imm,
                               together.address);
  if (lanes == machine::kAllLanes && reach_together(at, bytes, writes, together))
    return together;
  return reach(at, lanes, instructions::address_space(at.in.flags), bytes, writes, together.address);
}

/// Only the used bytes of a load must be in memory; its address is that of the full load.
BlockChecker::Reach BlockChecker::reach_load(const Context &at) {
  const auto first = unsigned(std::countr_zero(at.site.used));
  const unsigned bytes = unsigned(std::bit_width(at.site.used)) - first;
  Reach reach;
  instructions::lane_addresses(at.warp, instructions::address_base(at.in.flags), at.in.op[0], at.in.imm,
                               reach.address);
  if (bytes == at.site.bytes && at.warp.active() == machine::kAllLanes &&
      reach_together(at, bytes, false, reach))
    return reach;
  for_lanes(at.warp.active(), [&](int lane) {
    const Space space = instructions::address_space(at.in.flags);
    if (reach.address[lane] % at.site.bytes != 0)
      return place_lane(at, reach, lane, space, at.site.bytes, at.site.bytes, false); // reports it
    reach.address[lane] += first;
    place_lane(at, reach, lane, space, bytes, 1, false);
    reach.address[lane] -= first;
  });
  return reach;
}

void BlockChecker::place_lane(const Context &at, Reach &reach, int lane, Space space, unsigned bytes,
                              unsigned alignment, bool writes) {
  const std::uint64_t address = reach.address[lane];
  const std::uint64_t window = address & machine::kWindowMask;
  if (address % alignment != 0)
    return note(Kind::misaligned, lane, address,
                space == Space::shared || window == machine::kSharedWindow ? Where::shared
                : space == Space::local || window == machine::kLocalWindow ? Where::local
                                                                           : Where::global);
  if (space == Space::shared)
    place_shared(at, reach, lane, address, bytes);
  else if (space == Space::local)
    place_local(at, reach, lane, address, bytes);
  else if (space == Space::global || window == 0)
    place_global(at, reach, lane, address, bytes, writes);
  else if (window == machine::kSharedWindow)
    place_shared(at, reach, lane, address - window, bytes);
  else if (window == machine::kLocalWindow) {
    const std::uint64_t tag = address & ~machine::kWindowMask & ~machine::kLocalOffsetMask;
    if (tag && tag != tag_of(at, lane))
      note(Kind::out_of_bounds, lane, address, Where::local);
    place_local(at, reach, lane, address & machine::kLocalOffsetMask, bytes);
  } else
    reach.elsewhere |= 1u << lane;
}

void BlockChecker::place_shared(const Context &at, Reach &reach, int lane, std::uint64_t address,
                                unsigned bytes) {
  reach.address[lane] = address;
  if (address >> machine::kClusterRankShift != block_.cluster_rank() && address >> 32 == 0) {
    reach.elsewhere |= 1u << lane; // another block of the cluster: the machine checks that it exists
    return;
  }
  if (address < block_.shared_first() || address + bytes > block_.shared_end() || address + bytes < address)
    return note(Kind::out_of_bounds, lane, address, Where::shared);
  const std::uint64_t begin = block_.shared_begin() + at.site.object_begin,
                      end = block_.shared_begin() + at.site.object_end;
  if (at.site.object_end && (address < begin || address + bytes > end))
    note(Kind::out_of_bounds, lane, address,
         Where::shared); // the lane continues, as on a GPU
  reach.shared |= 1u << lane;
}

void BlockChecker::place_global(const Context &at, Reach &reach, int lane, std::uint64_t address,
                                unsigned bytes, bool writes) {
  if (!at.warp.remembered_range(address, bytes, writes)) {
    const machine::MemoryRange *const range = launch_.memory().find(address, bytes);
    if (!range) {
      const auto stray = launch_.explain(address);
      return note(stray ? stray->kind : Kind::out_of_bounds, lane, address, Where::global);
    }
    if (writes && !range->writable)
      return note(Kind::read_only, lane, address, Where::global);
  }
  if (const auto fault = launch_.heap().check(address, bytes))
    note(fault->kind, lane, address, Where::global);
  reach.global |= 1u << lane;
}

void BlockChecker::place_local(const Context &at, Reach &reach, int lane, std::uint64_t address,
                               unsigned bytes) {
  reach.address[lane] = address;
  if (address + bytes > at.warp.local_top() || address + bytes < address)
    return note(Kind::out_of_bounds, lane, address, Where::local);
  reach.local |= 1u << lane;
}

} // namespace ladder::sanitizer
