#include "timing/facts.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace ladder::timing {

namespace {

using program::Effect;
using program::Operand;
using program::Trait;

Kind kind_of(const program::Instruction &source) {
  switch (source.row->effect) {
  case Effect::load:
  case Effect::store:
  case Effect::atomic:
  case Effect::matrix_load:
  case Effect::matrix_store:
  case Effect::fragment_load:
  case Effect::fragment_store:
    return Kind::memory;
  case Effect::shuffle:
    return Kind::shuffle;
  case Effect::copy:
    return Kind::copy;
  case Effect::copy_commit:
    return Kind::copy_commit;
  case Effect::copy_wait:
    return Kind::copy_wait;
  case Effect::copy_arrive:
    return Kind::copy_arrive;
  case Effect::bulk_copy:
    return Kind::bulk_copy;
  case Effect::bulk_commit:
    return Kind::bulk_commit;
  case Effect::bulk_wait:
    return Kind::bulk_wait;
  case Effect::mbarrier_init:
    return Kind::mbarrier_init;
  case Effect::mbarrier:
    return Kind::mbarrier_arrive;
  case Effect::mbarrier_wait:
    return Kind::mbarrier_wait;
  case Effect::block_barrier:
    return Kind::block_barrier;
  case Effect::product:
    return Kind::product;
  case Effect::product_commit:
    return Kind::product_commit;
  case Effect::product_wait:
    return Kind::product_wait;
  case Effect::proxy_fence:
  case Effect::fence:
    return Kind::fence;
  case Effect::none:
    return source.is(Trait::mma) ? Kind::mma : Kind::plain;
  case Effect::unchecked:
  case Effect::mbarrier_inval:
  case Effect::product_fence:
  case Effect::grid_wait:
  case Effect::warp_barrier:
  case Effect::vote:
  case Effect::call:
  case Effect::window:
    return Kind::plain;
  default:
    return Kind::unknown;
  }
}

/// Sizes of a product by its modifier, as in m16n8k16.
struct Shape {
  std::uint32_t m = 0, n = 0, k = 0;
};
Shape shape_of(const program::Instruction &source) {
  for (const std::string &modifier : source.modifiers) {
    Shape shape;
    std::uint32_t *size = nullptr;
    bool is_shape = modifier.starts_with("m");
    for (std::size_t i = 0; is_shape && i < modifier.size(); ++i) {
      const char letter = modifier[i];
      if (letter == 'm' || letter == 'n' || letter == 'k')
        size = letter == 'm' ? &shape.m : letter == 'n' ? &shape.n : &shape.k;
      else if (letter >= '0' && letter <= '9' && size)
        *size = *size * 10 + std::uint32_t(letter - '0');
      else
        is_shape = false;
    }
    if (is_shape && shape.m && shape.n && shape.k)
      return shape;
  }
  return {};
}

/// Bits of a product's inputs: the rate of a tensor core is in inverse proportion.
unsigned input_bits(const program::Instruction &source) {
  const auto has = [&](std::string_view name) { return source.has(name); };
  if (has("e4m3") || has("e5m2") || has("s8") || has("u8"))
    return 8;
  return has("tf32") ? 32 : has("f64") ? 256 : 16;
}

/// Calls visit(name) for the registers of an operand.
template <typename Visit> void visit_registers(const Operand &operand, Visit visit) {
  if (operand.kind == Operand::Kind::reg)
    visit(operand.name);
  for (const Operand &element : operand.elements)
    visit_registers(element, visit);
}

Pipe main_pipe(Kind kind) {
  switch (kind) {
  case Kind::memory:
  case Kind::shuffle:
  case Kind::copy:
    return Pipe::memory;
  case Kind::mma:
    return Pipe::tensor;
  default:
    return Pipe::other;
  }
}

/// Instructions for which ptxas makes one of its own, so that they show how often it has unrolled a loop.
bool is_single(const program::Instruction &source, const Fact &fact) {
  return fact.kind == Kind::mma || fact.kind == Kind::shuffle || source.opcode == "fma" ||
         source.opcode == "ex2" || source.opcode == "ldmatrix" || fact.kind == Kind::block_barrier ||
         fact.kind == Kind::product;
}

} // namespace

