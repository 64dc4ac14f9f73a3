#include "sanitizer/origins.h"

#include <algorithm>
#include <string>
#include <unordered_map>

namespace ladder::sanitizer {

namespace {

using program::Instruction;
using program::Operand;

/// The shared variables that a value may point into: none, one, or several.
struct Origin {
  enum class Kind { none, one, several } kind = Kind::none;
  std::uint32_t symbol = 0;
  bool operator==(const Origin &) const = default;

  void join(const Origin &other) {
    if (other.kind == Kind::none)
      return;
    if (kind == Kind::none)
      *this = other;
    else if (*this != other)
      kind = Kind::several;
  }
};

/// Origins of a function's registers, over all paths.
class Origins {
public:
  Origins(const machine::Code &code, std::size_t begin, std::size_t end) : code_(code) {
    for (bool changed = true; changed;) {
      changed = false;
      for (std::size_t i = begin; i < end; ++i)
        if (code.sources[i])
          changed |= define(*code.sources[i]);
    }
    for (std::size_t i = begin; i < end; ++i)
      if (code.sources[i])
        note_constant(*code.sources[i]);
  }

  Origin of(const Operand &operand) const {
    const Operand &base = operand.kind == Operand::Kind::address ? operand.elements.front() : operand;
    if (base.kind == Operand::Kind::reg) {
      const auto found = registers_.find(base.name);
      return found == registers_.end() ? Origin() : found->second;
    }
    if (base.kind != Operand::Kind::symbol ||
        code_.program->symbols[base.symbol].space != ptx::StateSpace::shared)
      return {};
    return {Origin::Kind::one, base.symbol};
  }

  bool is_constant(const Operand &operand) const {
    switch (operand.kind) {
    case Operand::Kind::integer:
    case Operand::Kind::float32:
    case Operand::Kind::float64:
      return true;
    case Operand::Kind::reg: {
      const auto found = is_constant_.find(operand.name);
      return found != is_constant_.end() && found->second;
    }
    default:
      return !operand.elements.empty() && std::all_of(operand.elements.begin(), operand.elements.end(),
                                                      [&](const Operand &each) { return is_constant(each); });
    }
  }

private:
  bool define(const Instruction &source) {
    if (!source.row->is(program::trait::offsets) || source.operands.empty() ||
        source.operands[0].kind != Operand::Kind::reg)
      return false;
    Origin &destination = registers_[source.operands[0].name];
    const Origin before = destination;
    for (std::size_t i = 1; i < source.operands.size(); ++i)
      destination.join(of(source.operands[i]));
    return destination != before;
  }

  void note_constant(const Instruction &source) {
    if (source.operands.empty() || source.operands[0].kind != Operand::Kind::reg ||
        source.row->effect == program::Effect::store)
      return;
    const bool constant = source.row->is(program::trait::moves) && source.operands.size() == 2 &&
                          source.operands[1].kind != Operand::Kind::reg && is_constant(source.operands[1]);
    const auto [found, is_new] = is_constant_.try_emplace(source.operands[0].name, constant);
    if (!is_new)
      found->second = found->second && constant;
  }

  const machine::Code &code_;
  // By name, since several registers share a frame slot.
  std::unordered_map<std::string, Origin> registers_;
  std::unordered_map<std::string, bool> is_constant_;
};

void describe(const machine::Code &code, const Instruction &source, const Origins &origins, Site &site) {
  if (source.row->effect == program::Effect::store)
    site.stores_constant = origins.is_constant(source.operands.at(1));
  const std::size_t address =
      source.row->effect == program::Effect::load || source.row->effect == program::Effect::matrix_load ||
              (source.row->effect == program::Effect::atomic && source.row->is(program::trait::writes_first))
          ? 1
          : 0;
  const Origin origin = origins.of(source.operands.at(address));
  if (origin.kind != Origin::Kind::one || code.program->symbols[origin.symbol].is_dynamic_shared)
    return;
  const auto place = code.layout.shared_offsets.find(origin.symbol);
  if (place == code.layout.shared_offsets.end())
    return;
  site.object_begin = std::uint32_t(place->second);
  site.object_end = std::uint32_t(place->second + code.program->symbols[origin.symbol].bytes);
}

} // namespace

void find_origins(const machine::Code &code, std::vector<Site> &sites) {
  using program::Effect;
  for (std::size_t begin = 0; begin < code.instructions.size();) {
    std::size_t end = begin;
    while (end < code.instructions.size() && code.owner[end] == code.owner[begin])
      ++end;
    const Origins origins(code, begin, end);
    for (std::size_t i = begin; i < end; ++i) {
      if (!code.sources[i])
        continue;
      const Effect effect = code.sources[i]->row->effect;
      for (const Effect each : {Effect::load, Effect::store, Effect::atomic, Effect::matrix_load,
                                Effect::matrix_store, Effect::copy})
        if (effect == each)
          describe(code, *code.sources[i], origins, sites[i]);
    }
    begin = end;
  }
}

} // namespace ladder::sanitizer
