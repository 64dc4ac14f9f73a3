#include "sanitizer/origins.h"

#include "sanitizer/shadow.h"

#include <algorithm>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>

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

  /// The number, if the operand is a literal.
  std::optional<std::uint64_t> constant(const Operand &operand) const {
    if (operand.kind == Operand::Kind::integer)
      return operand.bits;
    if (operand.kind != Operand::Kind::reg || !is_constant(operand) || several_.contains(operand.name))
      return std::nullopt;
    return constants_.at(operand.name);
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
    if (!source.is(program::Trait::offsets) || source.operands.empty() ||
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
    const bool constant = source.is(program::Trait::moves) && source.operands.size() == 2 &&
                          source.operands[1].kind != Operand::Kind::reg && is_constant(source.operands[1]);
    const auto [found, is_new] = is_constant_.try_emplace(source.operands[0].name, constant);
    if (!is_new)
      found->second = found->second && constant;
    if (constant && !constants_.try_emplace(source.operands[0].name, source.operands[1].bits).second)
      several_.insert(source.operands[0].name);
  }

  const machine::Code &code_;
  // By name, since several registers share a frame slot.
  std::unordered_map<std::string, Origin> registers_;
  std::unordered_map<std::string, bool> is_constant_;
  std::unordered_map<std::string, std::uint64_t> constants_; ///< the first that a register gets
  std::unordered_set<std::string> several_;                  ///< registers that get more than one
};

const Operand &address_of(const Instruction &source) {
  const bool has_destination =
      source.row->effect == program::Effect::load || source.row->effect == program::Effect::matrix_load ||
      (source.row->effect == program::Effect::atomic && source.is(program::Trait::writes_first));
  return source.operands.at(has_destination ? 1 : 0);
}

/// Addresses at which a race is harmless, judging by the code of a function: those of a compare-and-swap,
/// which corrects a wrong guess, and flags, which only ever receive one constant and are tested before.
class Places {
public:
  Places(const machine::Code &code, std::size_t begin, std::size_t end, const Origins &origins) {
    for (std::size_t i = begin; i < end; ++i)
      if (code.sources[i]) {
        note_uses(*code.sources[i]);
        if (!code.sources[i]->is(program::Trait::in_shared))
          note(*code.sources[i], std::uint32_t(i + 1), origins);
      }
  }

  void describe(const Instruction &source, Site &site) const {
    const bool loads = source.row->effect == program::Effect::load;
    if (source.is(program::Trait::in_shared) || !(loads || source.row->effect == program::Effect::store))
      return;
    if (const auto flag = flags_.find(name(source)); flag != flags_.end() && is_flag(flag->second))
      site.flag = flag->second.number;
    if (loads && !(site.flags & Access::strong) && swapped_.contains(name(source)))
      site.flags |= Access::guess;
  }

private:
  struct Flag {
    std::uint32_t number;                 ///< of the first load
    std::vector<std::string> loaded{};    ///< the registers that hold the loaded value
    std::optional<std::uint64_t> value{}; ///< the stored value
    bool is_odd = false;                  ///< stored before it is loaded, or more than one value
  };

  void note(const Instruction &source, std::uint32_t number, const Origins &origins) {
    using program::Effect;
    if (source.row->effect == Effect::atomic && source.is(program::Trait::swaps))
      swapped_.insert(name(source));
    if (source.row->effect == Effect::load)
      flags_.try_emplace(name(source), Flag{.number = number})
          .first->second.loaded.push_back(source.operands.at(0).name);
    if (source.row->effect == Effect::store) {
      const auto value = origins.constant(source.operands.at(1));
      const auto found = flags_.find(name(source));
      if (found == flags_.end())
        flags_[name(source)].is_odd = true;
      else if (!value || found->second.value.value_or(*value) != *value)
        found->second.is_odd = true;
      else
        found->second.value = value;
    }
  }

  /// A comparison alone only sets a predicate.
  void note_uses(const Instruction &source) {
    const bool compares = !source.operands.empty() && source.operands[0].kind == Operand::Kind::reg &&
                          source.operands[0].reg.type == ptx::Type::pred;
    const std::size_t first = source.row->effect == program::Effect::store ? 0 : 1;
    for (std::size_t i = first; i < source.operands.size() && !compares; ++i) {
      used_otherwise_.insert(source.operands[i].name);
      for (const Operand &element : source.operands[i].elements)
        used_otherwise_.insert(element.name);
    }
  }

  bool is_flag(const Flag &flag) const {
    return flag.value && !flag.is_odd &&
           std::none_of(flag.loaded.begin(), flag.loaded.end(),
                        [&](const std::string &name) { return used_otherwise_.contains(name); });
  }

  /// The same for two instructions with the same address operand.
  static std::string name(const Instruction &source) {
    const Operand &address = address_of(source);
    const Operand &base = address.kind == Operand::Kind::address ? address.elements.front() : address;
    const std::string place = base.kind == Operand::Kind::symbol ? std::to_string(base.symbol) : base.name;
    return place + "+" + std::to_string(base.offset + address.offset);
  }

  std::unordered_set<std::string> swapped_, used_otherwise_;
  std::unordered_map<std::string, Flag> flags_;
};

void describe(const machine::Code &code, const Instruction &source, const Origins &origins,
              const Places &places, Site &site) {
  if (source.row->effect == program::Effect::store)
    site.stores_constant = origins.is_constant(source.operands.at(1));
  places.describe(source, site);
  const Origin origin = origins.of(address_of(source));
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
    const Places places(code, begin, end, origins);
    for (std::size_t i = begin; i < end; ++i) {
      if (!code.sources[i])
        continue;
      const Effect effect = code.sources[i]->row->effect;
      for (const Effect each : {Effect::load, Effect::store, Effect::atomic, Effect::matrix_load,
                                Effect::matrix_store, Effect::copy})
        if (effect == each)
          describe(code, *code.sources[i], origins, places, sites[i]);
    }
    begin = end;
  }
}

} // namespace ladder::sanitizer
