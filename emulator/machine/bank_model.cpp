#include "machine/bank_model.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace ladder::machine {

namespace {

constexpr std::uint32_t kAllLanes = 0xffffffffu;
constexpr unsigned kBankRowBytes = 128; ///< 32 banks of 4 bytes

/// The active accesses of a pass, in units of their own size. Accesses of 8 and 16 bytes are aligned and lie
/// in one bank row, so all banks of a unit are equally loaded, and one bank of units represents them.
struct Units {
  std::array<std::uint32_t, 32> unit;
  unsigned count = 0;
};

Units gather(const LaneAddresses &addresses, std::uint32_t active, unsigned shift) {
  Units units;
  for (; active; active &= active - 1)
    units.unit[units.count++] = addresses[std::countr_zero(active)] >> shift;
  return units;
}

/// Moves the distinct units among the first `count` to the front and returns their number.
unsigned deduplicate(std::uint32_t *unit, unsigned count) {
  // In most patterns addresses increase with the lane.
  bool rising = true;
  for (unsigned i = 1; i < count; ++i)
    rising &= unit[i] > unit[i - 1];
  if (rising)
    return count;
  // Open addressing with twice as many slots as lanes. Units are stored plus one (they are below 2^30), so 0
  // means free.
  std::uint32_t slots[64] = {};
  unsigned distinct = 0;
  for (unsigned i = 0; i < count; ++i) {
    const std::uint32_t value = unit[i];
    const std::uint32_t key = value + 1;
    unsigned place = (value * 0x9e3779b1u) >> 26;
    while (slots[place] != 0 && slots[place] != key)
      place = (place + 1) & 63;
    if (slots[place] == 0) {
      slots[place] = key;
      unit[distinct++] = value;
    }
  }
  return distinct;
}

/// The largest number of units in one of `banks` (8, 16 or 32).
unsigned largest_bank(const std::uint32_t *unit, unsigned count, unsigned banks) {
  // Two tables, so that neighbours in one bank do not stall on each other's increment.
  std::uint8_t counts[2][32] = {};
  for (unsigned i = 0; i < count; ++i)
    ++counts[i & 1][unit[i] & (banks - 1)];
  unsigned largest = 0;
  for (unsigned bank = 0; bank < 32; ++bank)
    largest = std::max<unsigned>(largest, counts[0][bank] + counts[1][bank]);
  return largest;
}

/// Wavefronts of one pass. `bytes` is the width of a unit: 4, 8 or 16.
unsigned pass_wavefronts(const std::uint32_t *unit, unsigned count, unsigned banks) {
  if (count <= 1)
    return count;
  std::uint32_t wanted = 0, other_row = 0;
  for (unsigned i = 0; i < count; ++i) {
    wanted |= 1u << (unit[i] & (banks - 1));
    other_row |= unit[i] ^ unit[0];
  }
  if (unsigned(std::popcount(wanted)) == count || other_row < banks)
    return 1;
  std::array<std::uint32_t, 32> distinct;
  std::memcpy(distinct.data(), unit, count * sizeof *unit);
  return largest_bank(distinct.data(), deduplicate(distinct.data(), count), banks);
}

/// True if each active lane's partner, lane ^ distance, is inactive or has the same address.
bool partners_agree(const LaneAddresses &addresses, std::uint32_t active, unsigned distance) {
  std::uint32_t differ = 0;
  for (unsigned lane = 0; lane < 32; ++lane) {
    const unsigned partner = lane ^ distance;
    const std::uint32_t both = (active >> lane) & (active >> partner) & 1;
    differ |= (addresses[lane] ^ addresses[partner]) & (0u - both);
  }
  return differ == 0;
}

std::uint32_t ideal_wavefronts(Units units, unsigned unit_bytes) {
  if (units.count * unit_bytes <= kBankRowBytes)
    return units.count != 0;
  return (deduplicate(units.unit.data(), units.count) * unit_bytes + kBankRowBytes - 1) / kBankRowBytes;
}

unsigned store_pass_lanes(unsigned bytes) { return bytes <= 4 ? 32 : bytes == 8 ? 16 : 8; }

unsigned load_pass_lanes(const LaneAddresses &addresses, std::uint32_t active, unsigned bytes) {
  if (bytes <= 4)
    return 32;
  const bool merged = partners_agree(addresses, active, 1) || partners_agree(addresses, active, 2);
  return store_pass_lanes(bytes) * (merged ? 2 : 1);
}

constexpr unsigned kMatrixPassLanes = 8;

std::uint32_t matrix_lanes(unsigned matrices) {
  return matrices >= 4 ? kAllLanes : (1u << (8 * matrices)) - 1;
}

/// Accesses of 8 and 16 bytes, in passes of `pass_lanes`.
SharedCost wide_access(const LaneAddresses &addresses, std::uint32_t active, unsigned bytes,
                       unsigned pass_lanes) {
  const unsigned shift = std::countr_zero(bytes);
  const unsigned banks = kBankRowBytes >> shift;
  const std::uint32_t lanes_of_pass = pass_lanes == 32 ? kAllLanes : (1u << pass_lanes) - 1;
  SharedCost cost;
  for (unsigned first = 0; first < 32; first += pass_lanes) {
    const std::uint32_t lanes = active & (lanes_of_pass << first);
    if (lanes == 0)
      continue;
    const Units units = gather(addresses, lanes, shift);
    ++cost.passes;
    cost.wavefronts += pass_wavefronts(units.unit.data(), units.count, banks);
  }
  cost.conflicts = cost.wavefronts - cost.passes;
  cost.ideal = ideal_wavefronts(gather(addresses, active, shift), bytes);
  return cost;
}

/// Accesses of up to 4 bytes: one pass over all lanes. At most 128 bytes, ideally one wavefront.
SharedCost narrow_access(const LaneAddresses &addresses, std::uint32_t active) {
  if (active == 0)
    return {};
  unsigned wavefronts;
  if (active == kAllLanes) {
    std::uint32_t other_row = 0;
    for (const std::uint32_t address : addresses)
      other_row |= address ^ addresses[0];
    if (other_row < kBankRowBytes)
      return {.wavefronts = 1, .passes = 1, .conflicts = 0, .ideal = 1};
    LaneAddresses words;
    for (unsigned lane = 0; lane < 32; ++lane)
      words[lane] = addresses[lane] >> 2;
    wavefronts = pass_wavefronts(words.data(), 32, 32);
  } else {
    const Units words = gather(addresses, active, 2);
    wavefronts = pass_wavefronts(words.unit.data(), words.count, 32);
  }
  return {.wavefronts = wavefronts, .passes = 1, .conflicts = wavefronts - 1, .ideal = 1};
}

} // namespace

