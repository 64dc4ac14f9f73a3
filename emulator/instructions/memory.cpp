// ld, ldu, st, prefetch and fences: "Data Movement and Conversion Instructions" and "Parallel
// Synchronization" of the PTX manual.
#include "instructions/addressing.h"
#include "instructions/load_store.h"
#include "instructions/machine_accesses.h"

#include <algorithm>
#include <atomic>
#include <string>

namespace ladder::instructions {

using machine::Instruction;
using machine::Warp;
using program::Operand;
using ptx::Type;

namespace {

void fence(Warp &, const Instruction &) { std::atomic_thread_fence(std::memory_order_seq_cst); }

void nothing(Warp &, const Instruction &) {}

void zero_policy(Warp &warp, const Instruction &in) {
  std::uint64_t *const to = warp.lanes<std::uint64_t>(in.op[0]);
  for_lanes(warp.active(), [&](int lane) { to[lane] = 0; });
}

/// Accepts cache and ordering modifiers. Emulated memory is coherent, so only acquire and release matter.
bool is_accepted(std::string_view word) {
  for (const std::string_view known :
       {"weak",         "volatile",   "relaxed", "acquire", "release",     "mmio",
        "cta",          "cluster",    "gpu",     "sys",     "global",      "shared",
        "local",        "param",      "const",   "ca",      "cg",          "cs",
        "lu",           "cv",         "wb",      "wt",      "nc",          "v2",
        "v4",           "v8",         "unified", "b8x16",   "shared::cta", "shared::cluster",
        "param::entry", "param::func"})
    if (word == known)
      return true;
  return word.starts_with("L1::") || word.starts_with("L2::") || ptx::type_from_name(word).has_value();
}

struct Form {
  Space space;
  Type type;
  unsigned elements;
};

Form read_form(Binder &binder) {
  for (const std::string &modifier : binder.source.modifiers)
    if (!is_accepted(modifier))
      binder.unsupported("." + modifier);
  Form form{space_of(binder), binder.type(), 1};
  form.elements = binder.has("v2") ? 2 : binder.has("v4") ? 4 : binder.has("v8") ? 8 : 1;
  if (ptx::type_bytes(form.type) == 0 || (form.type == Type::b128 && form.elements != 1))
    binder.unsupported("a memory access of this type");
  return form;
}

/// The element operands of a load or store; a scalar has one.
std::vector<const Operand *> elements_of(Binder &binder, const Operand &operand, unsigned count) {
  std::vector<const Operand *> elements;
  if (operand.kind == Operand::Kind::vector)
    for (const Operand &element : operand.elements)
      elements.push_back(&element);
  else
    elements.push_back(&operand);
  if (elements.size() != count)
    binder.unsupported("the number of elements differs from the vector's");
  return elements;
}

void set_form(Binder &binder, const Operand &address, const Form &form,
              const std::vector<std::uint32_t> &slots) {
  const Binder::Address place = binder.address(address);
  binder.out.op[0] = place.slot;
  binder.out.imm = place.offset;
  binder.out.flags = address_flags(place.base, form.space) | std::uint32_t(slots.size()) << kElementsShift;
  if (slots.size() <= 4)
    std::copy(slots.begin(), slots.end(), binder.out.op + 1);
  else
    binder.set_more(slots);
}

/// Offset of the second of a .b128 register's two 64-bit halves.
constexpr std::uint32_t kHighHalf = 8 * program::kLanes;

bool bind_ld(Binder &binder) {
  const Form form = read_form(binder);
  const Operand &destination = binder.operand(0);
  std::vector<std::uint32_t> slots;
  LoadHandlers handlers;
  if (form.type == Type::b128) {
    const std::uint32_t slot = binder.raw_slot(destination);
    slots = {slot, destination.kind == Operand::Kind::sink ? slot : slot + kHighHalf};
    handlers = load_handlers(form.space, Type::b64, 8);
  } else {
    unsigned register_bytes = 0;
    for (const Operand *const element : elements_of(binder, destination, form.elements)) {
      slots.push_back(binder.raw_slot(*element));
      if (element->kind == Operand::Kind::sink)
        continue;
      const unsigned bytes = ptx::type_bytes(element->reg.type);
      if (register_bytes && bytes != register_bytes)
        binder.unsupported("the elements' registers are of different widths");
      register_bytes = bytes;
    }
    if (register_bytes == 0)
      register_bytes = ptx::type_bytes(form.type);
    if (ptx::type_bytes(form.type) > register_bytes)
      binder.unsupported("a register is narrower than ." + std::string(ptx::type_name(form.type)));
    handlers = load_handlers(form.space, form.type, register_bytes);
  }
  set_form(binder, binder.operand(1), form, slots);
  const bool is_entry_param =
      form.space == Space::param && address_base(binder.out.flags) == Binder::Address::Base::entry_param;
  binder.out.execute = is_entry_param ? handlers.entry_param : handlers.by_address;
  if (binder.has("acquire"))
    binder.out.flags |= kAcquire;
  if (binder.source.is_dead)
    binder.out.flags |= kNotCounted;
  const unsigned bytes = form.elements * ptx::type_bytes(form.type);
  const std::uint32_t all = bytes >= 32 ? ptx::kAllBytes : (1u << bytes) - 1;
  if (const std::uint32_t used = binder.source.used_bytes & all; used != all && used != 0) {
    binder.out.op[5] = used;
    binder.out.flags |= kPartial;
  }
  return true;
}

bool bind_st(Binder &binder) {
  const Form form = read_form(binder);
  if (form.space == Space::constant)
    binder.unsupported("a store to constant memory");
  const Operand &source = binder.operand(1);
  const unsigned bytes = ptx::type_bytes(form.type);
  std::vector<std::uint32_t> slots;
  unsigned lane_bytes = 0;
  if (form.type == Type::b128) {
    const std::uint32_t slot = binder.raw_slot(source);
    slots = {slot, slot + kHighHalf};
    lane_bytes = 8;
  } else {
    const auto elements = elements_of(binder, source, form.elements);
    for (const Operand *const element : elements) {
      const unsigned width = binder.operand_lane_bytes(*element);
      if (width && lane_bytes && width != lane_bytes)
        binder.unsupported("the elements' registers are of different widths");
      if (width)
        lane_bytes = width;
    }
    if (lane_bytes == 0)
      lane_bytes = bytes > 4 ? 8 : 4;
    if (lane_bytes < bytes)
      binder.unsupported("a register is narrower than ." + std::string(ptx::type_name(form.type)));
    for (const Operand *const element : elements) {
      if (binder.operand_lane_bytes(*element))
        slots.push_back(binder.raw_slot(*element));
      else if (lane_bytes == (bytes > 4 ? 8u : 4u))
        slots.push_back(binder.source_slot(*element, form.type));
      else
        slots.push_back(binder.source_slot(*element, Type::b64));
    }
  }
  binder.out.execute = store_handler(form.space, bytes, lane_bytes);
  set_form(binder, binder.operand(0), form, slots);
  if (binder.has("release"))
    binder.out.flags |= kRelease;
  return true;
}

bool bind_prefetch(Binder &binder) {
  binder.out.execute = nothing;
  return true;
}

bool bind_fence(Binder &binder) {
  binder.out.execute = fence;
  return true;
}

bool bind_createpolicy(Binder &binder) {
  // Caches are not modelled, so policies have no effect.
  binder.out.op[0] = binder.destination_slot(0, Type::b64);
  binder.out.execute = zero_policy;
  return true;
}

constexpr TableEntry kTable[] = {
    {"ld", bind_ld},
    {"ldu", bind_ld},
    {"st", bind_st},
    {"prefetch", bind_prefetch},
    {"prefetchu", bind_prefetch},
    {"discard", bind_prefetch},
    {"applypriority", bind_prefetch},
    {"fence", bind_fence},
    {"membar", bind_fence},
    {"createpolicy", bind_createpolicy},
};

} // namespace

std::span<const TableEntry> memory_table() { return kTable; }

} // namespace ladder::instructions
