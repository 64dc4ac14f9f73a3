#include "instructions/binder.h"

#include "instructions/code_builder.h"
#include "machine/address_space.h"
#include "machine/fault.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <set>
#include <sstream>
#include <unordered_map>

namespace ladder::instructions {

using machine::FaultError;
using machine::FaultKind;
using program::Operand;
using ptx::StateSpace;
using ptx::Type;

namespace {

unsigned slot_lane_bytes(Type type) { return ptx::type_bytes(type) > 4 ? 8 : 4; }

float narrow(std::uint64_t double_bits) { return float(std::bit_cast<double>(double_bits)); }

/// The bits of an immediate as an operand of `type`; nullopt when the literal does not fit the type.
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

std::span<const TableEntry> (*const kTables[])() = {
    integer_table, float_table,  half_table,   compare_table, logic_table,      convert_table,
    move_table,    memory_table, atomic_table, warp_table,    async_copy_table, control_table,
    matrix_table,  wmma_table,   video_table,  stack_table,
};

const std::unordered_map<std::string_view, std::vector<BindFunction>> &opcodes() {
  static const auto all = [] {
    std::unordered_map<std::string_view, std::vector<BindFunction>> map;
    for (const auto table : kTables)
      for (const TableEntry &entry : table())
        map[entry.opcode].push_back(entry.bind);
    return map;
  }();
  return all;
}

/// Instructions that a thread waits with: what a loop around them sees may change through another thread.
bool is_poll(const program::Instruction &instruction) {
  if (instruction.opcode == "ld")
    return instruction.has("volatile") || instruction.has("relaxed") || instruction.has("acquire") ||
           instruction.has("mmio");
  return instruction.opcode == "atom" || instruction.opcode == "nanosleep" ||
         instruction.opcode == "mbarrier";
}

} // namespace

// --- CodeBuilder

CodeBuilder::CodeBuilder(std::shared_ptr<const program::Program> program, std::uint32_t entry,
                         const SymbolAddresses &addresses, const machine::VirtualGpu &gpu)
    : program_(std::move(program)), addresses_(addresses), gpu_(gpu),
      code_(std::make_shared<machine::Code>()) {
  code_->program = program_;
  code_->layout = program::layout_kernel(*program_, entry);
  code_->kernel = program_->functions[entry].name;
  std::uint32_t begin = 0;
  for (const std::uint32_t index : code_->layout.functions) {
    begins_.push_back(begin);
    begin += std::uint32_t(program_->functions[index].code.size());
  }
}

std::shared_ptr<const machine::Code> CodeBuilder::build() {
  std::vector<Refusal> refusals;
  for (std::size_t i = 0; i < code_->layout.functions.size(); ++i)
    add_function(std::uint32_t(i), refusals);
  if (!refusals.empty())
    refuse(refusals);
  return code_;
}

void CodeBuilder::add_function(std::uint32_t frame_index, std::vector<Refusal> &refusals) {
  current_function_ = code_->layout.functions[frame_index];
  current_begin_ = begins_[frame_index];
  const program::Function &function = program_->functions[current_function_];
  frame_ = {};
  constants_.clear();
  specials_.clear();
  scratch_.reset();
  mentions_.clear();
  frame_.entry = current_begin_;
  frame_.program_function = current_function_;
  frame_.register_bytes = (function.frame_bytes + 63) & ~63u;
  frame_.local_bytes = function.local_bytes;
  frame_.param_area_bytes = function.param_area_bytes;

  for (const program::Instruction &source : function.code) {
    machine::Instruction out;
    if (source.guarded) {
      out.guard = source.guard.offset;
      out.guard_invert = source.guard_negated ? ~0u : 0;
      out.prologue |= machine::kPrologueGuard;
    }
    if (source.is_reconvergence_point)
      out.prologue |= machine::kPrologueReconverge;
    try {
      Binder binder(*this, source, out);
      bind(binder);
    } catch (const Unsupported &error) {
      refusals.push_back({&source, error.what()});
    }
    if (is_poll(source))
      code_->polls.push_back(std::uint32_t(code_->instructions.size()));
    code_->instructions.push_back(out);
    code_->sources.push_back(&source);
    code_->owner.push_back(frame_index);
  }
  frame_.frame_bytes = frame_.register_bytes + std::uint32_t(frame_.constants.size());
  code_->frames.push_back(std::move(frame_));
}

void CodeBuilder::bind(Binder &binder) {
  const auto found = opcodes().find(binder.source.opcode);
  if (found == opcodes().end())
    binder.unsupported("this opcode is not modelled");
  for (const BindFunction function : found->second)
    if (function(binder))
      return;
  binder.unsupported("this form is not modelled");
}

void CodeBuilder::refuse(const std::vector<Refusal> &refusals) const {
  std::ostringstream out;
  machine::Fault fault;
  std::set<std::string> seen;
  out << "not supported: ";
  for (const Refusal &refusal : refusals) {
    const std::string form = refusal.source->full_opcode();
    if (!seen.insert(form).second)
      continue;
    if (seen.size() > 1)
      out << "; ";
    out << form << " (" << refusal.why << ", PTX line " << refusal.source->ptx_line;
    if (refusal.source->location >= 0) {
      const auto &chain = program_->module.locations[std::size_t(refusal.source->location)].chain;
      const auto name = [&](const ptx::SourcePosition &place) {
        const auto file = program_->module.files.find(place.file);
        return file == program_->module.files.end() ? std::string("?") : file->second;
      };
      if (!chain.empty()) {
        out << ", " << name(chain.back()) << ":" << chain.back().line;
        if (fault.line == 0) {
          fault.file = name(chain.front());
          fault.line = chain.front().line;
          fault.kernel_file = name(chain.back());
          fault.kernel_line = chain.back().line;
        }
      }
    }
    out << ")";
  }
  FaultError error(FaultKind::unsupported, out.str());
  fault.kind = FaultKind::unsupported;
  fault.message = out.str();
  fault.kernel = code_->kernel;
  fault.opcode = refusals.front().source->full_opcode();
  fault.ptx_line = refusals.front().source->ptx_line;
  error.fault = std::move(fault);
  throw error;
}

std::uint32_t CodeBuilder::reserve(std::size_t bytes) {
  const std::size_t begin = (frame_.constants.size() + 63) & ~std::size_t(63);
  frame_.constants.resize(begin + bytes);
  return frame_.register_bytes + std::uint32_t(begin);
}

std::uint32_t CodeBuilder::constant(std::uint64_t bits, unsigned lane_bytes) {
  const auto [place, fresh] = constants_.try_emplace({bits, lane_bytes}, 0);
  if (!fresh)
    return place->second;
  place->second = reserve(std::size_t(lane_bytes) * program::kLanes);
  std::uint8_t *const lanes = frame_.constants.data() + (place->second - frame_.register_bytes);
  for (unsigned lane = 0; lane < program::kLanes; ++lane)
    std::memcpy(lanes + lane * lane_bytes, &bits,
                lane_bytes); // little endian, as every host of this emulator
  return place->second;
}

std::uint32_t CodeBuilder::predicate_constant(bool value) {
  const auto [place, fresh] = constants_.try_emplace({value, 0}, 0);
  if (!fresh)
    return place->second;
  place->second = reserve(4);
  const std::uint32_t mask = value ? ~0u : 0;
  std::memcpy(frame_.constants.data() + (place->second - frame_.register_bytes), &mask, 4);
  return place->second;
}

std::uint32_t CodeBuilder::special(program::Special special, bool wide) {
  const auto [place, fresh] = specials_.try_emplace({special, wide}, 0);
  if (!fresh)
    return place->second;
  place->second = reserve(std::size_t(wide ? 8 : 4) * program::kLanes);
  frame_.specials.push_back({special, place->second, wide});
  return place->second;
}

unsigned CodeBuilder::mentions(const std::string &name) {
  if (mentions_.empty()) {
    const std::function<void(const Operand &)> count = [&](const Operand &operand) {
      if (operand.kind == Operand::Kind::reg)
        ++mentions_[operand.name];
      for (const Operand &element : operand.elements)
        count(element);
    };
    for (const program::Instruction &instruction : program_->functions[current_function_].code)
      for (const Operand &operand : instruction.operands)
        count(operand);
  }
  const auto found = mentions_.find(name);
  return found == mentions_.end() ? 0 : found->second;
}

std::uint32_t CodeBuilder::scratch() {
  if (!scratch_)
    scratch_ = reserve(std::size_t(8) * program::kLanes);
  return *scratch_;
}

std::uint64_t CodeBuilder::symbol_address(std::uint32_t index) const {
  const program::Symbol &symbol = program_->symbols[index];
  switch (symbol.space) {
  case StateSpace::global:
  case StateSpace::constant:
    return index < addresses_.size() ? addresses_[index] : 0;
  case StateSpace::shared: {
    const auto place = code_->layout.shared_offsets.find(index);
    return gpu_.reserved_shared_bytes_per_block +
           (place == code_->layout.shared_offsets.end() ? 0 : place->second);
  }
  default:
    return symbol.offset; // local and param: within the frame
  }
}

// --- Binder

Binder::Binder(CodeBuilder &builder, const program::Instruction &source_, machine::Instruction &out_)
    : source(source_), out(out_), builder_(builder) {
  for (const std::string &modifier : source.modifiers)
    if (const auto type = ptx::type_from_name(modifier))
      types_.push_back(*type);
}

const machine::VirtualGpu &Binder::gpu() const { return builder_.gpu(); }

bool Binder::has(std::string_view modifier) const { return source.has(modifier); }

Type Binder::type(std::size_t i) const {
  if (i >= types_.size())
    unsupported("a type is missing");
  return types_[i];
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
    return builder_.constant(builder_.symbol_address(operand.symbol) + std::uint64_t(operand.offset),
                             lane_bytes);
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
    unsupported("an operand is no value of type ." + std::string(ptx::type_name(type)));
  return builder_.constant(*bits, lane_bytes);
}

std::uint32_t Binder::destination_slot(const Operand &operand, Type type) {
  if (operand.kind == Operand::Kind::sink)
    return builder_.scratch();
  if (operand.kind != Operand::Kind::reg)
    unsupported("the destination is no register");
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
    unsupported("an operand is no register");
  return operand.reg.offset;
}

Binder::Predicate Binder::predicate(const Operand &operand) {
  if (operand.kind == Operand::Kind::integer)
    return {builder_.predicate_constant(operand.bits != 0), operand.negated};
  if (operand.kind != Operand::Kind::reg || operand.reg.type != Type::pred)
    unsupported("an operand is no predicate");
  return {operand.reg.offset, operand.negated};
}

std::uint32_t Binder::destination_predicate(const Operand &operand) {
  if (operand.kind == Operand::Kind::sink)
    return builder_.scratch();
  if (operand.kind != Operand::Kind::reg || operand.reg.type != Type::pred)
    unsupported("the destination is no predicate");
  return operand.reg.offset;
}

/// Offsets are what the text says, however large; addresses wrap.
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
    default:
      return {Address::Base::absolute, 0, at};
    }
  }
  default:
    unsupported("an address of this form");
  }
}

bool Binder::is_named_again(const Operand &operand) const { return builder_.mentions(operand.name) > 1; }

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

std::shared_ptr<const machine::Code> bind_kernel(std::shared_ptr<const program::Program> program,
                                                 std::uint32_t entry, const SymbolAddresses &addresses,
                                                 const machine::VirtualGpu &gpu) {
  return CodeBuilder(std::move(program), entry, addresses, gpu).build();
}

} // namespace ladder::instructions
