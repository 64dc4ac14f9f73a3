#include "instructions/bulk_copy.h"

#include "instructions/addressing.h"
#include "instructions/elementwise.h"
#include "instructions/reduction.h"
#include "instructions/tcgen05.h"
#include "machine/address_space.h"
#include "machine/cluster.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

namespace ladder::instructions {

using machine::AccessCounters;
using machine::AccessKind;
using machine::Block;
using machine::BulkCopyInFlight;
using machine::BulkStore;
using machine::Combine;
using machine::FaultError;
using machine::FaultKind;
using machine::Instruction;
using machine::Warp;
using program::Operand;
using ptx::Type;

namespace {

constexpr std::uint64_t kGranularity = 16; // of addresses and sizes
constexpr std::uint64_t kBoxAlignment = 128;
constexpr std::uint64_t kSectorBytes = 32;

// Flags, and positions of the operands in Code::more. An address takes four words: Binder::Address::Base,
// slot, offset (low half first). imm is a reduction's Combine.
constexpr std::uint32_t kKindBits = 3; ///< BulkKind
constexpr std::uint32_t kTensor = 1u << 2;
constexpr std::uint32_t kMulticast = 1u << 3;
constexpr std::uint32_t kPair =
    1u << 4; ///< .cta_group::2: data and mbarrier may be in different blocks of a pair
enum Place : std::size_t {
  kShared = 0,
  kOther = 4,
  kMbarrier = 8,
  kSize = 12,
  kMask = 13,
  kRank = 14,
  kCoordinates = 15,
  kWords = kCoordinates + kMostDimensions
};

std::uint64_t operand_address(Warp &warp, const std::uint32_t *words, int lane) {
  const auto base = Binder::Address::Base(words[0]);
  std::uint64_t addresses[32];
  lane_addresses(warp, base, words[1], std::int64_t(words[2] | std::uint64_t(words[3]) << 32), addresses);
  return addresses[lane] + (base == Binder::Address::Base::entry_param ? machine::kParamWindow : 0);
}

/// Address in shared memory; the operand may be a generic address.
std::uint64_t shared_address(Warp &warp, const std::uint32_t *words, int lane) {
  const std::uint64_t address = operand_address(warp, words, lane);
  return (address & machine::kWindowMask) == machine::kSharedWindow ? address - machine::kSharedWindow
                                                                    : address;
}

/// Rejects what an H200 rejects as an illegal instruction.
void check_box_start(const BulkCopy &copy, int lane) {
  const std::int64_t x = copy.coordinates[0], bytes = copy.map->element_bytes();
  if (x * bytes % std::int64_t(kGranularity))
    throw FaultError(FaultKind::bad_operand,
                     "a box that starts at element " + std::to_string(x) +
                         " of the innermost dimension: it must start at a multiple of 16 bytes, which is " +
                         std::to_string(std::int64_t(kGranularity) / bytes) + " elements",
                     lane);
  if (copy.kind != BulkKind::store)
    return;
  for (unsigned d = 0; d < copy.map->rank; ++d)
    if (copy.coordinates[d] < 0)
      throw FaultError(FaultKind::bad_operand,
                       "a store to a box that starts at element " + std::to_string(copy.coordinates[d]) +
                           " of dimension " + std::to_string(d) +
                           ", before the tensor: only loads may start out of range",
                       lane);
}

void check_alignment(const BulkCopy &copy, int lane) {
  const auto misaligned = [&](std::uint64_t address, std::uint64_t alignment, const char *what) {
    if (address % alignment)
      throw FaultError(
          FaultKind::misaligned,
          std::string(what) + " at an address that is not a multiple of " + std::to_string(alignment), lane)
          .at(address);
  };
  if (copy.map) {
    misaligned(copy.shared, kBoxAlignment, "the box of a tensor copy in shared memory");
    check_box_start(copy, lane);
    return;
  }
  if (copy.bytes % kGranularity)
    throw FaultError(FaultKind::bad_operand,
                     "a bulk copy of " + std::to_string(copy.bytes) + " bytes, which is not a multiple of 16",
                     lane);
  if (copy.kind != BulkKind::prefetch)
    misaligned(copy.shared, kGranularity, "a bulk copy");
  misaligned(copy.other, kGranularity, "a bulk copy");
}

constexpr std::string_view kReductions[] = {"add", "min", "max", "inc", "dec", "and", "or", "xor"};
constexpr int kReductionShift = 8; ///< boxes (the tensor map has the type): 1 + index into kReductions

ptx::Type memory_type(const TensorMap &map) {
  constexpr Type kTypesOfMaps[TensorMap::kTypes] = {Type::u8,  Type::u16, Type::u32, Type::s32, Type::u64,
                                                    Type::s64, Type::f16, Type::f32, Type::f64, Type::bf16,
                                                    Type::f32, Type::f32, Type::f32};
  return kTypesOfMaps[unsigned(map.type)];
}

/// The reduction's operation on elements; nullptr for a copy.
Combine combine_of(const Instruction &in, const BulkCopy &copy, int lane) {
  const std::uint32_t index = in.flags >> kReductionShift;
  if (!copy.map || index == 0)
    return reinterpret_cast<Combine>(std::uintptr_t(in.imm));
  const std::string_view operation = kReductions[index - 1];
  Type type = memory_type(*copy.map);
  const bool is_bitwise = operation == "and" || operation == "or" || operation == "xor";
  if (is_bitwise && ptx::type_bytes(type) >= 4)
    type = ptx::type_bytes(type) == 8 ? Type::b64 : Type::b32;
  const Combine found = find_reduction(operation, type);
  if (!found)
    throw FaultError(FaultKind::bad_operand,
                     "." + std::string(operation) + " on a tensor of ." + std::string(ptx::type_name(type)),
                     lane);
  return found;
}

/// Fills the part of a box outside the tensor.
void fill(const TensorMap &map, std::uint8_t *to, std::uint32_t bytes) {
  if (map.fill == TensorMap::Fill::zeros) {
    std::memset(to, 0, bytes);
    return;
  }
  constexpr std::uint16_t kNaN = 0x7ff7; // for every type
  for (std::uint32_t at = 0; at < bytes; at += sizeof kNaN)
    std::memcpy(to + at, &kNaN, sizeof kNaN);
}

machine::SharedPlace place_of(const BulkCopy &copy) {
  if (copy.map)
    return box_place(*copy.map, std::uint32_t(copy.shared));
  machine::SharedPlace place;
  place.address = std::uint32_t(copy.shared);
  return place;
}

/// Keeps the box for reports of its place in shared memory.
void note_box(Warp &warp, const Instruction &in, const BulkCopy &copy) {
  Block &block = warp.block();
  machine::TensorBox box;
  box.address = std::uint32_t(copy.shared);
  box.element_bytes = copy.map->element_bytes();
  box.swizzle = copy.map->swizzle;
  for (unsigned d = 0; d < copy.map->rank; ++d) {
    box.elements.push_back(copy.map->box_elements(d));
    box.coordinates.push_back(copy.coordinates[d]);
  }
  box.block = block.linear_index();
  box.warp = warp.index();
  block.counters().note(std::uint32_t(&in - block.code().instructions.data()), box);
}

/// Loads of tf32 tensors round the elements.
void round_elements(const TensorMap &map, std::uint8_t *data, std::uint32_t bytes) {
  if (map.type != TensorMap::Type::tf32 && map.type != TensorMap::Type::tf32_ftz)
    return;
  constexpr std::uint32_t kDropped = 0x1fff, kExponent = 0x7f800000;
  for (std::uint32_t at = 0; at < bytes; at += sizeof(std::uint32_t)) {
    std::uint32_t bits;
    std::memcpy(&bits, data + at, sizeof bits);
    if ((bits & kExponent) != kExponent)
      bits = (bits + (kDropped >> 1) + (bits >> 13 & 1)) & ~kDropped;
    std::memcpy(data + at, &bits, sizeof bits);
  }
}

std::vector<std::uint8_t> read_box(Warp &warp, const BulkCopy &copy, int lane) {
  std::vector<std::uint8_t> data(copy.bytes);
  visit_box(*copy.map, copy.coordinates, [&](const BoxRun &run) {
    if (run.address == 0) {
      fill(*copy.map, data.data() + run.offset, run.bytes);
      return;
    }
    warp.global_range(run.address, run.bytes, false, lane);
    std::memcpy(data.data() + run.offset, reinterpret_cast<const void *>(run.address), run.bytes);
    round_elements(*copy.map, data.data() + run.offset, run.bytes);
  });
  return data;
}

void load(Warp &warp, const Instruction &in, const BulkCopy &copy, int lane) {
  const auto send = in.flags & kPair ? send_to_pair : send_to_cluster;
  BulkCopyInFlight flight;
  if (copy.map) {
    flight.data = read_box(warp, copy, lane);
    flight.place = place_of(copy);
  } else {
    warp.global_range(copy.other, copy.bytes, false, lane);
    const auto *const data = reinterpret_cast<const std::uint8_t *>(copy.other);
    flight.data.assign(data, data + copy.bytes);
  }
  if (!copy.cta_mask) {
    send(warp, lane, copy.shared, copy.mbarrier, std::move(flight));
    return;
  }
  // Each destination receives the data, and its mbarrier the byte count, at the same offsets as in this
  // block.
  machine::Cluster &cluster = warp.block().cluster();
  const auto offset = [](std::uint64_t address) { return std::uint32_t(address) & machine::kOffsetInBlock; };
  if (*copy.cta_mask >> cluster.size())
    throw FaultError(FaultKind::bad_operand,
                     "a multicast to the block of rank " +
                         std::to_string(31 - std::countl_zero(*copy.cta_mask)) + " of a cluster of " +
                         std::to_string(cluster.size()),
                     lane);
  for (std::uint32_t rank = 0; rank < cluster.size(); ++rank)
    if (*copy.cta_mask >> rank & 1)
      send(warp, lane, machine::cluster_address(rank, offset(copy.shared)),
           machine::cluster_address(rank, offset(copy.mbarrier)), flight);
}

/// Returns the function that writes a store's data to global memory when it completes.
std::function<void(const std::uint8_t *)> writer(Warp &warp, const BulkCopy &copy, Combine combine,
                                                 int lane) {
  const auto write = [combine](std::uint64_t address, const std::uint8_t *from, std::size_t bytes) {
    auto *const to = reinterpret_cast<std::uint8_t *>(address);
    if (combine)
      combine(to, from, bytes);
    else
      std::memcpy(to, from, bytes);
  };
  const auto check = [&](std::uint64_t address, std::uint64_t bytes) {
    warp.global_range(address, bytes, true, lane);
  };
  if (!copy.map) {
    check(copy.other, copy.bytes);
    return [=, to = copy.other, bytes = copy.bytes](const std::uint8_t *data) { write(to, data, bytes); };
  }
  visit_box(*copy.map, copy.coordinates, [&](const BoxRun &run) {
    if (run.address)
      check(run.address, run.bytes);
  });
  return [=, map = *copy.map, coordinates = copy.coordinates](const std::uint8_t *data) {
    visit_box(map, coordinates, [&](const BoxRun &run) {
      if (run.address)
        write(run.address, data + run.offset, run.bytes);
    });
  };
}

void store(Warp &warp, const BulkCopy &copy, Combine combine, int lane) {
  Block &block = warp.block();
  BulkStore store;
  store.place = place_of(copy);
  store.bytes = std::uint32_t(copy.bytes);
  store.write = writer(warp, copy, combine, lane);
  block.shared(copy.shared, store.place.extent(store.bytes), lane);
  block.bulk_groups(warp.index() * 32 + lane).add(std::move(store));
}

/// Sectors that a box moves between shared memory and the L2, as an H200 counts them. Each line of the box is
/// split where a 128-byte line of shared memory ends; parts left or right of the tensor count like the rest.
/// With multicast a piece takes at least two sectors per destination. Loads of 16 bytes without a map take
/// one each, even side by side. nullopt for cases not measured.
std::optional<std::uint64_t> sectors_of(const BulkCopy &copy, bool is_elected) {
  if (!copy.map && copy.kind == BulkKind::load && !copy.cta_mask && copy.bytes == kGranularity)
    return 1;
  if (!copy.map || !is_elected || copy.kind == BulkKind::prefetch)
    return std::nullopt;
  const TensorMap &map = *copy.map;
  for (unsigned d = 1; d < map.rank; ++d) {
    const std::int64_t first = copy.coordinates[d],
                       last = first + std::int64_t(map.box_elements(d) - 1) * map.element_stride[d];
    if (first < 0 || std::uint64_t(last) >= map.size[d])
      return std::nullopt;
  }
  const std::uint64_t line_bytes = std::uint64_t(map.box_elements(0)) * map.element_bytes();
  const bool leaves_sideways =
      copy.coordinates[0] < 0 || std::uint64_t(copy.coordinates[0]) + map.box_elements(0) > map.size[0];
  if (leaves_sideways && copy.kind == BulkKind::store)
    return std::nullopt;
  const machine::SharedPlace place = place_of(copy);
  const std::uint64_t least = copy.cta_mask ? 2 : 1;
  std::uint64_t sectors = 0;
  std::array<std::uint32_t, kMostDimensions> at{};
  for (std::uint64_t offset = 0; offset < copy.bytes; offset += line_bytes) {
    std::uint64_t address = map.base + std::uint64_t(copy.coordinates[0] * std::int64_t(map.element_bytes()));
    for (unsigned d = 1; d < map.rank; ++d)
      address +=
          (std::uint64_t(copy.coordinates[d]) + std::uint64_t(at[d]) * map.element_stride[d]) * map.stride[d];
    const std::uint64_t line_start = copy.shared + (place.pitch ? offset / line_bytes * place.pitch : offset);
    for (std::uint64_t done = 0; done < line_bytes;) {
      const std::uint64_t bytes =
          std::min(line_bytes - done, kBoxAlignment - (line_start + done) % kBoxAlignment);
      sectors +=
          std::max(least, (address + done + bytes - 1) / kSectorBytes - (address + done) / kSectorBytes + 1);
      done += bytes;
    }
    for (unsigned d = 1; d < map.rank && ++at[d] == map.box_elements(d); ++d)
      at[d] = 0;
  }
  return sectors * std::uint64_t(copy.cta_mask ? std::popcount(*copy.cta_mask) : 1);
}

/// The machine code of sm_90 issues the copies of a warp in a loop, lane by lane; equal stores, and equal
/// prefetches, only once. `once` holds the ones that the loop has issued.
bool is_issued(const BulkCopy &copy, std::vector<BulkCopy> &once) {
  if (copy.reduces || (copy.kind != BulkKind::store && copy.kind != BulkKind::prefetch))
    return true;
  if (std::find(once.begin(), once.end(), copy) != once.end())
    return false;
  once.push_back(copy);
  return true;
}

void bulk_copy(Warp &warp, const Instruction &in) {
  const BulkKind kind = bulk_kind(in);
  AccessCounters &counters =
      warp.access(in, kind == BulkKind::store ? AccessKind::tma_store : AccessKind::tma_load);
  const bool is_elected = std::popcount(warp.active()) == 1;
  std::vector<BulkCopy> once;
  for_lanes(warp.active(), [&](int lane) {
    const BulkCopy copy = bulk_copy_of(warp, in, lane);
    if (kind == BulkKind::load || kind == BulkKind::store)
      warp.block().note_copy(in, std::uint32_t(copy.shared));
    counters.executed += is_issued(copy, once);
    if (const auto sectors = sectors_of(copy, is_elected)) {
      counters.sectors += *sectors;
      counters.bytes += *sectors * kSectorBytes;
    } else {
      ++counters.unmodelled;
    }
    if (copy.bytes == 0)
      return;
    if (copy.map && kind != BulkKind::prefetch)
      note_box(warp, in, copy);
    switch (kind) {
    case BulkKind::load:
      load(warp, in, copy, lane);
      break;
    case BulkKind::store:
      store(warp, copy, combine_of(in, copy, lane), lane);
      break;
    case BulkKind::exchange: {
      BulkCopyInFlight flight;
      flight.data.resize(copy.bytes);
      flight.late_source = warp.block().shared(copy.shared, copy.bytes, lane);
      flight.combine = combine_of(in, copy, lane);
      send_to_cluster(warp, lane, copy.other, copy.mbarrier, std::move(flight));
      break;
    }
    case BulkKind::prefetch:
      break;
    }
  });
}

machine::BulkGroups &groups_of(Warp &warp, int lane) {
  return warp.block().bulk_groups(warp.index() * 32 + lane);
}

void commit_group(Warp &warp, const Instruction &) {
  for_lanes(warp.active(), [&](int lane) { groups_of(warp, lane).commit(); });
}

/// imm: groups that may stay in flight; flags: wait only until the sources have been read.
void wait_group(Warp &warp, const Instruction &in) {
  for_lanes(warp.active(),
            [&](int lane) { groups_of(warp, lane).wait(warp.block(), std::size_t(in.imm), in.flags); });
}

// --- binding

void set_address(Binder &binder, const Operand &operand, std::vector<std::uint32_t> &words, Place place) {
  const Binder::Address address = binder.address(operand);
  words[place] = std::uint32_t(address.base);
  words[place + 1] = address.slot;
  words[place + 2] = std::uint32_t(address.offset);
  words[place + 3] = std::uint32_t(std::uint64_t(address.offset) >> 32);
}

/// [map, {coordinates}]
void set_box(Binder &binder, const Operand &operand, std::vector<std::uint32_t> &words) {
  if (operand.kind != Operand::Kind::address || operand.elements.size() != 2)
    binder.unsupported("a box is [tensor map, {coordinates}]");
  Operand map = operand;
  map.elements.resize(1);
  set_address(binder, map, words, kOther);
  const Operand &coordinates = operand.elements[1];
  const bool is_vector = coordinates.kind == Operand::Kind::vector;
  const std::size_t rank = is_vector ? coordinates.elements.size() : 1;
  unsigned named = 0;
  for (const std::string &modifier : binder.source.modifiers)
    if (modifier.size() == 2 && modifier[1] == 'd' && modifier[0] >= '1' && modifier[0] <= '5')
      named = unsigned(modifier[0] - '0');
  if (rank != named)
    binder.unsupported("the number of coordinates differs from the number of dimensions");
  words[kRank] = std::uint32_t(rank);
  for (std::size_t d = 0; d < rank; ++d)
    words[kCoordinates + d] =
        binder.source_slot(is_vector ? coordinates.elements[d] : coordinates, Type::s32);
}

void set_reduction(Binder &binder, bool is_tensor) {
  for (std::size_t i = 0; i < std::size(kReductions); ++i) {
    if (!binder.has(kReductions[i]))
      continue;
    if (is_tensor) {
      binder.out.flags |= std::uint32_t(i + 1) << kReductionShift;
      return;
    }
    const Combine found = find_reduction(kReductions[i], binder.type());
    if (!found)
      binder.unsupported("." + std::string(kReductions[i]) + " of ." +
                         std::string(ptx::type_name(binder.type())));
    binder.out.imm = std::int64_t(reinterpret_cast<std::uintptr_t>(found));
    return;
  }
  binder.unsupported("an unknown operation");
}

bool bind_group(Binder &binder) {
  if (binder.has("commit_group")) {
    binder.out.execute = commit_group;
    return true;
  }
  if (binder.operand(0).kind != Operand::Kind::integer)
    binder.unsupported("the number of groups is not a constant");
  binder.out.imm = std::int64_t(binder.operand(0).bits);
  binder.out.flags = binder.has("read");
  binder.out.execute = wait_group;
  return true;
}

} // namespace

BulkKind bulk_kind(const Instruction &in) { return BulkKind(in.flags & kKindBits); }

BulkCopy bulk_copy_of(Warp &warp, const Instruction &in, int lane) {
  const std::uint32_t *const words = warp.more(in);
  BulkCopy copy;
  copy.kind = bulk_kind(in);
  copy.reduces = in.imm != 0 || in.flags >> kReductionShift;
  if (copy.kind != BulkKind::prefetch)
    copy.shared = shared_address(warp, words + kShared, lane);
  copy.other = copy.kind == BulkKind::exchange ? shared_address(warp, words + kOther, lane)
                                               : operand_address(warp, words + kOther, lane);
  if (copy.kind == BulkKind::load || copy.kind == BulkKind::exchange)
    copy.mbarrier = shared_address(warp, words + kMbarrier, lane);
  if (in.flags & kMulticast)
    copy.cta_mask = warp.lanes<std::uint32_t>(words[kMask])[lane] & 0xffff;
  if (in.flags & kTensor) {
    copy.map = read_tensor_map(warp, copy.other, lane);
    if (copy.map->rank != words[kRank])
      throw FaultError(FaultKind::bad_operand,
                       "a tensor map of " + std::to_string(copy.map->rank) +
                           " dimensions for an instruction of " + std::to_string(words[kRank]),
                       lane)
          .at(copy.other);
    if (copy.kind != BulkKind::prefetch)
      require_tensor_in_memory(warp, *copy.map, lane);
    for (std::uint32_t d = 0; d < words[kRank]; ++d)
      copy.coordinates[d] = warp.lanes<std::int32_t>(words[kCoordinates + d])[lane];
    copy.bytes = copy.map->box_bytes();
    copy.shared_extent = place_of(copy).extent(std::uint32_t(copy.bytes));
  } else {
    copy.bytes = copy.shared_extent = warp.lanes<std::uint32_t>(words[kSize])[lane];
  }
  check_alignment(copy, lane);
  return copy;
}

bool bind_bulk_copy(Binder &binder) {
  since(binder, 90);
  if (binder.has("commit_group") || binder.has("wait_group"))
    return bind_group(binder);
  for (const std::string &modifier : binder.source.modifiers)
    if (modifier.starts_with("im2col") || modifier.starts_with("tile::") || modifier == "cp_mask" ||
        (modifier.starts_with("cta_group") && !binder.has("tensor")))
      binder.unsupported("." + modifier);
  if (binder.has("cta_group::1") || binder.has("cta_group::2"))
    needs_target(binder, {"sm_100a", "sm_100f"});
  const bool is_tensor = binder.has("tensor"), reduces = binder.has("reduce");
  const BulkKind kind = binder.has("prefetch")             ? BulkKind::prefetch
                        : binder.has("bulk_group")         ? BulkKind::store
                        : binder.has("global") && !reduces ? BulkKind::load
                                                           : BulkKind::exchange;
  machine::Instruction &out = binder.out;
  out.flags = std::uint32_t(kind) | (is_tensor ? kTensor : 0) | (binder.has("cta_group::2") ? kPair : 0);
  std::vector<std::uint32_t> words(kWords);
  std::size_t next = 0;
  const auto other = [&] {
    if (is_tensor)
      set_box(binder, binder.operand(next++), words);
    else
      set_address(binder, binder.operand(next++), words, kOther);
  };
  const auto shared = [&] { set_address(binder, binder.operand(next++), words, kShared); };
  if (kind == BulkKind::load) {
    shared();
    other();
  } else {
    other();
    if (kind != BulkKind::prefetch)
      shared();
  }
  if (!is_tensor)
    words[kSize] = binder.source_slot(next++, Type::u32);
  if (kind == BulkKind::load || kind == BulkKind::exchange) {
    if (!binder.has("mbarrier::complete_tx::bytes"))
      binder.unsupported("a bulk copy to shared memory without an mbarrier");
    set_address(binder, binder.operand(next++), words, kMbarrier);
  }
  if (binder.has("multicast::cluster")) {
    out.flags |= kMulticast;
    const Operand &mask = binder.operand(next++);
    words[kMask] = binder.source_slot(mask, Type::u16);
  }
  if (reduces)
    set_reduction(binder, is_tensor);
  binder.set_more(words);
  out.execute = bulk_copy;
  return true;
}

} // namespace ladder::instructions
