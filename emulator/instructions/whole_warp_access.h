// Fast path of loads and stores: all 32 lanes active, addresses in registers, valid, and in one piece of
// memory. The loops have no branches, so that they vectorise. Everything else, faults included, falls back to
// `resolve`, with the same result. An access with the same pattern as the instruction's last one is faster
// still.
#pragma once

#include "instructions/addressing.h"

namespace ladder::instructions {

/// True if a shared memory access by the first `Lanes` lanes repeats the last pattern inside the block's own
/// memory. If so, counts it and sets `base`.
template <int Lanes>
[[gnu::always_inline]] inline bool repeats_shared(machine::Warp &warp, const machine::Instruction &in,
                                                  std::uint32_t &base) {
  if (address_base(in.flags) != Binder::Address::Base::reg32)
    return false;
  machine::Block &block = warp.block();
  machine::AccessPattern &pattern = block.pattern(in);
  if (!pattern.fits<Lanes>(warp.lanes<std::uint32_t>(in.op[0]), std::uint32_t(in.imm),
                           machine::AccessPattern::kBankPeriod, base) ||
      !pattern.lies_within(base, block.shared_begin(), block.shared_end()))
    return false;
  pattern.hit();
  return true;
}

/// The same for a full warp's access to global memory.
[[gnu::always_inline]] inline bool repeats_global(machine::Warp &warp, const machine::Instruction &in,
                                                  std::uint64_t &base) {
  if (address_base(in.flags) != Binder::Address::Base::reg64)
    return false;
  machine::AccessPattern &pattern = warp.block().pattern(in);
  if (!pattern.fits<32>(warp.lanes<std::uint64_t>(in.op[0]), std::uint64_t(in.imm),
                        machine::AccessPattern::kSectorPeriod, base) ||
      !pattern.range() || !pattern.lies_within(base, pattern.range()->begin, pattern.range()->end))
    return false;
  pattern.hit();
  return true;
}

/// Computes the shared addresses of a full warp; returns false if `resolve` must handle the access.
inline bool whole_warp_shared(machine::Warp &warp, const machine::Instruction &in, unsigned bytes,
                              machine::LaneAddresses &addresses) {
  const machine::Block &block = warp.block();
  const std::uint32_t begin = block.shared_begin(), end = block.shared_end();
  if (end - begin < bytes)
    return false;
  const std::uint32_t last = end - bytes;
  // The sign bit of `outside` is set if an address is below begin or above last.
  std::uint32_t outside = 0, low = 0;
  const auto note = [&](std::uint32_t address) {
    outside |= (address - begin) | (last - address);
    low |= address;
    return address;
  };
  switch (address_base(in.flags)) {
  case Binder::Address::Base::reg32: {
    const std::uint32_t *const registers = warp.lanes<std::uint32_t>(in.op[0]);
    const auto offset = std::uint32_t(in.imm);
    for (int lane = 0; lane < 32; ++lane)
      addresses[std::size_t(lane)] = note(registers[lane] + offset);
    break;
  }
  case Binder::Address::Base::reg64: {
    const std::uint64_t *const registers = warp.lanes<std::uint64_t>(in.op[0]);
    std::uint64_t high = 0;
    for (int lane = 0; lane < 32; ++lane) {
      const std::uint64_t address = registers[lane] + std::uint64_t(in.imm);
      high |= address;
      addresses[std::size_t(lane)] = note(std::uint32_t(address));
    }
    outside |= high >> 32 ? ~0u : 0u;
    break;
  }
  default:
    return false;
  }
  return !(outside >> 31) && !(low & (bytes - 1));
}

/// Computes the global addresses of a full warp (they are host addresses) and their sector numbers within
/// `range`; returns false if `resolve` must handle the access. Also correct for generic addresses: no window
/// overlaps memory.
inline bool whole_warp_global(machine::Warp &warp, const machine::Instruction &in, unsigned bytes, bool write,
                              std::uint64_t (&addresses)[32], std::uint32_t (&sectors)[32],
                              const machine::MemoryRange *&range) {
  if (address_base(in.flags) != Binder::Address::Base::reg64)
    return false;
  const std::uint64_t *const registers = warp.lanes<std::uint64_t>(in.op[0]);
  const auto offset = std::uint64_t(in.imm);
  range = warp.remembered_range(registers[0] + offset, bytes, write);
  constexpr std::uint64_t kMostBytes = std::uint64_t(1)
                                       << 35; // sector numbers are 32 bits and compared as signed
  if (!range || range->end - range->begin > kMostBytes)
    return false;
  const std::uint64_t begin = range->begin, last = range->end - bytes,
                      first_sector = begin & ~std::uint64_t(31);
  std::uint64_t outside = 0, low = 0;
  for (int lane = 0; lane < 32; ++lane) {
    const std::uint64_t address = registers[lane] + offset;
    addresses[lane] = address;
    outside |= (address - begin) | (last - address);
    low |= address;
    sectors[lane] = std::uint32_t((address - first_sector) >> 5);
  }
  return !(outside >> 63) && !(low & (bytes - 1));
}

/// Like global_sectors, for a full warp whose sectors mostly increase with the lane.
inline unsigned whole_warp_sectors(const std::uint64_t (&addresses)[32], const std::uint32_t (&sectors)[32],
                                   unsigned bytes) {
  const int pass_lanes = bytes <= 4 ? 32 : bytes == 8 ? 16 : bytes == 16 ? 8 : 4;
  std::int32_t changes = 0, falls = 0;
  for (int lane = 1; lane < 32; ++lane) {
    const auto here = std::int32_t(sectors[lane]), before = std::int32_t(sectors[lane - 1]);
    changes += here != before;
    falls |= here < before;
  }
  if (falls)
    return global_sectors(addresses, machine::kAllLanes, bytes);
  // Each pass starts over, even if it begins in the previous lane's sector.
  for (int lane = pass_lanes; lane < 32; lane += pass_lanes)
    changes += sectors[lane] == sectors[lane - 1];
  return unsigned(changes) + 1;
}

} // namespace ladder::instructions
