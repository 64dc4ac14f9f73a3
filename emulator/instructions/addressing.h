// From an address operand to host memory: the lanes' addresses, checked, and what the access costs.
#pragma once

#include "instructions/binder.h"
#include "instructions/lanes.h"
#include "machine/block.h"
#include "machine/warp.h"

#include <cstdint>

namespace ladder::instructions {

/// The state space that an instruction names; generic addresses tell theirs at run time.
enum class Space : std::uint32_t { generic, global, constant, shared, local, param };

/// An address operand as handlers find it: a slot and an offset, and in Instruction::flags the rest.
///   bits 0-2  Binder::Address::Base
///   bits 3-5  Space
/// Bits from 8 on are the handler's own.
inline constexpr std::uint32_t kAddressFlagBits = 8;

constexpr std::uint32_t address_flags(Binder::Address::Base base, Space space) {
  return std::uint32_t(base) | std::uint32_t(space) << 3;
}
constexpr Binder::Address::Base address_base(std::uint32_t flags) { return Binder::Address::Base(flags & 7); }
constexpr Space address_space(std::uint32_t flags) { return Space(flags >> 3 & 7); }

// ld, st, atom and red have the number of elements of a vector there, in four bits.
inline constexpr std::uint32_t kElementsShift = kAddressFlagBits;
inline unsigned element_count(const machine::Instruction &in) { return in.flags >> kElementsShift & 15; }

/// The state space among the modifiers; generic when none is named.
Space space_of(const Binder &binder);

/// Where the lanes of one access lie. Lanes that are not active hold what the first active one holds, so that
/// loops over all 32 need no mask for anything but the transfer itself.
struct LaneAccess {
  alignas(64) std::uint64_t host[32];        ///< host addresses
  alignas(64) machine::LaneAddresses shared; ///< shared addresses, of shared_lanes
  std::uint32_t shared_lanes = 0;            ///< lanes that hit shared memory
  std::uint32_t global_lanes = 0;            ///< lanes that hit global memory

  template <typename T> T *at(int lane) const {
    return reinterpret_cast<T *>(host[lane]); // NOLINT: the checked address of emulated memory
  }
};

enum class Direction { read, write };

/// The 64-bit addresses that [slot + offset] means in each lane.
void lane_addresses(machine::Warp &warp, Binder::Address::Base base, std::uint32_t slot, std::int64_t offset,
                    std::uint64_t (&addresses)[32]);

/// Checks `bytes` at the address of each of `lanes` (alignment, bounds, permission) and finds their place in
/// the host's memory. Throws FaultError with the lane and the address. `alignment` is a power of two.
void resolve(machine::Warp &warp, Space space, Binder::Address::Base base, std::uint32_t slot,
             std::int64_t offset, std::uint32_t lanes, unsigned bytes, unsigned alignment,
             Direction direction, LaneAccess &access);

/// The same for one address of one lane; no alignment is asked for.
std::uint8_t *resolve_lane(machine::Warp &warp, Space space, int lane, std::uint64_t address,
                           std::uint64_t bytes, Direction direction);

/// Distinct 32-byte sectors that the lanes of one request touch. Requests of 8 and more bytes a lane are
/// served in passes of 16, 8 or 4 lanes, each of which asks for its sectors anew.
unsigned global_sectors(const std::uint64_t (&addresses)[32], std::uint32_t lanes, unsigned bytes);

/// Adds one access to the counters of an instruction.
void count_shared(machine::Warp &warp, const machine::Instruction &instruction, machine::AccessKind kind,
                  machine::SharedCostCache::Op op, const machine::LaneAddresses &addresses,
                  std::uint32_t lanes, unsigned width);
/// The same for an access of the first `lanes` lanes that the instruction's pattern did not fit.
void remember_shared(machine::Warp &warp, const machine::Instruction &instruction, machine::AccessKind kind,
                     machine::SharedCostCache::Op op, const machine::LaneAddresses &addresses, int lanes,
                     unsigned width, unsigned bytes);
void count_unmodelled(machine::Warp &warp, const machine::Instruction &instruction, machine::AccessKind kind);
void count_global(machine::Warp &warp, const machine::Instruction &instruction, machine::AccessKind kind,
                  const LaneAccess &access, unsigned bytes);

} // namespace ladder::instructions
