#include "instructions/load_store.h"

#include "instructions/addressing.h"
#include "instructions/machine_accesses.h"
#include "instructions/whole_warp_access.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <string>

namespace ladder::instructions {

using machine::AccessKind;
using machine::FaultError;
using machine::FaultKind;
using machine::Handler;
using machine::Instruction;
using machine::kAllLanes;
using machine::SharedCostCache;
using machine::Warp;
using ptx::Type;

namespace {

std::uint32_t element_slot(Warp &warp, const Instruction &in, unsigned element) {
  return element_count(in) <= 4 ? in.op[1 + element] : warp.more(in)[element];
}

/// Counts an access that the machine code splits differently: see divide_accesses.
void count_divided(Warp &warp, const Instruction &in, const machine::LaneAddresses &addresses,
                   std::uint32_t lanes, bool is_load) {
  const AccessKind kind = is_load ? AccessKind::shared_load : AccessKind::shared_store;
  if (in.flags & kNotCounted)
    return;
  if (in.flags & kUnknownWidth)
    return count_unmodelled(warp, in, kind);
  const unsigned bytes = in.flags & kCountedAs8 ? 8 : 16;
  machine::LaneAddresses wide = addresses;
  for (std::uint32_t &address : wide)
    address -= in.flags >> kBackShift & 15;
  // In a loop that ptxas unrolls, one wide access serves several iterations; count it at the first, where it
  // is aligned.
  if (wide[std::size_t(std::countr_zero(lanes))] % bytes == 0)
    count_shared(warp, in, kind, is_load ? SharedCostCache::Op::load : SharedCostCache::Op::store, wide,
                 lanes, bytes);
}

void count_shared_access(Warp &warp, const Instruction &in, const machine::LaneAddresses &addresses,
                         std::uint32_t lanes, unsigned bytes, bool is_load) {
  if (in.flags & kMergeFlags)
    count_divided(warp, in, addresses, lanes, is_load);
  else
    count_shared(warp, in, is_load ? AccessKind::shared_load : AccessKind::shared_store,
                 is_load ? SharedCostCache::Op::load : SharedCostCache::Op::store, addresses, lanes, bytes);
}

template <Space S>
void count(Warp &warp, const Instruction &in, const LaneAccess &access, unsigned bytes, bool is_load) {
  if constexpr (S == Space::shared || S == Space::generic)
    if (access.shared_lanes) {
      if (bytes <= 16)
        count_shared_access(warp, in, access.shared, access.shared_lanes, bytes, is_load);
      else
        count_unmodelled(warp, in, is_load ? AccessKind::shared_load : AccessKind::shared_store);
    }
  if constexpr (S == Space::global || S == Space::generic)
    if (access.global_lanes && !(in.flags & kNotCounted))
      count_global(warp, in, is_load ? AccessKind::global_load : AccessKind::global_store, access, bytes);
  if constexpr (S == Space::local)
    ++warp.access(in, is_load ? AccessKind::local_load : AccessKind::local_store).executed;
}

/// Reads elements of type Memory at the host addresses `host(lane)`, extends them (by Memory's sign) to type
/// Register, and writes lanes of type Lane. `Elements` is 0 if their number is known only at run time.
template <typename Memory, typename Register, typename Lane, int Elements = 0, typename Host>
[[gnu::always_inline]] inline void read_elements(Warp &warp, const Instruction &in, std::uint32_t active,
                                                 Host host) {
  const unsigned elements = Elements ? unsigned(Elements) : element_count(in);
  for (unsigned element = 0; element < elements; ++element) {
    Lane *const to = warp.lanes<Lane>(element_slot(warp, in, element));
    for_lanes(active, [&](int lane) {
      Memory value;
      std::memcpy(&value, host(lane) + element * sizeof value, sizeof value);
      to[lane] = Lane(Register(value));
    });
  }
}

/// The same for a full warp with consecutive lanes.
template <typename Memory, typename Register, typename Lane, unsigned Elements>
[[gnu::always_inline]] inline void read_dense(Warp &warp, const Instruction &in, const std::uint8_t *first) {
  for (unsigned element = 0; element < Elements; ++element) {
    Lane *const to = warp.lanes<Lane>(in.op[1 + element]);
    LADDER_LANES_ARE_INDEPENDENT
    for (unsigned lane = 0; lane < 32; ++lane) {
      Memory value;
      std::memcpy(&value, first + (lane * Elements + element) * sizeof value, sizeof value);
      to[lane] = Lane(Register(value));
    }
  }
}

template <typename Memory, typename Lane, typename Host>
[[gnu::always_inline]] inline void write_elements(Warp &warp, const Instruction &in, std::uint32_t active,
                                                  Host host) {
  const unsigned elements = element_count(in);
  for (unsigned element = 0; element < elements; ++element) {
    const Lane *const from = warp.lanes<Lane>(element_slot(warp, in, element));
    for_lanes(active, [&](int lane) {
      const auto value = Memory(from[lane]);
      std::memcpy(host(lane) + element * sizeof value, &value, sizeof value);
    });
  }
}

/// Writes one element per lane, consecutively.
template <typename Memory, typename Lane>
[[gnu::always_inline]] inline void write_dense(Warp &warp, const Instruction &in, std::uint8_t *first) {
  const Lane *const from = warp.lanes<Lane>(in.op[1]);
  LADDER_LANES_ARE_INDEPENDENT
  for (unsigned lane = 0; lane < 32; ++lane) {
    const auto value = Memory(from[lane]);
    std::memcpy(first + lane * sizeof value, &value, sizeof value);
  }
}

using Shape = machine::AccessPattern::Shape;

/// The addresses of a full warp's access that repeats the instruction's last pattern.
struct Repeated {
  Shape shape;
  std::uint8_t *first; ///< first lane's address
};

/// If the access repeats the last pattern, counts it, calls transfer(repeated, host) and returns true.
template <Space S, typename Transfer>
[[gnu::always_inline]] inline bool repeated_access(Warp &warp, const Instruction &in, Transfer transfer) {
  if constexpr (S == Space::shared) {
    std::uint32_t begin;
    if (!repeats_shared<32>(warp, in, begin))
      return false;
    const machine::AccessPattern &pattern = warp.block().pattern(in);
    const std::uint32_t *const offsets = pattern.shared_offsets();
    std::uint8_t *const base = warp.block().shared_base();
    const auto host = [=](int lane) { return base + std::uint32_t(begin + offsets[lane]); };
    transfer(Repeated{pattern.shape(), host(0)}, host);
    return true;
  }
  if constexpr (S == Space::global || S == Space::generic) {
    std::uint64_t begin;
    if (!repeats_global(warp, in, begin))
      return false;
    const machine::AccessPattern &pattern = warp.block().pattern(in);
    const std::uint64_t *const offsets = pattern.global_offsets();
    const auto host = [=](int lane) { return reinterpret_cast<std::uint8_t *>(begin + offsets[lane]); };
    transfer(Repeated{pattern.shape(), host(0)}, host);
    return true;
  }
  return false;
}

/// If this is a plain access of a full warp with a new pattern, calls transfer(host) and returns true.
template <Space S, typename Transfer>
[[gnu::always_inline]] inline bool whole_warp_access(Warp &warp, const Instruction &in, unsigned bytes,
                                                     bool is_load, Transfer transfer) {
  if constexpr (S == Space::shared) {
    alignas(64) machine::LaneAddresses addresses;
    if (bytes > 16 || !whole_warp_shared(warp, in, bytes, addresses))
      return false;
    if (in.flags & kMergeFlags)
      count_divided(warp, in, addresses, kAllLanes, is_load);
    else
      remember_shared(warp, in, is_load ? AccessKind::shared_load : AccessKind::shared_store,
                      is_load ? SharedCostCache::Op::load : SharedCostCache::Op::store, addresses, 32, bytes,
                      bytes);
    std::uint8_t *const base = warp.block().shared_base();
    transfer([&](int lane) { return base + addresses[std::size_t(lane)]; });
    return true;
  }
  if constexpr (S == Space::global || S == Space::generic || S == Space::constant) {
    alignas(64) std::uint64_t addresses[32];
    alignas(64) std::uint32_t sectors[32];
    const machine::MemoryRange *range = nullptr;
    if (in.flags & kNotCounted || !whole_warp_global(warp, in, bytes, !is_load, addresses, sectors, range))
      return false;
    if constexpr (S != Space::constant)
      warp.block()
          .renew_pattern(in, is_load ? AccessKind::global_load : AccessKind::global_store)
          .remember(addresses, bytes, whole_warp_sectors(addresses, sectors, bytes), range);
    transfer([&](int lane) { return reinterpret_cast<std::uint8_t *>(addresses[lane]); });
    return true;
  }
  return false;
}

/// A load with unused bytes (`.pragma "used_bytes_mask"`): they may lie outside memory, and then read as
/// zeros. It costs as much as a full load, and acts as one if all bytes are in memory: nvcc 13.0 also marks
/// bytes as unused whose registers it uses, such as those of a parameter that it loads again elsewhere.
template <Space S, typename From>
void load_part(Warp &warp, const Instruction &in, unsigned bytes, From from) {
  LaneAccess whole;
  const auto is_in_memory = [&] {
    try {
      resolve(warp, S, address_base(in.flags), in.op[0], in.imm, warp.active(), bytes, bytes, Direction::read,
              whole);
      return true;
    } catch (const machine::FaultError &) {
      return false;
    }
  };
  if (is_in_memory()) {
    count<S>(warp, in, whole, bytes, true);
    from(warp.active(), [&](int lane) { return whole.at<const std::uint8_t>(lane); });
    return;
  }
  const std::uint32_t used = in.op[5];
  const auto first = unsigned(std::countr_zero(used)), size = unsigned(std::bit_width(used)) - first;
  const unsigned alignment = first ? std::min(bytes, first & (~first + 1)) : bytes;
  LaneAccess access;
  resolve(warp, S, address_base(in.flags), in.op[0], in.imm + first, warp.active(), size, alignment,
          Direction::read, access);
  std::uint8_t staged[32][32] = {};
  for_lanes(warp.active(),
            [&](int lane) { std::memcpy(staged[lane] + first, access.at<const std::uint8_t>(lane), size); });
  for (std::size_t lane = 0; lane < 32; ++lane) {
    access.host[lane] -= first;
    access.shared[lane] -= first;
  }
  count<S>(warp, in, access, bytes, true);
  from(warp.active(), [&](int lane) { return staged[lane]; });
}

/// Any load but a full warp's that repeats the last pattern. Apart, so that the common case saves no
/// registers.
template <Space S, typename Memory, typename Register, typename Lane>
[[gnu::noinline]] void load_anew(Warp &warp, const Instruction &in) {
  const unsigned bytes = element_count(in) * unsigned(sizeof(Memory));
  const auto from = [&](std::uint32_t active, auto host) {
    read_elements<Memory, Register, Lane>(warp, in, active, host);
  };
  const auto from_all = [&](auto host) { from(kAllLanes, host); };
  if (warp.active() == kAllLanes && whole_warp_access<S>(warp, in, bytes, true, from_all)) {
    // handled above
  } else if (in.flags & kPartial) {
    load_part<S>(warp, in, bytes, from);
  } else {
    LaneAccess access;
    resolve(warp, S, address_base(in.flags), in.op[0], in.imm, warp.active(), bytes, bytes, Direction::read,
            access);
    count<S>(warp, in, access, bytes, true);
    from(warp.active(), [&](int lane) { return access.at<const std::uint8_t>(lane); });
  }
  if (in.flags & kAcquire)
    std::atomic_thread_fence(std::memory_order_acquire);
}

template <Space S, typename Memory, typename Register, typename Lane>
void load(Warp &warp, const Instruction &in) {
  const auto from_repeated = [&](Repeated where, auto host) {
    const unsigned elements = element_count(in);
    if (where.shape == Shape::same && elements == 1) {
      read_elements<Memory, Register, Lane, 1>(warp, in, kAllLanes, [=](int) { return where.first; });
    } else if (where.shape == Shape::dense && elements == 1) {
      read_dense<Memory, Register, Lane, 1>(warp, in, where.first);
    } else {
      if constexpr (sizeof(Memory) == 4 && sizeof(Lane) == 4) {
        if (where.shape == Shape::dense && elements == 2)
          return read_dense<Memory, Register, Lane, 2>(warp, in, where.first);
        if (where.shape == Shape::dense && elements == 4)
          return read_dense<Memory, Register, Lane, 4>(warp, in, where.first);
      }
      read_elements<Memory, Register, Lane>(warp, in, kAllLanes, host);
    }
  };
  if (warp.active() != kAllLanes || !repeated_access<S>(warp, in, from_repeated))
    return load_anew<S, Memory, Register, Lane>(warp, in);
  if (in.flags & kAcquire)
    std::atomic_thread_fence(std::memory_order_acquire);
}

/// ld.param of a kernel parameter: the same value in all lanes.
template <typename Memory, typename Register, typename Lane>
void load_entry_param(Warp &warp, const Instruction &in) {
  const std::vector<std::uint8_t> &params = warp.block().launch().params;
  const unsigned elements = element_count(in);
  const auto begin = std::uint64_t(in.imm);
  if (begin > params.size() || elements * sizeof(Memory) > params.size() - begin)
    throw FaultError(FaultKind::out_of_bounds, "a parameter at byte " + std::to_string(begin) + " of the " +
                                                   std::to_string(params.size()) + " bytes of arguments");
  const std::uint32_t active = warp.active();
  for (unsigned element = 0; element < elements; ++element) {
    Memory value;
    std::memcpy(&value, params.data() + begin + element * sizeof value, sizeof value);
    const Lane extended = Lane(Register(value));
    Lane *const to = warp.lanes<Lane>(element_slot(warp, in, element));
    for_lanes(active, [&](int lane) { to[lane] = extended; });
  }
}

/// Any store but a full warp's that repeats the last pattern.
template <Space S, typename Memory, typename Lane>
[[gnu::noinline]] void store_anew(Warp &warp, const Instruction &in) {
  const unsigned bytes = element_count(in) * unsigned(sizeof(Memory));
  const auto to_all = [&](auto host) { write_elements<Memory, Lane>(warp, in, kAllLanes, host); };
  if (warp.active() == kAllLanes && whole_warp_access<S>(warp, in, bytes, false, to_all))
    return;
  LaneAccess access;
  resolve(warp, S, address_base(in.flags), in.op[0], in.imm, warp.active(), bytes, bytes, Direction::write,
          access);
  count<S>(warp, in, access, bytes, false);
  write_elements<Memory, Lane>(warp, in, warp.active(),
                               [&](int lane) { return access.at<std::uint8_t>(lane); });
}

template <Space S, typename Memory, typename Lane> void store(Warp &warp, const Instruction &in) {
  if (in.flags & kRelease)
    std::atomic_thread_fence(std::memory_order_release);
  const auto to_repeated = [&](Repeated where, auto host) {
    if (where.shape == Shape::dense && element_count(in) == 1)
      write_dense<Memory, Lane>(warp, in, where.first);
    else
      write_elements<Memory, Lane>(warp, in, kAllLanes, host);
  };
  if (warp.active() != kAllLanes || !repeated_access<S>(warp, in, to_repeated))
    store_anew<S, Memory, Lane>(warp, in);
}

// --- handlers by type

template <typename Memory, typename Register, typename Lane> Handler load_handler(Space space) {
  switch (space) {
  case Space::generic:
    return load<Space::generic, Memory, Register, Lane>;
  case Space::global:
    return load<Space::global, Memory, Register, Lane>;
  case Space::constant:
    return load<Space::constant, Memory, Register, Lane>;
  case Space::shared:
    return load<Space::shared, Memory, Register, Lane>;
  case Space::local:
    return load<Space::local, Memory, Register, Lane>;
  case Space::param:
    return load<Space::param, Memory, Register, Lane>;
  }
  return nullptr;
}

template <typename Memory, typename Register, typename Lane> LoadHandlers loads(Space space) {
  return {load_handler<Memory, Register, Lane>(space), load_entry_param<Memory, Register, Lane>};
}

/// Extends to a register of `register_bytes` (2, 4 or 8).
template <typename Memory> LoadHandlers loads(Space space, unsigned register_bytes) {
  if (register_bytes == 8)
    return loads<Memory, std::uint64_t, std::uint64_t>(space);
  if (register_bytes == 2)
    return loads<Memory, std::uint16_t, std::uint32_t>(space);
  return loads<Memory, std::uint32_t, std::uint32_t>(space);
}

template <typename Memory, typename Lane> Handler store_handler(Space space) {
  switch (space) {
  case Space::generic:
    return store<Space::generic, Memory, Lane>;
  case Space::global:
    return store<Space::global, Memory, Lane>;
  case Space::constant:
    break;
  case Space::shared:
    return store<Space::shared, Memory, Lane>;
  case Space::local:
    return store<Space::local, Memory, Lane>;
  case Space::param:
    return store<Space::param, Memory, Lane>;
  }
  return nullptr;
}

template <typename Lane> Handler store_handler(Space space, unsigned bytes) {
  switch (bytes) {
  case 1:
    return store_handler<std::uint8_t, Lane>(space);
  case 2:
    return store_handler<std::uint16_t, Lane>(space);
  case 4:
    return store_handler<std::uint32_t, Lane>(space);
  default:
    return store_handler<std::uint64_t, Lane>(space);
  }
}

} // namespace

LoadHandlers load_handlers(Space space, Type type, unsigned register_bytes) {
  const bool is_signed = type == Type::s8 || type == Type::s16 || type == Type::s32;
  switch (ptx::type_bytes(type)) {
  case 1:
    return is_signed ? loads<std::int8_t>(space, register_bytes) : loads<std::uint8_t>(space, register_bytes);
  case 2:
    return is_signed ? loads<std::int16_t>(space, register_bytes)
                     : loads<std::uint16_t>(space, register_bytes);
  case 4:
    return is_signed ? loads<std::int32_t>(space, register_bytes)
                     : loads<std::uint32_t>(space, register_bytes);
  default:
    return loads<std::uint64_t>(space, 8);
  }
}

Handler store_handler(Space space, unsigned bytes, unsigned lane_bytes) {
  return lane_bytes == 8 ? store_handler<std::uint64_t>(space, std::min(bytes, 8u))
                         : store_handler<std::uint32_t>(space, bytes);
}

} // namespace ladder::instructions
