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

/// The first type among the modifiers, which is the type in memory.
ptx::Type memory_type(const program::Instruction &source) {
  for (const std::string &modifier : source.modifiers)
    if (const auto type = ptx::type_from_name(modifier))
      return *type;
  return ptx::Type::none;
}

void describe_access(const program::Instruction &source, const machine::Instruction &in, Site &site) {
  site.element_bytes = std::min(ptx::type_bytes(memory_type(source)), 8u);
  site.bytes = instructions::element_count(in) * site.element_bytes;
  const bool is_volatile = source.has("volatile");
  if (is_volatile)
    site.flags = Access::strong | Access::is_volatile;
  for (const std::string_view order : {"relaxed", "acquire", "release", "acq_rel", "mmio"})
    if (source.has(order))
      site.flags = Access::strong;
  site.releases = source.has("release") || source.has("acq_rel");
  site.acquires = source.has("acquire") || source.has("acq_rel");
  site.passes_l1 = site.flags & Access::strong || source.has("cg") || source.has("cv");
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

using program::Effect;
using program::Trait;

// Each of these describes an instruction and returns its checking handler; nullptr if there is nothing to
// check.
using Describe = Handler (*)(const program::Instruction &source, const machine::Instruction &in, Site &site);

Handler load(const program::Instruction &source, const machine::Instruction &in, Site &site) {
  if (!is_memory_space(in))
    return nullptr;
  describe_access(source, in, site);
  const std::uint32_t all = site.bytes >= 32 ? ptx::kAllBytes : (1u << site.bytes) - 1;
  site.used = source.used_bytes & all ? source.used_bytes & all : all;
  site.is_read_only_path = source.has("nc");
  return checked_load;
}

Handler store(const program::Instruction &source, const machine::Instruction &in, Site &site) {
  if (!is_memory_space(in))
    return nullptr;
  describe_access(source, in, site);
  site.lane_bytes = lane_bytes_of(source, site.element_bytes);
  return checked_store;
}

Handler atomic(const program::Instruction &source, const machine::Instruction &in, Site &site) {
  describe_access(source, in, site);
  site.flags = Access::strong;
  for (const std::string_view type : {"f16", "f16x2", "bf16", "bf16x2", "f32", "f64"})
    if (source.has("add") && source.has(type))
      site.flags |= Access::sums;
  return checked_atomic;
}

template <Handler checked>
Handler matrix(const program::Instruction &source, const machine::Instruction &, Site &site) {
  site.matrices = source.has("x1") ? 1 : source.has("x2") ? 2 : 4;
  site.bytes = 16;
  site.flags = Access::collective;
  return checked;
}

template <Handler checked>
Handler collective(const program::Instruction &, const machine::Instruction &, Site &site) {
  site.flags = Access::collective;
  return checked;
}

template <Handler checked>
Handler mbarrier(const program::Instruction &source, const machine::Instruction &, Site &site) {
  site.bytes = 8;
  // Initialising an mbarrier is not atomic: others must wait for it. Invalidating one follows their uses.
  site.flags = source.row->effect == Effect::mbarrier_setup && !source.has("inval") ? 0 : Access::strong;
  return checked;
}

Handler block_barrier(const program::Instruction &source, const machine::Instruction &, Site &site) {
  site.is_aligned = source.is(Trait::aligned);
  site.arrives_only = source.has("arrive");
  return checked_barrier;
}

/// Only for the program's functions; system functions have no frame.
Handler call(const program::Instruction &source, const machine::Instruction &, Site &) {
  const program::Operand &target = source.operands.at(1);
  return target.kind == program::Operand::Kind::function && target.function < 0 ? nullptr : checked_call;
}

Handler window(const program::Instruction &source, const machine::Instruction &, Site &) {
  if (!source.has("local"))
    return nullptr;
  return source.has("to") ? checked_from_generic : checked_to_generic;
}

template <Handler checked> Handler plain(const program::Instruction &, const machine::Instruction &, Site &) {
  return checked;
}

#pragma GCC diagnostic error "-Wswitch" // a forgotten effect must not compile
Describe describer(Effect effect) {
  switch (effect) {
  case Effect::none:
  case Effect::unchecked:
    return nullptr;
  case Effect::load:
    return load;
  case Effect::store:
    return store;
  case Effect::atomic:
    return atomic;
  case Effect::matrix_load:
    return matrix<checked_matrix_load>;
  case Effect::matrix_store:
    return matrix<checked_matrix_store>;
  case Effect::fragment_load:
    return collective<checked_fragment_load>;
  case Effect::fragment_store:
    return collective<checked_fragment_store>;
  case Effect::copy:
    return plain<checked_copy>;
  case Effect::copy_commit:
    return plain<checked_commit>;
  case Effect::copy_wait:
    return plain<checked_wait>;
  case Effect::copy_arrive:
    return mbarrier<checked_copy_arrive>;
  case Effect::bulk_copy:
    return plain<checked_bulk_copy>;
  case Effect::async_store:
    return plain<checked_async_store>;
  case Effect::mbarrier_setup:
  case Effect::mbarrier:
    return mbarrier<checked_mbarrier>;
  case Effect::mbarrier_wait:
    return mbarrier<checked_mbarrier_wait>;
  case Effect::block_barrier:
    return block_barrier;
  case Effect::warp_barrier:
    return plain<checked_warp_barrier>;
  case Effect::shuffle:
    return plain<checked_shuffle>;
  case Effect::product:
    return collective<checked_product>;
  case Effect::product_commit:
    return plain<checked_product_commit>;
  case Effect::product_wait:
    return plain<checked_product_wait>;
  case Effect::bulk_commit:
    return plain<checked_bulk_commit>;
  case Effect::bulk_wait:
    return plain<checked_bulk_wait>;
  case Effect::proxy_fence:
    return plain<checked_proxy_fence>;
  case Effect::cluster_arrive:
    return plain<checked_cluster_arrive>;
  case Effect::cluster_wait:
    return plain<checked_cluster_wait>;
  case Effect::vote:
    return plain<checked_vote>;
  case Effect::fence:
    return plain<checked_fence>;
  case Effect::call:
    return call;
  case Effect::window:
    return window;
  }
  return nullptr;
}

} // namespace

