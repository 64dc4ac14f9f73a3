#include "sanitizer/undefined.h"

#include "instructions/lanes.h"
#include "ptx/ast.h"

#include <algorithm>
#include <vector>

namespace ladder::sanitizer {

void UndefinedBytes::set(std::uint64_t address, unsigned bytes, std::uint32_t mask, std::uint32_t origin) {
  for (unsigned i = 0; i < bytes; ++i)
    if (mask >> i & 1)
      origins_[address + i] = origin;
    else
      origins_.erase(address + i);
}

void UndefinedBytes::clear(std::uint64_t address, std::uint64_t bytes) {
  if (!empty())
    origins_.erase(origins_.lower_bound(address), origins_.lower_bound(address + bytes));
}

std::uint32_t UndefinedBytes::mask(std::uint64_t address, unsigned bytes) const {
  std::uint32_t mask = 0;
  for (auto at = origins_.lower_bound(address); at != origins_.end() && at->first < address + bytes; ++at)
    mask |= 1u << (at->first - address);
  return mask;
}

void UndefinedBytes::copy(std::uint64_t destination, std::uint64_t source, std::uint64_t bytes) {
  const std::vector<std::pair<std::uint64_t, std::uint32_t>> copied(origins_.lower_bound(source),
                                                                    origins_.lower_bound(source + bytes));
  clear(destination, bytes);
  for (const auto &[address, origin] : copied)
    origins_[destination + (address - source)] = origin;
}

std::optional<UndefinedBytes::Found> UndefinedBytes::find(std::uint64_t address, std::uint64_t bytes) const {
  const auto first = origins_.lower_bound(address), end = origins_.lower_bound(address + bytes);
  if (first == end)
    return std::nullopt;
  return Found{first->first, std::uint64_t(std::distance(first, end)), first->second};
}

const UndefinedRegisters::Value *UndefinedRegisters::find(const machine::Frame &frame,
                                                          std::uint32_t offset) const {
  const auto found = values_.find({&frame, offset});
  return found == values_.end() ? nullptr : &found->second;
}

void UndefinedRegisters::set(const machine::Frame &frame, std::uint32_t offset, std::uint32_t lanes,
                             const LaneBits &bits, std::uint32_t origin) {
  const auto is_set = [](std::uint64_t of_lane) { return of_lane != 0; };
  auto found = values_.find({&frame, offset});
  if (found == values_.end()) {
    bool any = false;
    instructions::for_lanes(lanes, [&](int lane) { any = any || bits[std::size_t(lane)]; });
    if (!any)
      return;
    found = values_.try_emplace({&frame, offset}).first;
    found->second.origin = origin;
  }
  instructions::for_lanes(lanes, [&](int lane) {
    found->second.bits[std::size_t(lane)] = bits[std::size_t(lane)];
    if (bits[std::size_t(lane)])
      found->second.origin = origin;
  });
  if (std::ranges::none_of(found->second.bits, is_set))
    values_.erase(found);
}

void UndefinedRegisters::forget(const machine::Frame &frame) {
  values_.erase(values_.lower_bound({&frame, 0}), values_.upper_bound({&frame, ~0u}));
}

// --- the undefined bits of a result
// --------------------------------------------------------------------------

namespace {

using program::Instruction;
using Inputs = std::span<const Input>;

bool any_undefined(Inputs inputs, std::uint64_t bits = ~std::uint64_t(0)) {
  return std::ranges::any_of(inputs, [=](const Input &input) { return input.undefined & bits; });
}

bool is_integer(ptx::Type type) { return type >= ptx::Type::b8 && type <= ptx::Type::s64; }
unsigned width_of(std::uint64_t all) { return unsigned(std::bit_width(all)); }

/// A value of `width` bits, extended by its uppermost bit.
std::uint64_t extended(std::uint64_t undefined, unsigned width) {
  undefined &= low_bits(width);
  return undefined >> (width - 1) & 1 ? undefined | ~low_bits(width) : undefined;
}

std::uint64_t everything(const Instruction &, Inputs inputs, std::uint64_t all) {
  return any_undefined(inputs) ? all : 0;
}

std::uint64_t by_type(const Instruction &source, Inputs inputs, std::uint64_t all) {
  if (!source.is(program::Trait::two_halves))
    return everything(source, inputs, all);
  const std::uint64_t low = 0xffff, high = low << 16;
  return ((any_undefined(inputs, low) ? low : 0) | (any_undefined(inputs, high) ? high : 0)) & all;
}

std::uint64_t of_mov(const Instruction &, Inputs inputs, std::uint64_t all) {
  return inputs[0].undefined & all;
}

std::uint64_t of_and(const Instruction &, Inputs inputs, std::uint64_t all) {
  const auto [a, u] = inputs[0];
  const auto [b, v] = inputs[1];
  return (u | v) & (a | u) & (b | v) & all; // a zero decides
}

std::uint64_t of_or(const Instruction &, Inputs inputs, std::uint64_t all) {
  const auto [a, u] = inputs[0];
  const auto [b, v] = inputs[1];
  return (u | v) & (~a | u) & (~b | v) & all; // a one decides
}

std::uint64_t of_xor(const Instruction &, Inputs inputs, std::uint64_t all) {
  return (inputs[0].undefined | inputs[1].undefined) & all;
}

/// Tries both values of all undefined bits.
std::uint64_t of_lop3(const Instruction &source, Inputs inputs, std::uint64_t all) {
  if (inputs.size() != 4)
    return everything(source, inputs, all);
  std::uint64_t ones = 0, zeros = 0;
  for (unsigned choice = 0; choice < 8; ++choice) {
    std::uint64_t chosen[3];
    for (unsigned i = 0; i < 3; ++i)
      chosen[i] =
          choice >> i & 1 ? inputs[i].value | inputs[i].undefined : inputs[i].value & ~inputs[i].undefined;
    std::uint64_t result = 0;
    for (unsigned term = 0; term < 8; ++term)
      if (inputs[3].value >> term & 1)
        result |= (term & 4 ? chosen[0] : ~chosen[0]) & (term & 2 ? chosen[1] : ~chosen[1]) &
                  (term & 1 ? chosen[2] : ~chosen[2]);
    ones |= result;
    zeros |= ~result;
  }
  return ones & zeros & all;
}

std::uint64_t of_shl(const Instruction &, Inputs inputs, std::uint64_t all) {
  const std::uint64_t by = inputs[1].value;
  return inputs[1].undefined ? all : by >= width_of(all) ? 0 : inputs[0].undefined << by & all;
}

std::uint64_t of_shr(const Instruction &source, Inputs inputs, std::uint64_t all) {
  if (inputs[1].undefined)
    return all;
  const std::uint64_t by = inputs[1].value;
  if (!is_signed(source.types.at(0)))
    return by >= width_of(all) ? 0 : (inputs[0].undefined & all) >> by;
  const auto bits = std::int64_t(extended(inputs[0].undefined, width_of(all)));
  return std::uint64_t(bits >> std::min<std::uint64_t>(by, 63)) & all;
}

std::uint64_t of_shf(const Instruction &source, Inputs inputs, std::uint64_t all) {
  if (inputs[2].undefined)
    return all;
  const std::uint64_t both = inputs[1].undefined << 32 | (inputs[0].undefined & 0xffffffff);
  const std::uint64_t by =
      source.is(program::Trait::wraps) ? inputs[2].value & 31 : std::min<std::uint64_t>(inputs[2].value, 32);
  return (source.is(program::Trait::leftwards) ? both << by >> 32 : both >> by) & all;
}

std::uint64_t of_prmt(const Instruction &source, Inputs inputs, std::uint64_t all) {
  if (inputs[2].undefined || source.is(program::Trait::by_mode))
    return everything(source, inputs, all);
  const std::uint64_t both = inputs[1].undefined << 32 | (inputs[0].undefined & 0xffffffff);
  std::uint64_t result = 0;
  for (unsigned i = 0; i < 4; ++i) {
    const std::uint64_t selector = inputs[2].value >> 4 * i, byte = both >> 8 * (selector & 7) & 0xff;
    result |= (selector & 8 ? (byte >> 7) * 0xff : byte) << 8 * i;
  }
  return result & all;
}

std::uint64_t of_bfe(const Instruction &source, Inputs inputs, std::uint64_t all) {
  const unsigned first = inputs[1].value & 0xff, count = inputs[2].value & 0xff;
  if (inputs[1].undefined || inputs[2].undefined || first >= width_of(all))
    return everything(source, inputs, all);
  if (count == 0)
    return 0;
  const std::uint64_t field = (inputs[0].undefined & all) >> first & low_bits(count);
  const unsigned there = std::min(count, width_of(all) - first);
  return (is_signed(source.types.at(0)) ? extended(field, there) : field) & all;
}

std::uint64_t of_bfi(const Instruction &source, Inputs inputs, std::uint64_t all) {
  const unsigned first = inputs[2].value & 0xff, count = inputs[3].value & 0xff;
  if (inputs[2].undefined || inputs[3].undefined || first >= width_of(all))
    return everything(source, inputs, all);
  const std::uint64_t field = low_bits(count) << first;
  return ((inputs[1].undefined & ~field) | (inputs[0].undefined << first & field)) & all;
}

std::uint64_t of_cvt(const Instruction &source, Inputs inputs, std::uint64_t all) {
  const std::vector<ptx::Type> &types = source.types;
  if (inputs.size() == 2 && !types.empty() &&
      ptx::type_bytes(types[0]) == 4) // packs two values, the upper one first
    return ((inputs[0].undefined ? 0xffff0000 : 0) | (inputs[1].undefined ? 0xffff : 0)) & all;
  if (types.size() != 2 || !is_integer(types[0]) || !is_integer(types[1]) ||
      source.is(program::Trait::saturates))
    return everything(source, inputs, all);
  const unsigned width = 8 * ptx::type_bytes(types[1]);
  return (is_signed(types[1]) ? extended(inputs[0].undefined, width)
                              : inputs[0].undefined & low_bits(width)) &
         all;
}

std::uint64_t of_selp(const Instruction &, Inputs inputs, std::uint64_t all) {
  return inputs[2].undefined ? all : inputs[inputs[2].value & 1 ? 0 : 1].undefined & all;
}

/// In the order of program::BitRule.
constexpr Rule kRules[] = {by_type, everything, of_mov,  of_and, of_or,  of_xor,  of_lop3, of_shl,
                           of_shr,  of_shf,     of_prmt, of_bfe, of_bfi, of_selp, of_cvt};
static_assert(std::size(kRules) == std::size_t(program::BitRule::converts) + 1);

} // namespace

Rule rule_of(const Instruction &source) { return kRules[std::size_t(source.row->bits)]; }

} // namespace ladder::sanitizer
