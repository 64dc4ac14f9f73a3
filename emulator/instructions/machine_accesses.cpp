#include "instructions/machine_accesses.h"

#include "instructions/addressing.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

namespace ladder::instructions {

namespace {

using program::Effect;
using program::Operand;
namespace trait = program::trait;

/// A scalar or vector access to shared memory at [base + offset].
struct Access {
  std::size_t index = 0; ///< in Code::instructions
  bool is_load = false;
  std::int64_t offset = 0;
  unsigned bytes = 0;
  const std::vector<MachineAccess> *made = nullptr; ///< nullptr: has no machine access of its own
};

/// Bases within straight-line code: a base is a register's value between two definitions, or none. A register
/// equal to another plus a constant has that one's base.
class Bases {
public:
  struct Place {
    std::uint64_t base = 0;
    std::int64_t offset = 0;
    auto operator<=>(const Place &) const = default;
  };

  Place place(const Operand &address) {
    const Operand &base = address.kind == Operand::Kind::address ? address.elements.front() : address;
    const std::int64_t offset =
        address.kind == Operand::Kind::address ? address.offset + base.offset : base.offset;
    if (base.kind == Operand::Kind::symbol)
      return {std::uint64_t(base.symbol) << 32 | 1, offset};
    if (base.kind != Operand::Kind::reg)
      return {3, std::int64_t(base.bits) + offset};
    Place place = of_register(base.reg.offset);
    place.offset += offset;
    return place;
  }

  void define(const program::Instruction &instruction) {
    for (std::size_t i = 0; i < instruction.operands.size() && i < 1; ++i)
      define_operand(instruction.operands[i], instruction);
  }

private:
  Place of_register(std::uint32_t slot) {
    const auto [found, is_new] = values_.try_emplace(slot);
    if (is_new)
      found->second = fresh();
    return found->second;
  }
  Place fresh() { return {++next_ << 2 | 2, 0}; }

  void define_operand(const Operand &operand, const program::Instruction &instruction) {
    for (const Operand &element : operand.elements)
      define_operand(element, instruction);
    if (operand.kind != Operand::Kind::reg)
      return;
    Place value = fresh();
    const auto &operands = instruction.operands;
    if (instruction.is(trait::adds) && !instruction.guarded && operands.size() == 3 &&
        operands[1].kind == Operand::Kind::reg && operands[2].kind == Operand::Kind::integer) {
      value = of_register(operands[1].reg.offset);
      value.offset += std::int64_t(operands[2].bits);
    } else if (instruction.is(trait::moves) && !instruction.guarded && operands.size() == 2) {
      if (operands[1].kind == Operand::Kind::symbol)
        value = place(operands[1]);
      else if (operands[1].kind == Operand::Kind::reg)
        value = of_register(operands[1].reg.offset);
    }
    values_[operand.reg.offset] = value;
  }

  std::map<std::uint32_t, Place> values_;
  std::uint64_t next_ = 0;
};

bool ends_stretch(const program::Instruction &instruction) {
  constexpr std::uint64_t kEnds =
      trait::branches | trait::calls | trait::returns | trait::exits | trait::traps | trait::barrier;
  switch (instruction.row->effect) {
  case Effect::atomic:
  case Effect::fence:
  case Effect::proxy_fence:
  case Effect::warp_barrier:
    return true;
  default:
    return instruction.traits & kEnds;
  }
}

/// Accesses of straight-line code that ptxas may merge: same kind, base and guard.
using Group = std::vector<Access>;
using GroupKey = std::tuple<bool, std::uint64_t, std::uint32_t, std::uint32_t>;

class Divider {
public:
  Divider(machine::Code &code, const MachineAccesses &accesses) : code_(code), accesses_(accesses) {}

  bool run() {
    std::map<GroupKey, Group> groups;
    Bases bases;
    const auto flush = [&] {
      for (auto &[key, group] : groups)
        divide(group);
      groups.clear();
    };
    const std::vector<bool> targets = branch_targets();
    for (std::size_t i = 0; i < code_.instructions.size(); ++i) {
      const program::Instruction *const source = code_.sources[i];
      if (targets[i])
        flush(), bases = {};
      if (!source)
        continue;
      if (source->is_dead && made(*source)) // unoptimised code keeps it
        clear(i, kNotCounted);
      if (is_shared_access(*source, code_.instructions[i])) {
        const bool is_load = source->row->effect == Effect::load;
        const auto place = bases.place(source->operands.at(is_load ? 1 : 0));
        const machine::Instruction &in = code_.instructions[i];
        groups[{is_load, place.base, source->guarded ? in.guard : machine::kNoGuard, in.guard_invert}]
            .push_back({i, is_load, place.offset, access_bytes(*source, in), made(*source)});
      } else if (is_global_load(*source, code_.instructions[i])) {
        if (!made(*source))
          set(i, kNotCounted);
      } else if (source->row->effect == Effect::atomic) {
        mark_atomic(*source, code_.instructions[i]);
      }
      if (source->row->effect != Effect::store)
        bases.define(*source);
      if (ends_stretch(*source))
        flush();
    }
    flush();
    return changed_;
  }

private:
  std::vector<bool> branch_targets() const {
    std::vector<bool> targets(code_.instructions.size() + 1, false);
    for (std::size_t i = 0; i < code_.instructions.size(); ++i) {
      const program::Instruction *const source = code_.sources[i];
      if (!source)
        continue;
      const std::uint32_t begin = code_.frames[code_.owner[i]].entry;
      for (const Operand &operand : source->operands)
        if (operand.kind == Operand::Kind::label)
          mark(targets, begin + operand.target);
      for (const std::uint32_t target : source->targets)
        mark(targets, begin + target);
      mark(targets, begin);
    }
    return targets;
  }
  static void mark(std::vector<bool> &targets, std::size_t index) {
    if (index < targets.size())
      targets[index] = true;
  }

