#include "sanitizer/sites.h"

#include "instructions/addressing.h"
#include "sanitizer/block_checker.h"
#include "sanitizer/origins.h"
#include "sanitizer/shadow.h"

#include <algorithm>

namespace ladder::sanitizer {

namespace {

using instructions::Space;
using machine::Handler;
using program::Effect;
using program::Trait;

void describe_access(const program::Instruction &source, const machine::Instruction &in, Site &site) {
  site.element_bytes = source.types.empty() ? 0 : std::min(ptx::type_bytes(source.types[0]), 8u);
  site.bytes = instructions::element_count(in) * site.element_bytes;
  if (source.is(Trait::strong))
    site.flags = source.is(Trait::is_volatile) ? Access::strong | Access::is_volatile : Access::strong;
  site.passes_l1 = source.is(Trait::strong) || source.is(Trait::passes_l1);
}

/// Registers of up to 32 bits have 4-byte lanes, wider ones 8-byte lanes.
unsigned lane_bytes_of(const program::Instruction &source, unsigned element_bytes) {
  const program::Operand &value = source.operands.at(1);
  const auto width = [](const program::Operand &operand) {
    return operand.kind != program::Operand::Kind::reg ? 0u : ptx::type_bytes(operand.reg.type) > 4 ? 8u : 4u;
  };
  unsigned bytes = width(value);
  for (const program::Operand &element : value.elements)
    bytes = std::max(bytes, width(element));
  return bytes ? bytes : element_bytes > 4 ? 8 : 4;
}

bool is_memory_space(const machine::Instruction &in) {
  const Space space = instructions::address_space(in.flags);
  return space == Space::generic || space == Space::global || space == Space::shared || space == Space::local;
}

// Each of these describes an instruction and returns its checking handler; nullptr if there is nothing to
// check.
using Describe = Handler (*)(const program::Instruction &source, const machine::Instruction &in, Site &site);

Handler load(const program::Instruction &source, const machine::Instruction &in, Site &site) {
  if (instructions::address_space(in.flags) == Space::constant)
    return checked<&BlockChecker::load_constant>;
  if (!is_memory_space(in))
    return nullptr;
  describe_access(source, in, site);
  const std::uint32_t all = site.bytes >= 32 ? ptx::kAllBytes : (1u << site.bytes) - 1;
  site.used = source.used_bytes & all ? source.used_bytes & all : all;
  return checked<&BlockChecker::load>;
}

Handler store(const program::Instruction &source, const machine::Instruction &in, Site &site) {
  if (!is_memory_space(in))
    return nullptr;
  describe_access(source, in, site);
  site.lane_bytes = lane_bytes_of(source, site.element_bytes);
  return checked<&BlockChecker::store>;
}

Handler atomic(const program::Instruction &source, const machine::Instruction &in, Site &site) {
  describe_access(source, in, site);
  site.flags = Access::strong;
  if (source.is(Trait::sums) && source.is(Trait::floats))
    site.flags |= Access::sums;
  return checked<&BlockChecker::atomic>;
}

template <Handler handler>
Handler matrix(const program::Instruction &source, const machine::Instruction &, Site &site) {
  site.matrices = source.is(Trait::one_matrix) ? 1 : source.is(Trait::two_matrices) ? 2 : 4;
  site.bytes = 16;
  site.flags = Access::collective;
  return handler;
}

template <Handler handler>
Handler collective(const program::Instruction &, const machine::Instruction &, Site &site) {
  site.flags = Access::collective;
  return handler;
}

template <Handler handler>
Handler mbarrier(const program::Instruction &source, const machine::Instruction &, Site &site) {
  site.bytes = 8;
  site.is_mbarrier = true;
  // The initialisation of an mbarrier is not atomic: other threads must wait for it. Its invalidation must
  // follow their uses.
  site.flags = source.row->effect == Effect::mbarrier_init ? 0 : Access::strong;
  return handler;
}

/// Only for the program's functions; system functions have no frame.
Handler call(const program::Instruction &source, const machine::Instruction &, Site &) {
  const program::Operand &target = source.operands.at(1);
  return target.kind == program::Operand::Kind::function && target.function < 0
             ? nullptr
             : checked<&BlockChecker::call>;
}

Handler window(const program::Instruction &source, const machine::Instruction &, Site &) {
  if (!source.is(Trait::in_local))
    return nullptr;
  return source.is(Trait::to_space) ? checked<&BlockChecker::from_generic>
                                    : checked<&BlockChecker::to_generic>;
}

template <Handler handler> Handler plain(const program::Instruction &, const machine::Instruction &, Site &) {
  return handler;
}

struct Check {
  Effect effect;
  Describe describe;
};
using Own = BlockChecker;
constexpr Check kChecks[] = {
    {Effect::load, load},
    {Effect::store, store},
    {Effect::atomic, atomic},
    {Effect::matrix_load, matrix<checked<&Own::matrix, false>>},
    {Effect::matrix_store, matrix<checked<&Own::matrix, true>>},
    {Effect::fragment_load, collective<checked<&Own::fragment, false>>},
    {Effect::fragment_store, collective<checked<&Own::fragment, true>>},
    {Effect::copy, plain<checked<&Own::copy>>},
    {Effect::copy_commit, plain<checked<&Own::commit>>},
    {Effect::copy_wait, plain<checked<&Own::wait>>},
    {Effect::copy_arrive, mbarrier<checked<&Own::copy_arrive>>},
    {Effect::bulk_copy, plain<checked<&Own::bulk_copy>>},
    {Effect::async_store, plain<checked<&Own::async_store>>},
    {Effect::mbarrier_init, mbarrier<checked<&Own::mbarrier>>},
    {Effect::mbarrier_inval, mbarrier<checked<&Own::mbarrier>>},
    {Effect::mbarrier, mbarrier<checked<&Own::mbarrier>>},
    {Effect::mbarrier_wait, mbarrier<checked<&Own::mbarrier_wait>>},
    {Effect::block_barrier, plain<checked<&Own::barrier>>},
    {Effect::warp_barrier, plain<checked<&Own::warp_barrier>>},
    {Effect::shuffle, plain<checked<&Own::shuffle>>},
    {Effect::product, collective<checked<&Own::product>>},
    {Effect::product_fence, plain<checked<&Own::product_fence>>},
    {Effect::product_commit, plain<checked<&Own::product_commit>>},
    {Effect::product_wait, plain<checked<&Own::product_wait>>},
    {Effect::bulk_commit, plain<checked<&Own::bulk_commit>>},
    {Effect::bulk_wait, plain<checked<&Own::bulk_wait>>},
    {Effect::proxy_fence, plain<checked<&Own::proxy_fence>>},
    {Effect::grid_wait, plain<checked<&Own::grid_wait>>},
    {Effect::map_change, plain<checked<&Own::map_change>>},
    {Effect::cluster_arrive, plain<checked<&Own::cluster_arrive>>},
    {Effect::cluster_wait, plain<checked<&Own::cluster_wait>>},
    {Effect::tensor_alloc, plain<checked<&Own::tensor_alloc>>},
    {Effect::tensor_dealloc, plain<checked<&Own::tensor_dealloc>>},
    {Effect::tensor_load, collective<checked<&Own::tensor_load>>},
    {Effect::tensor_store, collective<checked<&Own::tensor_store>>},
    {Effect::tensor_wait, plain<checked<&Own::tensor_wait>>},
    {Effect::tensor_fence, plain<checked<&Own::tensor_fence>>},
    {Effect::tensor_product, plain<checked<&Own::tensor_product>>},
    {Effect::tensor_copy, plain<checked<&Own::tensor_copy>>},
    {Effect::tensor_commit, plain<checked<&Own::tensor_commit>>},
    {Effect::vote, plain<checked<&Own::vote>>},
    {Effect::fence, plain<checked<&Own::fence>>},
    {Effect::call, call},
    {Effect::window, window},
};
static_assert(std::size(kChecks) == program::kEffects - 2, "all effects except none and unchecked");

/// Numbers the registers of a function's products and lists the instructions that use them. By name, since
/// several registers share a frame slot.
void find_product_registers(const machine::Code &code, std::uint32_t owner, CheckedCode &result) {
  using program::Operand;
  std::unordered_map<std::string_view, std::uint32_t> numbers;
  const auto each = [&](auto visit) {
    for (std::size_t i = 0; i < code.sources.size(); ++i)
      if (code.sources[i] && code.owner[i] == owner)
        visit(i, *code.sources[i]);
  };
  const auto for_registers = [](const Operand &operand, auto visit) {
    if (operand.kind == Operand::Kind::reg)
      visit(operand);
    for (const Operand &element : operand.elements)
      if (element.kind == Operand::Kind::reg)
        visit(element);
  };
  each([&](std::size_t, const program::Instruction &source) {
    if (source.row->effect != Effect::product)
      return;
    for_registers(source.operands[0], [&](const Operand &reg) {
      numbers.try_emplace(reg.name, result.product_registers + numbers.size());
    });
    if (source.operands[1].kind == Operand::Kind::vector)
      for_registers(source.operands[1], [&](const Operand &reg) {
        numbers.try_emplace(reg.name, result.product_registers + numbers.size());
      });
  });
  result.product_registers += std::uint32_t(numbers.size());
  if (numbers.empty())
    return;
  each([&](std::size_t i, const program::Instruction &source) {
    std::vector<ProductUse> uses;
    for (std::size_t place = 0; place < source.operands.size(); ++place)
      for_registers(source.operands[place], [&](const Operand &reg) {
        const bool writes = place == 0 && (source.is(Trait::writes_first) || source.is(Trait::lands_late));
        if (const auto number = numbers.find(reg.name); number != numbers.end())
          uses.push_back({number->second, writes});
      });
    if (uses.empty())
      return;
    result.sites[i].product_uses = std::uint32_t(result.product_uses.size());
    result.product_uses.push_back(std::move(uses));
  });
}

/// nullptr: not checked.
Describe describer(Effect effect) {
  const auto found = std::ranges::find(kChecks, effect, &Check::effect);
  return found == std::end(kChecks) ? nullptr : found->describe;
}

} // namespace

bool is_checked(Effect effect) { return describer(effect) != nullptr; }

std::shared_ptr<const CheckedCode> instrument(const machine::Code &code) {
  auto result = std::make_shared<CheckedCode>();
  auto copy = std::make_shared<machine::Code>(code);
  result->sites.resize(code.instructions.size());
  bool has_products = false;
  for (std::size_t i = 0; i < code.instructions.size(); ++i) {
    if (!code.sources[i])
      continue;
    machine::Instruction &instruction = copy->instructions[i];
    Site &site = result->sites[i];
    const Effect effect = code.sources[i]->row->effect;
    site.traits = code.sources[i]->traits;
    has_products |= effect == Effect::product;
    result->copies_in_bulk |= effect == Effect::bulk_copy;
    result->uses_async_proxy |= effect == Effect::bulk_copy || effect == Effect::product ||
                                effect == Effect::tensor_product || effect == Effect::tensor_copy;
    const Describe describe = describer(effect);
    if (const Handler handler = describe ? describe(*code.sources[i], instruction, site) : nullptr)
      site.original = std::exchange(instruction.execute, handler);
    // Also checks a branch whose undefined guard lets no lane take it.
    site.is_guarded =
        instruction.prologue & machine::kPrologueGuard && !(instruction.prologue & machine::kPrologueSettle);
    if (site.is_guarded)
      instruction.prologue &= ~machine::kPrologueGuard;
    if (site.is_guarded || !code.sources[i]->operands.empty() || code.sources[i]->is(program::Trait::returns))
      site.next = std::exchange(instruction.execute, checked<&BlockChecker::values>);
  }
  for (std::uint32_t owner = 0; has_products && owner < code.frames.size(); ++owner)
    find_product_registers(code, owner, *result);
  find_origins(code, result->sites);
  result->code = std::move(copy);
  return result;
}

} // namespace ladder::sanitizer
