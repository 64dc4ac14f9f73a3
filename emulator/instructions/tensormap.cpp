// tensormap.replace and tensormap.cp_fenceproxy: "Data Movement and Conversion Instructions: Tensormap" of
// the PTX manual.
#include "instructions/addressing.h"
#include "instructions/elementwise.h"
#include "instructions/tensor_map.h"

#include <cstring>
#include <string>

namespace ladder::instructions {

using machine::FaultError;
using machine::FaultKind;
using program::Operand;
using ptx::Type;

namespace {

enum class Field : std::uint32_t {
  global_address,
  rank,
  box_dim,
  global_dim,
  global_stride,
  element_stride,
  elemtype,
  interleave_layout,
  swizzle_mode,
  fill_mode
};
constexpr std::string_view kFields[] = {"global_address", "rank",           "box_dim",  "global_dim",
                                        "global_stride",  "element_stride", "elemtype", "interleave_layout",
                                        "swizzle_mode",   "fill_mode"};

// op[0] the map's address, op[1] the value; flags above the address's: field, dimension, width.
constexpr std::uint32_t kFieldShift = kAddressFlagBits, kDimensionShift = 12;
constexpr std::uint32_t kWide = 1u << 15;

/// Decodes tensormap.replace's type codes, which differ from the driver's.
TensorMap::Type element_type(std::uint64_t code, int lane) {
  using enum TensorMap::Type;
  constexpr TensorMap::Type kTypes[] = {u8,  u16,     u32, s32,  u64,  s64,     f16,
                                        f32, f32_ftz, f64, bf16, tf32, tf32_ftz};
  if (code >= std::size(kTypes))
    throw FaultError(FaultKind::bad_operand, std::to_string(code) + " is not an element type", lane);
  return kTypes[code];
}

void set_field(TensorMap &map, Field field, std::uint32_t dimension, std::uint64_t value, int lane) {
  switch (field) {
  case Field::global_address:
    map.base = value;
    return;
  case Field::rank:
    map.rank = unsigned(std::min<std::uint64_t>(value + 1, kMostDimensions)); // zero-based
    return;
  case Field::box_dim:
    map.box[dimension] = std::uint32_t(value);
    return;
  case Field::global_dim:
    map.size[dimension] = value;
    return;
  case Field::global_stride:
    if (dimension + 1 < kMostDimensions)
      map.stride[dimension + 1] = value;
    return;
  case Field::element_stride:
    map.element_stride[dimension] = std::uint32_t(value);
    return;
  case Field::elemtype:
    map.type = element_type(value, lane);
    map.stride[0] = map.element_bytes();
    return;
  case Field::interleave_layout:
    map.interleave = std::uint8_t(std::min<std::uint64_t>(value, 0xff));
    return;
  case Field::swizzle_mode:
    if (value > std::uint64_t(Swizzle::b128))
      throw FaultError(FaultKind::bad_operand, std::to_string(value) + " is not a swizzle mode", lane);
    map.swizzle = Swizzle(value);
    return;
  case Field::fill_mode:
    map.fill = value ? TensorMap::Fill::nan : TensorMap::Fill::zeros;
    return;
  }
}

TensorMap load_map(const std::uint8_t *bytes, std::uint64_t address, int lane) {
  const std::optional<TensorMap> map = TensorMap::load_to_replace(bytes);
  if (!map)
    throw FaultError(FaultKind::bad_operand, "no tensor map is at this address", lane).at(address);
  return *map;
}

void replace(Warp &warp, const Instruction &in) {
  std::uint64_t addresses[32];
  lane_addresses(warp, address_base(in.flags), in.op[0], in.imm, addresses);
  for_lanes(warp.active(), [&](int lane) {
    std::uint8_t *const bytes =
        resolve_lane(warp, address_space(in.flags), lane, addresses[lane], kTensorMapBytes, Direction::write);
    TensorMap map = load_map(bytes, addresses[lane], lane);
    const std::uint64_t value = in.flags & kWide ? warp.lanes<std::uint64_t>(in.op[1])[lane]
                                                 : warp.lanes<std::uint32_t>(in.op[1])[lane];
    set_field(map, Field(in.flags >> kFieldShift & 15), in.flags >> kDimensionShift & 7, value, lane);
    map.store(bytes);
  });
}

/// op[0] the destination address, op[1] the source address; more: the source's offset.
void copy_with_fence(Warp &warp, const Instruction &in) {
  const std::uint32_t *const more = warp.more(in);
  std::uint64_t to[32], from[32];
  lane_addresses(warp, address_base(in.flags), in.op[0], in.imm, to);
  lane_addresses(warp, Binder::Address::Base(in.flags >> kAddressFlagBits & 7), in.op[1],
                 std::int64_t(more[0] | std::uint64_t(more[1]) << 32), from);
  const int lane = std::countr_zero(warp.active());
  std::uint8_t *const target =
      resolve_lane(warp, Space::global, lane, to[lane], kTensorMapBytes, Direction::write);
  const std::uint8_t *const source =
      resolve_lane(warp, Space::shared, lane, from[lane], kTensorMapBytes, Direction::read);
  std::memcpy(target, source, kTensorMapBytes);
}

bool bind_replace(Binder &binder) {
  machine::Instruction &out = binder.out;
  std::size_t field = 0;
  while (field < std::size(kFields) && !binder.has(kFields[field]))
    ++field;
  if (field == std::size(kFields))
    binder.unsupported("an unknown field");
  const Binder::Address place = binder.address(binder.operand(0));
  out.op[0] = place.slot;
  out.imm = place.offset;
  std::size_t next = 1;
  std::uint32_t dimension = 0;
  if (binder.operand_count() == 3) {
    const Operand &ordinal = binder.operand(next++);
    if (ordinal.kind != Operand::Kind::integer || ordinal.bits >= kMostDimensions)
      binder.unsupported("the dimension is not a constant from 0 to 4");
    dimension = std::uint32_t(ordinal.bits);
  }
  const bool wide = binder.has("b64");
  out.op[1] = binder.source_slot(next, wide ? Type::b64 : Type::b32);
  out.flags = address_flags(place.base, space_of(binder)) | std::uint32_t(field) << kFieldShift |
              dimension << kDimensionShift | (wide ? kWide : 0);
  out.execute = replace;
  return true;
}

bool bind_tensormap(Binder &binder) {
  since(binder, 90);
  if (binder.has("replace"))
    return bind_replace(binder);
  if (!binder.has("cp_fenceproxy"))
    return false;
  const Binder::Address to = binder.address(binder.operand(0)), from = binder.address(binder.operand(1));
  binder.out.op[0] = to.slot;
  binder.out.imm = to.offset;
  binder.out.op[1] = from.slot;
  binder.out.flags = address_flags(to.base, Space::global) | std::uint32_t(from.base) << kAddressFlagBits;
  binder.set_more({std::uint32_t(from.offset), std::uint32_t(std::uint64_t(from.offset) >> 32)});
  binder.out.execute = copy_with_fence;
  return true;
}

constexpr TableEntry kTable[] = {{"tensormap", bind_tensormap}};

} // namespace

std::span<const TableEntry> tensor_map_table() { return kTable; }

} // namespace ladder::instructions