  static bool is_shared_access(const program::Instruction &source, const machine::Instruction &in) {
    return (source.row->effect == Effect::load || source.row->effect == Effect::store) &&
           address_space(in.flags) == Space::shared && !source.is(trait::is_volatile);
  }
  static bool is_global_load(const program::Instruction &source, const machine::Instruction &in) {
    return source.row->effect == Effect::load && address_space(in.flags) == Space::global;
  }
  static unsigned access_bytes(const program::Instruction &source, const machine::Instruction &in) {
    return source.types.empty() ? 0 : std::min(ptx::type_bytes(source.types[0]), 8u) * element_count(in);
  }

  /// The machine code's accesses for this PTX line; nullptr if there are none.
  const std::vector<MachineAccess> *made(const program::Instruction &source) const {
    const auto found = accesses_.find(source.ptx_line);
    return found == accesses_.end() ? nullptr : &found->second;
  }

  void set(std::size_t index, std::uint32_t flags) {
    code_.instructions[index].flags |= flags;
    changed_ = true;
  }
  void clear(std::size_t index, std::uint32_t flags) {
    code_.instructions[index].flags &= ~flags;
    changed_ = true;
  }
  void set(const Access &access, std::uint32_t flags) { set(access.index, flags); }

  /// Accesses that are wider in the machine code absorb neighbours that are missing there.
  void divide(Group &group) {
    std::vector<bool> taken(group.size(), false);
    for (const Access &wide : group) {
      if (!wide.made)
        continue;
      const auto is_same = [&](const MachineAccess &made) { return made == wide.made->front(); };
      const MachineAccess &made = wide.made->front();
      if (!std::all_of(wide.made->begin(), wide.made->end(), is_same)) {
        set(wide, kUnknownWidth);
        continue;
      }
      if (made.kind != (wide.is_load ? MachineAccess::Kind::load : MachineAccess::Kind::store) ||
          made.bytes <= wide.bytes)
        continue;
      const std::int64_t begin = window(group, taken, wide, made.bytes);
      for (std::size_t i = 0; i < group.size(); ++i)
        if (!taken[i] && !group[i].made && is_within(group[i], begin, made.bytes)) {
          taken[i] = true;
          set(group[i], kNotCounted);
        }
      set(wide, (made.bytes == 8 ? kCountedAs8 : kCountedAs16) | std::uint32_t(wide.offset - begin)
                                                                     << kBackShift);
    }
    // ptxas drops a repeated load of the same address.
    for (std::size_t i = 0; i < group.size(); ++i)
      if (!taken[i] && !group[i].made && group[i].is_load)
        if (std::any_of(group.begin(), group.end(), [&](const Access &other) {
              return other.made && other.offset == group[i].offset && other.bytes == group[i].bytes;
            }))
          set(group[i], kNotCounted);
  }

  static bool is_within(const Access &access, std::int64_t begin, unsigned bytes) {
    return access.offset >= begin && access.offset + access.bytes <= begin + std::int64_t(bytes);
  }

  /// The wide access starts where it absorbs the most; ties go to a multiple of its size.
  static std::int64_t window(const Group &group, const std::vector<bool> &taken, const Access &wide,
                             unsigned bytes) {
    std::int64_t best = wide.offset;
    std::ptrdiff_t most = -1;
    for (std::int64_t begin = wide.offset + wide.bytes - bytes; begin <= wide.offset; ++begin) {
      std::ptrdiff_t held = 0;
      for (std::size_t i = 0; i < group.size(); ++i)
        held += 2 * (!taken[i] && !group[i].made && is_within(group[i], begin, bytes));
      held += begin % std::int64_t(bytes) == 0;
      if (held > most) {
        most = held;
        best = begin;
      }
    }
    return best;
  }

  void mark_atomic(const program::Instruction &source, machine::Instruction &in) {
    const auto *const all = made(source);
    if (!all ||
        !std::all_of(all->begin(), all->end(), [&](const MachineAccess &one) { return one == all->front(); }))
      return;
    const auto kind = all->front().kind;
    if (kind != MachineAccess::Kind::atomic && kind != MachineAccess::Kind::increment)
      return;
    in.flags |= kind == MachineAccess::Kind::atomic ? kIsNative : kIsIncrement;
    changed_ = true;
  }

  machine::Code &code_;
  const MachineAccesses &accesses_;
  bool changed_ = false;
};

} // namespace

std::shared_ptr<const machine::Code> divide_accesses(std::shared_ptr<const machine::Code> code,
                                                     const MachineAccesses &accesses) {
  if (accesses.empty())
    return code;
  auto copy = std::make_shared<machine::Code>(*code);
  return Divider(*copy, accesses).run() ? copy : code;
}

} // namespace ladder::instructions