SharedCost shared_load(const LaneAddresses &addresses, std::uint32_t active, unsigned bytes) {
  if (bytes <= 4)
    return narrow_access(addresses, active);
  return wide_access(addresses, active, bytes, load_pass_lanes(addresses, active, bytes));
}

SharedCost shared_store(const LaneAddresses &addresses, std::uint32_t active, unsigned bytes) {
  if (bytes <= 4)
    return narrow_access(addresses, active);
  return wide_access(addresses, active, bytes, store_pass_lanes(bytes));
}

SharedCost shared_matrix(const LaneAddresses &addresses, unsigned matrices) {
  return wide_access(addresses, matrix_lanes(matrices), 16, kMatrixPassLanes);
}

SharedCost shared_atomic(const LaneAddresses &addresses, std::uint32_t active) {
  if (active == 0)
    return {};
  // Lanes that access the same word are served one after another, so no accesses merge.
  const Units words = gather(addresses, active, 2);
  const unsigned wavefronts = largest_bank(words.unit.data(), words.count, 32);
  return {.wavefronts = wavefronts, .passes = 1, .conflicts = wavefronts - 1, .ideal = 1};
}

SharedCost shared_compare_and_swap(const LaneAddresses &addresses, std::uint32_t active) {
  // The comparison and the exchange each cost as much as an addition; the hardware's conflict counter sees
  // only one of them.
  SharedCost cost = shared_atomic(addresses, active);
  cost.wavefronts *= 2;
  return cost;
}

SharedCost shared_async_copy16(const LaneAddresses &, std::uint32_t) {
  // The hardware counts neither wavefronts nor conflicts, whatever the pattern.
  return {};
}

SharedCost SharedCostCache::compute(Op op, const LaneAddresses &addresses, std::uint32_t active,
                                    unsigned width) {
  switch (op) {
  case Op::load:
    return shared_load(addresses, active, width);
  case Op::store:
    return shared_store(addresses, active, width);
  case Op::matrix:
    return shared_matrix(addresses, width);
  case Op::atomic:
    return shared_atomic(addresses, active);
  case Op::compare_and_swap:
    return shared_compare_and_swap(addresses, active);
  }
  return {};
}

std::vector<SharedPass> shared_passes(SharedCostCache::Op op, const LaneAddresses &addresses,
                                      std::uint32_t active, unsigned width) {
  using Op = SharedCostCache::Op;
  unsigned pass_lanes = 32;
  if (op == Op::load)
    pass_lanes = load_pass_lanes(addresses, active, width);
  if (op == Op::store)
    pass_lanes = store_pass_lanes(width);
  if (op == Op::matrix) {
    pass_lanes = kMatrixPassLanes;
    active = matrix_lanes(width);
  }
  std::vector<SharedPass> passes;
  for (unsigned first = 0; first < 32; first += pass_lanes) {
    const std::uint32_t lanes = active & ((pass_lanes == 32 ? kAllLanes : (1u << pass_lanes) - 1) << first);
    if (lanes == 0)
      continue;
    // A part of a single-pass access takes a single pass too.
    const SharedCost cost = op == Op::matrix ? shared_load(addresses, lanes, 16)
                                             : SharedCostCache::compute(op, addresses, lanes, width);
    passes.push_back({lanes, op == Op::compare_and_swap ? cost.wavefronts / 2 : cost.wavefronts});
  }
  return passes;
}

const SharedCost &SharedCostCache::cost(std::uint32_t instruction, Op op, const LaneAddresses &addresses,
                                        std::uint32_t active, unsigned width) {
  Entry &entry = entries_[instruction % kEntries];
  const std::uint32_t base = addresses[0] / kBankRowBytes * kBankRowBytes;
  // Bits in which a lane's position relative to the base differs from the remembered one.
  std::uint32_t differ = (entry.key ^ (instruction + 1)) | (entry.active ^ active);
  for (unsigned lane = 0; lane < 32; ++lane)
    differ |= (addresses[lane] - base) ^ entry.relative[lane];
  has_counted_ = differ != 0;
  if (has_counted_) {
    entry.key = instruction + 1;
    entry.active = active;
    for (unsigned lane = 0; lane < 32; ++lane)
      entry.relative[lane] = addresses[lane] - base;
    entry.cost = compute(op, addresses, active, width);
  }
  return entry.cost;
}

} // namespace ladder::machine
