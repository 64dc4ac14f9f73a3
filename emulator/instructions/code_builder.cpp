#include "instructions/code_builder.h"

#include "machine/fault.h"
#include "machine/source_place.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <set>
#include <span>
#include <sstream>

namespace ladder::instructions {

using machine::FaultError;
using machine::FaultKind;
using program::Operand;
using ptx::StateSpace;

namespace {

std::span<const TableEntry> (*const kTables[])() = {
    cluster_table,    float_table,   integer_table, bits_table,   half_table,        compare_table,
    logic_table,      convert_table, move_table,    memory_table, atomic_table,      warp_table,
    async_copy_table, control_table, matrix_table,  wmma_table,   wgmma_table,       set_registers_table,
    tensor_map_table, texture_table, video_table,   stack_table,  tensor_core_table,
};

const std::unordered_map<std::string_view, std::vector<BindFunction>> &bind_functions() {
  static const auto all = [] {
    std::unordered_map<std::string_view, std::vector<BindFunction>> map;
    for (const auto table : kTables)
      for (const TableEntry &entry : table())
        map[entry.opcode].push_back(entry.bind);
    return map;
  }();
  return all;
}

} // namespace

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

std::shared_ptr<machine::Code> CodeBuilder::build() {
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
  shared_addresses_.clear();
  specials_.clear();
  scratch_.reset();
  mentions_.clear();
  accumulators_.clear();
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
    if (source.row->effect != program::Effect::none)
      out.site = code_->memory_sites++;
    if (source.is_poll())
      code_->polls.push_back(std::uint32_t(code_->instructions.size()));
    code_->instructions.push_back(out);
    code_->sources.push_back(&source);
    code_->owner.push_back(frame_index);
  }
  mark_settling();
  frame_.frame_bytes = frame_.register_bytes + std::uint32_t(frame_.constants.size());
  code_->frames.push_back(std::move(frame_));
}

/// Marks instructions that must wait for products in flight: those of this function that name an accumulator,
/// and those that leave the function. A product may keep adding to its own accumulators.
void CodeBuilder::mark_settling() {
  if (accumulators_.empty())
    return;
  const program::Function &function = program_->functions[current_function_];
  for (std::size_t i = 0; i < function.code.size(); ++i) {
    const program::Instruction &source = function.code[i];
    std::vector<std::uint32_t> touched;
    const std::function<void(const Operand &)> look = [&](const Operand &operand) {
      if (operand.kind == Operand::Kind::reg && accumulators_.contains(operand.reg.offset))
        touched.push_back(operand.reg.offset);
      for (const Operand &element : operand.elements)
        look(element);
    };
    for (std::size_t operand = source.is(program::Trait::lands_late) ? 1 : 0;
         operand < source.operands.size(); ++operand)
      look(source.operands[operand]);
    const bool leaves = source.is(program::Trait::calls) || source.is(program::Trait::returns);
    if (touched.empty() && !leaves)
      continue;
    if (leaves)
      touched.clear();
    const auto index = std::uint32_t(current_begin_ + i);
    code_->instructions[index].prologue |= machine::kPrologueSettle;
    code_->settles.emplace(index, std::move(touched));
  }
}

void CodeBuilder::bind(Binder &binder) {
  // Without an effect it would escape the sanitizer.
  const auto is_address = [](const Operand &operand) { return operand.kind == Operand::Kind::address; };
  if (binder.source.row->effect == program::Effect::none &&
      std::any_of(binder.source.operands.begin(), binder.source.operands.end(), is_address))
    binder.unsupported("it has an address operand, but opcodes.def gives it no effect on memory");
  const auto found = bind_functions().find(binder.source.opcode);
  if (found == bind_functions().end())
    binder.unsupported("this opcode is not modelled");
  for (const BindFunction function : found->second)
    if (function(binder))
      return;
  binder.unsupported("this form is not modelled");
}

std::vector<std::string_view> bound_opcodes() {
  std::vector<std::string_view> names;
  for (const auto &[opcode, functions] : bind_functions())
    names.push_back(opcode);
  return names;
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
          fault.own_line = machine::source_place(program_->module, *refusal.source).own_line;
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

std::uint32_t CodeBuilder::broadcast(std::uint64_t bits, unsigned lane_bytes) {
  const std::uint32_t place = reserve(std::size_t(lane_bytes) * program::kLanes);
  std::uint8_t *const lanes = frame_.constants.data() + (place - frame_.register_bytes);
  for (unsigned lane = 0; lane < program::kLanes; ++lane)
    std::memcpy(lanes + lane * lane_bytes, &bits,
                lane_bytes); // hosts are little-endian
  return place;
}

std::uint32_t CodeBuilder::constant(std::uint64_t bits, unsigned lane_bytes) {
  const auto [place, fresh] = constants_.try_emplace({bits, lane_bytes}, 0);
  if (fresh)
    place->second = broadcast(bits, lane_bytes);
  return place->second;
}

std::uint32_t CodeBuilder::shared_address(std::uint64_t offset, unsigned lane_bytes) {
  const auto [place, fresh] = shared_addresses_.try_emplace({offset, lane_bytes}, 0);
  if (fresh) {
    place->second = broadcast(offset, lane_bytes);
    frame_.shared_addresses.push_back({place->second, lane_bytes == 8});
  }
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
    return symbol.offset; // local and param: offset in the frame
  }
}

std::shared_ptr<machine::Code> bind_kernel(std::shared_ptr<const program::Program> program,
                                           std::uint32_t entry, const SymbolAddresses &addresses,
                                           const machine::VirtualGpu &gpu) {
  return CodeBuilder(std::move(program), entry, addresses, gpu).build();
}

} // namespace ladder::instructions