Facts::Facts(const machine::Code &code, const MachineKernel &kernel)
    : facts_(code.instructions.size()), machine_(code.instructions.size()),
      copies_(code.instructions.size(), 1) {
  std::unordered_map<int, std::vector<MachineInstruction>> by_line;
  for (const MachineInstruction &one : kernel.instructions)
    by_line[one.ptx_line].push_back(one);
  std::map<std::pair<std::uint32_t, std::string>, std::uint32_t> numbers;
  for (std::uint32_t pc = 0; pc < facts_.size(); ++pc) {
    const program::Instruction *const source = code.sources[pc];
    if (!source)
      continue;
    describe(code, pc);
    if (const auto found = by_line.find(source->ptx_line); found != by_line.end())
      machine_[pc] = found->second;
    const auto number = [&](const std::string &name) {
      return numbers.try_emplace({code.owner[pc], name}, std::uint32_t(numbers.size())).first->second;
    };
    Fact &fact = facts_[pc];
    // A product's accumulators are valid after the wait, which is what warps wait for.
    for (std::size_t i = fact.kind == Kind::product ? 1 : 0; i < source->operands.size(); ++i) {
      const bool writes = i == 0 && source->is(Trait::writes_first);
      visit_registers(source->operands[i], [&](const std::string &name) {
        (writes ? fact.writes : fact.reads).push_back(number(name));
      });
    }
    if (source->guarded) {
      Operand guard;
      fact.reads.push_back(number("guard " + std::to_string(source->guard.offset)));
    }
    if (fact.kind == Kind::plain && !fact.writes.empty() && source->operands[0].kind == Operand::Kind::reg &&
        source->operands[0].reg.type == ptx::Type::pred)
      fact.writes.push_back(number("guard " + std::to_string(source->operands[0].reg.offset)));
  }
  registers_ = std::uint32_t(numbers.size());
  find_leaders(code);
  for (std::uint32_t begin = 0; begin < facts_.size();) {
    std::uint32_t end = begin + 1;
    while (end < facts_.size() && !facts_[end].leads)
      ++end;
    std::map<std::size_t, std::size_t> votes; // by how often ptxas has made the instruction
    for (std::uint32_t pc = begin; pc < end; ++pc)
      if (code.sources[pc] && is_single(*code.sources[pc], facts_[pc]) && !machine_[pc].empty())
        ++votes[machine_[pc].size()];
    const auto most = std::ranges::max_element(votes, {}, &std::pair<const std::size_t, std::size_t>::second);
    std::fill(copies_.begin() + begin, copies_.begin() + end,
              most == votes.end() ? 1u : std::uint32_t(most->first));
    begin = end;
  }
  for (std::uint32_t pc = 0; pc < facts_.size(); ++pc)
    facts_[pc].exists = per_execution(pc) > 0;
}

void Facts::describe(const machine::Code &code, std::uint32_t pc) {
  const program::Instruction &source = *code.sources[pc];
  Fact &fact = facts_[pc];
  fact.kind = kind_of(source);
  if (source.row->effect == Effect::load && (source.has("param") || source.has("const")))
    fact.kind = Kind::plain;
  fact.pipe = main_pipe(fact.kind);
  fact.arrives = source.is(Trait::arrives);
  fact.only_reads = source.is(Trait::only_reads);
  const auto integer = [&](std::size_t i) {
    return i < source.operands.size() && source.operands[i].kind == Operand::Kind::integer
               ? std::uint32_t(source.operands[i].bits)
               : 0u;
  };
  const Shape shape = shape_of(source);
  switch (fact.kind) {
  case Kind::mma:
    fact.operations = 2.0 * shape.m * shape.n * shape.k * input_bits(source) / 16;
    break;
  case Kind::product:
    fact.n = shape.n;
    fact.operations = 2.0 * shape.m * shape.n * shape.k * input_bits(source) / 16;
    fact.a_in_registers = source.operands[1].kind == Operand::Kind::vector;
    break;
  case Kind::copy_wait:
    fact.n = source.is(Trait::all_groups) ? 0 : integer(0);
    break;
  case Kind::product_wait:
  case Kind::bulk_wait:
    fact.n = integer(0);
    break;
  default:
    break;
  }
  if (fact.kind == Kind::unknown && unknown_.empty())
    unknown_ = source.full_opcode();
}

