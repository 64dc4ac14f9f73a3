#include "instructions/binder.h"

#include "instructions/code_builder.h"
#include "machine/address_space.h"

#include <algorithm>
#include <bit>
#include <optional>

namespace ladder::instructions {

using program::Operand;
using ptx::StateSpace;
using ptx::Type;

namespace {

unsigned slot_lane_bytes(Type type) { return ptx::type_bytes(type) > 4 ? 8 : 4; }

float narrow(std::uint64_t double_bits) { return float(std::bit_cast<double>(double_bits)); }

/// The bits of an immediate as an operand of `type`; nullopt if the literal does not fit.
std::optional<std::uint64_t> immediate_bits(const Operand &operand, Type type) {
  const unsigned bytes = ptx::type_bytes(type);
  const bool is_f32 = type == Type::f32 || type == Type::tf32;
  switch (operand.kind) {
  case Operand::Kind::integer:
    if (is_f32 || type == Type::f64)
      return std::nullopt;
    return bytes >= 8 ? operand.bits : operand.bits & ((std::uint64_t(1) << (8 * bytes)) - 1);
  case Operand::Kind::float32:
    if (type == Type::f64)
      return std::bit_cast<std::uint64_t>(double(std::bit_cast<float>(std::uint32_t(operand.bits))));
    return operand.bits;
  case Operand::Kind::float64:
    return bytes >= 8 ? operand.bits : std::bit_cast<std::uint32_t>(narrow(operand.bits));
  default:
    return std::nullopt;
  }
}

} // namespace

Binder::Binder(CodeBuilder &builder, const program::Instruction &source_, machine::Instruction &out_)
    : source(source_), out(out_), builder_(builder) {}

const machine::VirtualGpu &Binder::gpu() const { return builder_.gpu(); }

bool Binder::has(std::string_view modifier) const { return source.has(modifier); }

Type Binder::type(std::size_t i) const {
  if (i >= source.types.size())
    unsupported("a type is missing");
  return source.types[i];
}

const Operand &Binder::operand(std::size_t i) const {
  if (i >= source.operands.size())
    unsupported("operand " + std::to_string(i + 1) + " is missing");
  return source.operands[i];
}

bool Binder::is_sink(std::size_t i) const { return operand(i).kind == Operand::Kind::sink; }

std::uint32_t Binder::source_slot(const Operand &operand, Type type) {
  const unsigned lane_bytes = slot_lane_bytes(type);
  switch (operand.kind) {
  case Operand::Kind::reg:
    if (operand_lane_bytes(operand) != lane_bytes)
      unsupported("register " + operand.name + " is not as wide as ." + std::string(ptx::type_name(type)));
    return operand.reg.offset;
  case Operand::Kind::special:
    return builder_.special(operand.special, lane_bytes == 8);
  case Operand::Kind::symbol: {
    const program::Symbol &symbol = builder_.program().symbols[operand.symbol];
    if ((symbol.space == StateSpace::local && !builder_.in_entry()) || symbol.space == StateSpace::param)
      unsupported("the address of " + operand.name + " depends on the call");
    const std::uint64_t address = builder_.symbol_address(operand.symbol) + std::uint64_t(operand.offset);
    return symbol.space == StateSpace::shared ? builder_.shared_address(address, lane_bytes)
                                              : builder_.constant(address, lane_bytes);
  }
  case Operand::Kind::parameter:
    return builder_.constant(std::uint64_t(operand.offset), lane_bytes);
  case Operand::Kind::function: {
    if (operand.function < 0)
      unsupported("the address of the external function " + operand.name);
    return builder_.constant(machine::kFunctionWindow + std::uint64_t(operand.function) * 16, lane_bytes);
  }
  default:
    break;
  }
  const auto bits = immediate_bits(operand, type);
  if (!bits)
    unsupported("an operand is not a value of type ." + std::string(ptx::type_name(type)));
  return builder_.constant(*bits, lane_bytes);
}

std::uint32_t Binder::destination_slot(const Operand &operand, Type type) {
  if (operand.kind == Operand::Kind::sink)
    return builder_.scratch();
  if (operand.kind != Operand::Kind::reg)
    unsupported("the destination is not a register");
  if (operand_lane_bytes(operand) != slot_lane_bytes(type))
    unsupported("register " + operand.name + " is not as wide as ." + std::string(ptx::type_name(type)));
  return operand.reg.offset;
}

unsigned Binder::operand_lane_bytes(const Operand &operand) const {
  return operand.kind == Operand::Kind::reg ? program::lane_bytes(operand.reg.type) : 0;
}

std::uint32_t Binder::raw_slot(const Operand &operand) {
  if (operand.kind == Operand::Kind::sink)
    return builder_.scratch();
  if (operand.kind != Operand::Kind::reg)
    unsupported("an operand is not a register");
  return operand.reg.offset;
}

Binder::Predicate Binder::predicate(const Operand &operand) {
  if (operand.kind == Operand::Kind::integer)
    return {builder_.predicate_constant(operand.bits != 0), operand.negated};
  if (operand.kind != Operand::Kind::reg || operand.reg.type != Type::pred)
    unsupported("an operand is not a predicate");
  return {operand.reg.offset, operand.negated};
}

std::uint32_t Binder::destination_predicate(const Operand &operand) {
  if (operand.kind == Operand::Kind::sink)
    return builder_.scratch();
  if (operand.kind != Operand::Kind::reg || operand.reg.type != Type::pred)
    unsupported("the destination is not a predicate");
  return operand.reg.offset;
}

/// Offsets come from the PTX and may have any size; addresses wrap.
static std::int64_t wrapping_sum(std::int64_t a, std::int64_t b) {
  return std::int64_t(std::uint64_t(a) + std::uint64_t(b));
}

Binder::Address Binder::address(const Operand &operand) {
  const bool bracketed = operand.kind == Operand::Kind::address;
  if (bracketed && operand.elements.size() != 1)
    unsupported("an address of this form");
  const Operand &base = bracketed ? operand.elements.front() : operand;
  const std::int64_t offset = bracketed ? wrapping_sum(operand.offset, base.offset) : base.offset;
  switch (base.kind) {
  case Operand::Kind::reg:
    return {operand_lane_bytes(base) == 8 ? Address::Base::reg64 : Address::Base::reg32, base.reg.offset,
            offset};
  case Operand::Kind::integer:
    return {Address::Base::absolute, 0, wrapping_sum(std::int64_t(base.bits), offset)};
  case Operand::Kind::parameter:
    return {builder_.in_entry() ? Address::Base::entry_param : Address::Base::param_area, 0, offset};
  case Operand::Kind::symbol: {
    const std::int64_t at = wrapping_sum(std::int64_t(builder_.symbol_address(base.symbol)), offset);
    switch (builder_.program().symbols[base.symbol].space) {
    case StateSpace::local:
      return {Address::Base::local_frame, 0, at};
    case StateSpace::param:
      return {Address::Base::param_area, 0, at};
    case StateSpace::shared:
      return {Address::Base::shared_variable, 0, at};
    default:
      return {Address::Base::absolute, 0, at};
    }
  }
  default:
    unsupported("an address of this form");
  }
}

bool Binder::is_named_again(const Operand &operand) const { return builder_.mentions(operand.name) > 1; }

const std::string &Binder::target() const { return builder_.program().module.target; }

void Binder::note_accumulators(const std::vector<std::uint32_t> &slots) { builder_.note_accumulators(slots); }

void Binder::set_more(const std::vector<std::uint32_t> &slots) { out.more_begin = builder_.add_more(slots); }

int Binder::frame_index(const Operand &operand) const {
  if (operand.kind != Operand::Kind::function || operand.function < 0)
    return -1;
  const auto &functions = builder_.layout().functions;
  const auto place = std::find(functions.begin(), functions.end(), std::uint32_t(operand.function));
  return place == functions.end() ? -1 : int(place - functions.begin());
}

std::uint32_t Binder::code_index(std::uint32_t function_local_index) const {
  return function_local_index == program::kNoReconvergence ? program::kNoReconvergence
                                                           : builder_.current_begin() + function_local_index;
}

void Binder::unsupported(const std::string &why) const { throw Unsupported(why); }

} // namespace ladder::instructions
