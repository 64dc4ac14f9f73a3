// Resolves address operands to host memory: per-lane addresses, checks, and the cost of the access.
#pragma once

#include "instructions/binder.h"
#include "instructions/lanes.h"
#include "machine/block.h"
#include "machine/warp.h"

#include <cstdint>

namespace ladder::instructions {

/// The state space that an instruction names; a generic address reveals its space at run time.
enum class Space : std::uint32_t { generic, global, constant, shared, local, param };

/// An address operand as handlers see it: a slot, an offset, and in Instruction::flags
///   bits 0-2  Binder::Address::Base
///   bits 3-5  Space
///   bits 8-   free for the handler's use
inline constexpr std::uint32_t kAddressFlagBits = 8;

constexpr std::uint32_t address_flags(Binder::Address::Base base, Space space) {
  return std::uint32_t(base) | std::uint32_t(space) << 3;
}
constexpr Binder::Address::Base address_base(std::uint32_t flags) { return Binder::Address::Base(flags & 7); }
constexpr Space address_space(std::uint32_t flags) { return Space(flags >> 3 & 7); }

// ld, st, atom and red keep the element count of a vector there, in four bits.
inline constexpr std::uint32_t kElementsShift = kAddressFlagBits;
inline unsigned element_count(const machine::Instruction &in) { return in.flags >> kElementsShift & 15; }

/// The state space among the modifiers; generic if there is none.
Space space_of(const Binder &binder);

/// The resolved addresses of one access. Inactive lanes hold the first active lane's values, so loops over
/// all 32 lanes need a mask only for the transfer itself.
struct LaneAccess {
  alignas(64) std::uint64_t host[32];        ///< host addresses
  alignas(64) machine::LaneAddresses shared; ///< shared addresses, valid for shared_lanes
  std::uint32_t shared_lanes = 0;            ///< lanes that hit shared memory
  std::uint32_t global_lanes = 0;            ///< lanes that hit global memory

  template <typename T> T *at(int lane) const {
    return reinterpret_cast<T *>(host[lane]); // NOLINT: the checked address of emulated memory
  }
};

enum class Direction { read, write };

/// Computes the 64-bit address of [slot + offset] in each lane.
void lane_addresses(machine::Warp &warp, Binder::Address::Base base, std::uint32_t slot, std::int64_t offset,
                    std::uint64_t (&addresses)[32]);

/// Checks `bytes` at each address of `lanes` (alignment, bounds, permission) and translates it to host
/// memory. Throws FaultError with lane and address. `alignment` is a power of two.
void resolve(machine::Warp &warp, Space space, Binder::Address::Base base, std::uint32_t slot,
             std::int64_t offset, std::uint32_t lanes, unsigned bytes, unsigned alignment,
             Direction direction, LaneAccess &access);

/// The same for one address of one lane; accepts any alignment.
std::uint8_t *resolve_lane(machine::Warp &warp, Space space, int lane, std::uint64_t address,
                           std::uint64_t bytes, Direction direction);

/// Number of distinct 32-byte sectors that one request touches. Requests of 8 or more bytes per lane are
/// served in passes of 16, 8 or 4 lanes, and each pass fetches its sectors again.
unsigned global_sectors(const std::uint64_t (&addresses)[32], std::uint32_t lanes, unsigned bytes);

/// Adds one access to an instruction's counters.
void count_shared(machine::Warp &warp, const machine::Instruction &instruction, machine::AccessKind kind,
                  machine::SharedCostCache::Op op, const machine::LaneAddresses &addresses,
                  std::uint32_t lanes, unsigned width);
/// The same for an access by the first `lanes` lanes that does not match the instruction's last pattern;
/// remembers the new pattern.
void remember_shared(machine::Warp &warp, const machine::Instruction &instruction, machine::AccessKind kind,
                     machine::SharedCostCache::Op op, const machine::LaneAddresses &addresses, int lanes,
                     unsigned width, unsigned bytes);
void count_unmodelled(machine::Warp &warp, const machine::Instruction &instruction, machine::AccessKind kind);
void count_global(machine::Warp &warp, const machine::Instruction &instruction, machine::AccessKind kind,
                  const LaneAccess &access, unsigned bytes);

} // namespace ladder::instructions
