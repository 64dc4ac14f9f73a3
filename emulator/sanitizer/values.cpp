// Tracks undefined values through registers, from loads of partly written memory to their uses.
#include "instructions/shuffle.h"
#include "machine/address_space.h"
#include "sanitizer/block_checker.h"

#include <algorithm>
#include <bit>

namespace ladder::sanitizer {

using instructions::for_lanes;
using machine::Instruction;
using machine::kAllLanes;
using machine::Warp;
using program::Effect;
using program::Operand;
using program::Register;

namespace {

constexpr std::uint32_t kHalfOf128 = 32 * sizeof(std::uint64_t); ///< from one half's slot to the other's

std::uint64_t all_bits(ptx::Type type) {
  return type == ptx::Type::pred ? 1 : low_bits(8 * std::min(ptx::type_bytes(type), 8u));
}

/// The registers of a vector or a pair, or the operand itself.
std::span<const Operand> parts_of(const Operand &operand) {
  using Kind = Operand::Kind;
  const bool has_parts =
      operand.kind == Kind::vector || operand.kind == Kind::pair || operand.kind == Kind::list;
  return has_parts ? std::span(operand.elements) : std::span(&operand, 1);
}

/// A register that a load or store moves an element to or from, as a slot. A .b128 is two elements.
std::optional<std::uint32_t> slot_of(const Operand &operand, unsigned element) {
  const std::span<const Operand> parts = parts_of(operand);
  if (parts.size() == 1 && parts[0].kind == Operand::Kind::reg && parts[0].reg.type == ptx::Type::b128)
    return parts[0].reg.offset + element * kHalfOf128;
  if (element >= parts.size() || parts[element].kind != Operand::Kind::reg)
    return std::nullopt;
  return parts[element].reg.offset;
}

/// True if it writes its first operand. Values from memory or from other threads are defined.
bool has_destination(const program::Instruction &source) {
  using namespace program::trait;
  return (source.is(writes_first) || source.is(lands_late) || source.is(calls)) && !source.operands.empty() &&
         source.operands[0].kind != Operand::Kind::address;
}

/// Bits that the bytes of a mask stand for.
std::uint64_t bits_of_bytes(std::uint32_t mask) {
  std::uint64_t bits = 0;
  for (unsigned i = 0; i < 8; ++i)
    bits |= (mask >> i & 1 ? std::uint64_t(0xff) : 0) << 8 * i;
  return bits;
}

std::uint32_t bytes_of_bits(std::uint64_t bits) {
  std::uint32_t mask = 0;
  for (unsigned i = 0; i < 8; ++i)
    mask |= std::uint32_t((bits >> 8 * i & 0xff) != 0) << i;
  return mask;
}

} // namespace

void BlockChecker::values(Warp &warp, const Instruction &in) {
  const Context at = context(warp, in);
  const bool follows = !undefined_registers(warp).empty();
  if (at.site.is_guarded) {
    const std::uint32_t here = warp.active(), taken = here & (warp.predicate(in.guard) ^ in.guard_invert);
    if (follows) [[unlikely]] {
      check_use(at, warp.source(in).guard, here, Where::decides_branch);
      report(at, 0);
    }
    block_.counters().idle_lanes[at.index] += std::uint64_t(std::popcount(here & ~taken));
    if (!taken)
      return;
    warp.restrict_active(taken);
  }
  if (follows) [[unlikely]] {
    check_uses(at);
    propagate(at);
  }
  if (at.site.product_uses && warp.source(in).row->effect != Effect::product) [[unlikely]]
    use_product_registers(at);
  at.site.next(warp, in);
}

// --- uses
// ---------------------------------------------------------------------------------------------------

/// An undefined register is reported once and then counts as defined.
void BlockChecker::check_use(const Context &at, const Register &reg, std::uint32_t lanes, Where use) {
  UndefinedRegisters &registers = undefined_registers(at.warp);
  const UndefinedRegisters::Value *const value = registers.find(at.warp.frame(), reg.offset);
  if (!value)
    return;
  bool is_used = false;
  for_lanes(lanes, [&](int lane) {
    if (!value->bits[std::size_t(lane)])
      return;
    is_used = true;
    const Access load{.epoch = 1,
                      .thread = std::uint16_t(at.thread(lane)),
                      .instruction = value->origin,
                      .block = block_index_};
    note({Kind::uninitialised, lane, 0, use, load, false, false});
  });
  if (is_used)
    registers.set(at.warp.frame(), reg.offset, lanes, {}, 0);
}

/// For a store: the elements that come from early loads and are entirely undefined.
void BlockChecker::check_early_loads(const Context &at, std::uint32_t lanes) {
  for (const Operand &part : parts_of(at.warp.source(at.in).operands.at(1))) {
    const auto *const value = part.kind == Operand::Kind::reg
                                  ? undefined_registers(at.warp).find(at.warp.frame(), part.reg.offset)
                                  : nullptr;
    if (!value || !early_loads_.contains(value->origin))
      continue;
    std::uint32_t undefined = 0;
    for_lanes(lanes, [&](int lane) {
      const std::uint64_t all = all_bits(part.reg.type);
      undefined |= std::uint32_t((value->bits[std::size_t(lane)] & all) == all) << lane;
    });
    check_use(at, part.reg, undefined, Where::is_stored);
  }
}

/// Uses of undefined values as addresses, as operands of atomics, or to decide a branch.
void BlockChecker::check_uses(const Context &at) {
  const program::Instruction &source = at.warp.source(at.in);
  for (const Operand &operand : source.operands)
    if (operand.kind == Operand::Kind::address && operand.elements.front().kind == Operand::Kind::reg)
      check_use(at, operand.elements.front().reg, at.warp.active(), Where::is_address);
  const std::size_t target = source.is(program::Trait::calls) ? 1 : 0;
  const bool may_jump = source.is(program::Trait::by_index) || source.is(program::Trait::calls);
  if (may_jump && target < source.operands.size() && source.operands[target].kind == Operand::Kind::reg)
    check_use(at, source.operands[target].reg, at.warp.active(), Where::decides_branch);
  if (source.row->effect == Effect::atomic)
    for (std::size_t i = has_destination(source) ? 1 : 0; i < source.operands.size(); ++i)
      for (const Operand &part : parts_of(source.operands[i]))
        if (part.kind == Operand::Kind::reg)
          check_use(at, part.reg, at.warp.active(), Where::is_stored);
  if (source.row->effect == Effect::store && !at.site.original) // arguments and results of calls
    check_early_loads(at, at.warp.active());
  if (source.is(program::Trait::returns) && at.warp.frame().caller)
    undefined_registers(at.warp).forget(at.warp.frame());
  report(at, 0);
}

// --- registers
// ----------------------------------------------------------------------------------------------

std::uint64_t BlockChecker::undefined_bits(const Context &at, const Operand &operand, int lane) {
  if (operand.kind != Operand::Kind::reg) {
    std::uint64_t bits = 0;
    for (const Operand &element : operand.elements)
      bits |= undefined_bits(at, element, lane);
    return bits;
  }
  const UndefinedRegisters &registers = undefined_registers(at.warp);
  std::uint64_t bits = 0;
  const unsigned halves = operand.reg.type == ptx::Type::b128 ? 2 : 1;
  for (unsigned half = 0; half < halves; ++half)
    if (const auto *const value = registers.find(at.warp.frame(), operand.reg.offset + half * kHalfOf128))
      bits |= value->bits[std::size_t(lane)];
  return bits;
}

Input BlockChecker::input(const Context &at, const Operand &operand, int lane) {
  Input input{operand.bits, undefined_bits(at, operand, lane)};
  if (operand.kind != Operand::Kind::reg)
    return input;
  const Register &reg = operand.reg;
  if (reg.type == ptx::Type::pred)
    input.value = at.warp.predicate(reg.offset) >> lane & 1;
  else
    input.value = program::lane_bytes(reg.type) > 4 ? at.warp.lanes<std::uint64_t>(reg.offset)[lane]
                                                    : at.warp.lanes<std::uint32_t>(reg.offset)[lane];
  if (operand.negated)
    input.value = ~input.value;
  return input;
}

void BlockChecker::define(const Context &at, const Operand &operand, std::uint32_t lanes,
                          const LaneBits &bits, std::uint32_t origin) {
  for (const Operand &part : parts_of(operand)) {
    if (part.kind != Operand::Kind::reg)
      continue;
    LaneBits own = bits;
    for (std::uint64_t &of_lane : own)
      of_lane &= all_bits(part.reg.type);
    const unsigned halves = part.reg.type == ptx::Type::b128 ? 2 : 1;
    for (unsigned half = 0; half < halves; ++half)
      undefined_registers(at.warp).set(at.warp.frame(), part.reg.offset + half * kHalfOf128, lanes, own,
                                       origin);
  }
}

/// The first source operand with undefined bits, in any lane; nullptr if there is none.
const UndefinedRegisters::Value *BlockChecker::first_undefined(const Context &at) {
  const UndefinedRegisters &registers = undefined_registers(at.warp);
  const program::Instruction &source = at.warp.source(at.in);
  for (std::size_t i = has_destination(source) ? 1 : 0; i < source.operands.size(); ++i)
    for (const Operand &part : parts_of(source.operands[i]))
      if (part.kind == Operand::Kind::reg)
        for (const std::uint32_t half : {0u, kHalfOf128})
          if (const auto *const value = registers.find(at.warp.frame(), part.reg.offset + half);
              value && (half == 0 || part.reg.type == ptx::Type::b128))
            return value;
  return nullptr;
}

/// Records what will be undefined after the instruction, which has not executed yet. Loads set their
/// registers later.
void BlockChecker::propagate(const Context &at) {
  const program::Instruction &source = at.warp.source(at.in);
  if (!has_destination(source))
    return;
  const Operand &to = source.operands[0];
  if (!first_undefined(at) && source.row->effect != Effect::load)
    return define(at, to, at.warp.active(), {}, 0);
  switch (source.row->effect) {
  case Effect::load:
    if (!at.site.bytes) // a load of parameters or constants
      define(at, to, at.warp.active(), {}, 0);
    return;
  case Effect::shuffle:
    return propagate_shuffle(at);
  case Effect::vote:
  case Effect::block_barrier:
    return propagate_warp(at);
  case Effect::none:
  case Effect::unchecked:
  case Effect::window:
    break;
  default:
    return define(at, to, at.warp.active(), {}, 0); // the result comes from memory or from other threads
  }
  if (source.is(program::Trait::calls))
    return define(at, to, at.warp.active(), {}, 0);
  if (source.is(program::Trait::warp_wide))
    return propagate_warp(at);
  if (source.is(program::Trait::moves) &&
      (to.kind == Operand::Kind::vector || source.operands[1].kind == Operand::Kind::vector))
    return unpack(at);
  propagate_lanes(at, rule_of(source));
}

void BlockChecker::propagate_lanes(const Context &at, Rule rule) {
  const program::Instruction &source = at.warp.source(at.in);
  const Operand &to = parts_of(source.operands[0])[0];
  const std::uint64_t all = to.kind == Operand::Kind::reg ? all_bits(to.reg.type) : ~std::uint64_t(0);
  std::vector<Input> inputs(source.operands.size() - 1);
  LaneBits bits{};
  for_lanes(at.warp.active(), [&](int lane) {
    for (std::size_t i = 0; i < inputs.size(); ++i)
      inputs[i] = input(at, source.operands[i + 1], lane);
    if (!inputs.empty())
      bits[std::size_t(lane)] = rule(source, inputs, all);
  });
  define(at, source.operands[0], at.warp.active(), bits, first_undefined(at)->origin);
}

/// mov between a register and a vector of registers.
void BlockChecker::unpack(const Context &at) {
  const program::Instruction &source = at.warp.source(at.in);
  const Operand &to = source.operands[0], &from = source.operands[1];
  const std::uint32_t load = first_undefined(at)->origin;
  const bool packs = from.kind == Operand::Kind::vector;
  const Operand &whole = packs ? to : from;
  const std::span<const Operand> parts = parts_of(packs ? from : to);
  const bool is_wide = whole.kind == Operand::Kind::reg && whole.reg.type == ptx::Type::b128;
  const unsigned width = unsigned((is_wide ? 16 : ptx::type_bytes(whole.reg.type)) * 8 / parts.size());
  std::vector<LaneBits> found(packs ? 2 : parts.size());
  for_lanes(at.warp.active(), [&](int lane) {
    const auto i = std::size_t(lane);
    for (unsigned part = 0; part < parts.size(); ++part) {
      const unsigned half = part * width / 64, shift = part * width % 64;
      if (packs) {
        found[half][i] |= (undefined_bits(at, parts[part], lane) & low_bits(width)) << shift;
      } else if (const auto *const value = undefined_registers(at.warp).find(
                     at.warp.frame(), whole.reg.offset + half * kHalfOf128)) {
        found[part][i] = value->bits[i] >> shift & low_bits(width);
      }
    }
  });
  if (!packs) {
    for (unsigned part = 0; part < parts.size(); ++part)
      define(at, parts[part], at.warp.active(), found[part], load);
  } else if (whole.kind == Operand::Kind::reg) {
    for (unsigned half = 0; half < (is_wide ? 2u : 1u); ++half)
      undefined_registers(at.warp).set(at.warp.frame(), whole.reg.offset + half * kHalfOf128,
                                       at.warp.active(), found[half], load);
  }
}

void BlockChecker::propagate_shuffle(const Context &at) {
  const program::Instruction &source = at.warp.source(at.in);
  const std::uint32_t load = first_undefined(at)->origin;
  LaneBits bits{};
  for_lanes(at.warp.active(), [&](int lane) {
    const Input by = input(at, source.operands[2], lane), clamp = input(at, source.operands[3], lane);
    const std::uint32_t from = instructions::source_lane(instructions::shuffle_mode(at.in), lane,
                                                         std::uint32_t(by.value), std::uint32_t(clamp.value));
    bits[std::size_t(lane)] = by.undefined | clamp.undefined
                                  ? ~std::uint64_t(0)
                                  : undefined_bits(at, source.operands[1], int(from & 31));
  });
  const std::span<const Operand> to = parts_of(source.operands[0]);
  define(at, to[0], at.warp.active(), bits, load);
  if (to.size() > 1)
    define(at, to[1], at.warp.active(), {}, 0);
}

/// Warp-wide exchanges: an undefined value in any lane makes all results undefined. In a product, a lane's
/// row of A affects the results of the four lanes of that row, and its column of B the lanes of that column.
void BlockChecker::propagate_warp(const Context &at) {
  const program::Instruction &source = at.warp.source(at.in);
  const std::uint32_t load = first_undefined(at)->origin, lanes = at.warp.active();
  const bool has_rows = source.is(program::Trait::fragments);
  LaneBits bits{};
  const auto spoil = [&](auto is_spoiled) {
    for (int lane = 0; lane < 32; ++lane)
      if (is_spoiled(lane))
        bits[std::size_t(lane)] = ~std::uint64_t(0);
  };
  for (std::size_t i = 1; i < source.operands.size(); ++i)
    for_lanes(lanes, [&](int lane) {
      if (!undefined_bits(at, source.operands[i], lane))
        return;
      if (has_rows && i == 1)
        spoil([=](int other) { return other / 4 == lane / 4; });
      else if (has_rows && i == 2)
        spoil([=](int other) { return other % 4 == lane / 4 / 2; });
      else if (has_rows)
        spoil([=](int other) { return other == lane; });
      else
        spoil([](int) { return true; });
    });
  define(at, source.operands[0], lanes, bits, load);
}

// --- memory
// -------------------------------------------------------------------------------------------------

void BlockChecker::define_loaded(const Context &at, std::uint32_t lanes) {
  const program::Instruction &source = at.warp.source(at.in);
  const unsigned bytes = at.site.element_bytes, elements = at.site.bytes / bytes;
  const bool extends_sign = !source.types.empty() && is_signed(source.types[0]);
  for (unsigned element = 0; element < elements; ++element) {
    const auto slot = slot_of(source.operands[0], element);
    if (!slot)
      continue;
    LaneBits bits{};
    for_lanes(lanes & partly_read_.lanes, [&](int lane) {
      std::uint64_t &own = bits[std::size_t(lane)];
      own = bits_of_bytes(std::uint32_t(partly_read_.masks[lane] >> element * bytes & low_bits(bytes)));
      if (extends_sign && own >> (8 * bytes - 1) & 1)
        own |= ~low_bits(8 * bytes);
    });
    undefined_registers(at.warp).set(at.warp.frame(), *slot, lanes, bits, at.index);
  }
  if (partly_read_.is_unwritten)
    early_loads_.insert(at.index);
}

/// Marks the bytes of a store whose values are undefined. In global memory, an element that is only partly
/// undefined is a struct with padding.
void BlockChecker::keep_undefined(const Context &at, const Reach &where) {
  const program::Instruction &source = at.warp.source(at.in);
  const unsigned bytes = at.site.element_bytes, elements = at.site.bytes / bytes;
  const machine::Dim3 block = block_.index();
  check_early_loads(at, where.global);
  for (unsigned element = 0; element < elements; ++element) {
    const auto slot = slot_of(source.operands.at(1), element);
    const auto *const value = slot ? undefined_registers(at.warp).find(at.warp.frame(), *slot) : nullptr;
    if (!value)
      continue;
    for_lanes(where.lanes(), [&](int lane) {
      const std::uint32_t mask = bytes_of_bits(value->bits[std::size_t(lane)] & low_bits(8 * bytes));
      const std::uint64_t address = where.address[lane] + element * bytes;
      if (where.shared >> lane & 1) {
        undefined_.set(address, bytes, mask, value->origin);
      } else if (where.local >> lane & 1) {
        LocalShadow &local = local_[std::size_t(at.warp.index())];
        for (unsigned i = 0; i < bytes; ++i)
          if (mask >> i & 1)
            local.states[std::size_t(lane) * local.bytes + address + i] = LocalShadow::undefined;
      } else if (where.global >> lane & 1 && mask == low_bits(bytes)) {
        const std::uint32_t number = launch_.source_of({block.x, block.y, block.z}, at.warp.index(),
                                                       1u << lane, at.index, value->origin);
        InitialisedMemory::Locked(launch_.initialised()).set_undefined(address, bytes, mask, number);
      }
    });
  }
}

} // namespace ladder::sanitizer