bool is_checked(Effect effect) { return describer(effect) != nullptr; }

std::shared_ptr<const CheckedCode> instrument(const machine::Code &code) {
  auto checked = std::make_shared<CheckedCode>();
  auto copy = std::make_shared<machine::Code>(code);
  checked->sites.resize(code.instructions.size());
  for (std::size_t i = 0; i < code.instructions.size(); ++i) {
    if (!code.sources[i])
      continue;
    machine::Instruction &instruction = copy->instructions[i];
    Site &site = checked->sites[i];
    const Effect effect = code.sources[i]->row->effect;
    checked->uses_async_proxy |= effect == Effect::bulk_copy || effect == Effect::product;
    const Describe describe = describer(effect);
    if (const Handler handler = describe ? describe(*code.sources[i], instruction, site) : nullptr)
      site.original = std::exchange(instruction.execute, handler);
    // So that a branch is seen whose undefined guard lets no lane take it.
    site.is_guarded =
        instruction.prologue & machine::kPrologueGuard && !(instruction.prologue & machine::kPrologueSettle);
    if (site.is_guarded)
      instruction.prologue &= ~machine::kPrologueGuard;
    if (site.is_guarded || !code.sources[i]->operands.empty() || code.sources[i]->is(program::Trait::returns))
      site.next = std::exchange(instruction.execute, checked_values);
  }
  find_origins(code, checked->sites);
  checked->code = std::move(copy);
  return checked;
}

} // namespace ladder::sanitizer