void Facts::find_leaders(const machine::Code &code) {
  constexpr std::uint64_t kEnds =
      Trait::branches | Trait::calls | Trait::returns | Trait::exits | Trait::traps;
  const auto lead = [&](std::size_t pc) {
    if (pc < facts_.size())
      facts_[pc].leads = true;
  };
  for (std::size_t pc = 0; pc < facts_.size(); ++pc) {
    const program::Instruction *const source = code.sources[pc];
    if (!source)
      continue;
    const std::uint32_t entry = code.frames[code.owner[pc]].entry;
    lead(entry);
    for (const Operand &operand : source->operands)
      if (operand.kind == Operand::Kind::label)
        lead(entry + operand.target);
    for (const std::uint32_t target : source->targets)
      lead(entry + target);
    if (source->traits & kEnds)
      lead(pc + 1);
  }
}

std::uint32_t Facts::per_execution(std::uint32_t pc) const {
  const std::size_t all = machine_[pc].size();
  const std::uint32_t copies = copies_[pc];
  // Of an access that ptxas has merged with others, the emulator counts only some executions.
  if (all && facts_[pc].kind != Kind::plain)
    return std::max<std::uint32_t>(1, std::uint32_t(all / copies));
  return std::uint32_t((all + copies / 2) / copies);
}

std::vector<Slot> Facts::slots(std::uint32_t first, std::uint32_t last) const {
  struct Placed {
    std::int64_t place;
    Slot slot;
  };
  std::vector<Placed> placed;
  std::unordered_map<std::uint32_t, std::int64_t> made_at; // by register
  for (std::uint32_t pc = first; pc <= last; ++pc) {
    const Fact &fact = facts_[pc];
    const std::vector<MachineInstruction> &all = machine_[pc];
    const std::uint32_t count = per_execution(pc);
    std::int64_t place = -1;
    const bool must_run = fact.kind != Kind::plain && fact.kind != Kind::memory && fact.kind != Kind::shuffle;
    if (count == 0 && must_run) { // ptxas has it at another line
      placed.push_back({placed.empty() ? -1 : placed.back().place, {.pc = pc, .stall = 1, .is_main = true}});
    } else if (count == 0) { // the register is another one's, or nothing needs it
      for (const std::uint32_t reg : fact.reads)
        if (const auto found = made_at.find(reg); found != made_at.end())
          place = std::max(place, found->second);
      placed.push_back({place, {.pc = pc, .is_main = true}});
    } else {
      std::uint32_t main = count - 1;
      for (std::uint32_t i = 0; i < count; ++i)
        if (fact.pipe != Pipe::other && all[i].pipe == fact.pipe)
          main = i;
      place = all[main].place;
      for (std::uint32_t i = 0; i < count; ++i)
        placed.push_back({all[i].place,
                          {.pc = pc,
                           .pipe = all[i].pipe,
                           .stall = std::max<std::uint8_t>(1, all[i].stall),
                           .is_main = i == main}});
    }
    for (const std::uint32_t reg : fact.writes)
      made_at[reg] = place;
  }
  std::stable_sort(placed.begin(), placed.end(),
                   [](const Placed &a, const Placed &b) { return a.place < b.place; });
  std::vector<Slot> slots;
  for (const Placed &one : placed)
    slots.push_back(one.slot);
  return slots;
}

} // namespace ladder::timing
