// atom and red: "Parallel Synchronization and Communication Instructions" of the PTX manual.
//
// Lanes act one after another, in lane order. One host thread owns a block's shared memory, so plain reads
// and writes suffice there; blocks on other host threads share global memory, which takes compare-exchange
// loops.
#include "instructions/addressing.h"
#include "instructions/machine_accesses.h"
#include "instructions/memory_operations.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

namespace ladder::instructions {

using machine::AccessKind;
using machine::FaultError;
using machine::FaultKind;
using machine::Handler;
using machine::Instruction;
using machine::SharedCostCache;
using machine::Warp;
using program::Operand;
using ptx::Type;

namespace {

// Operands: op[0] the address, op[1] the destination, op[2] and op[3] the sources. Vector forms keep the
// destinations, then the sources, in more. Flags above the address's:
constexpr std::uint32_t kReturns = 1u << 12;    ///< atom, not red
constexpr std::uint32_t kCostOfAdd = 1u << 13;  ///< costs the same as atom.add.u32 in shared memory
constexpr std::uint32_t kCostOfSwap = 1u << 14; ///< costs the same as atom.cas.b32 in shared memory

template <typename T, typename Operation> T update(T *place, T b, T c, bool in_shared) {
  if (in_shared) {
    const T old = *place;
    *place = Operation::apply(old, b, c, true);
    return old;
  }
  T old = __atomic_load_n(place, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(place, &old, Operation::apply(old, b, c, false), true, __ATOMIC_SEQ_CST,
                                      __ATOMIC_RELAXED)) {
  }
  return old;
}

void count(Warp &warp, const Instruction &in, const LaneAccess &access, unsigned bytes) {
  if (access.shared_lanes) {
    if (in.flags & kIsIncrement && bytes == 4) // lanes that add 1 to the same word are served together
      count_shared(warp, in, AccessKind::shared_atomic, SharedCostCache::Op::load, access.shared,
                   access.shared_lanes, 4);
    else if (bytes == 4 && in.flags & (kCostOfAdd | kCostOfSwap | kIsNative))
      count_shared(warp, in, AccessKind::shared_atomic,
                   !(in.flags & kCostOfSwap) ? SharedCostCache::Op::atomic
                                             : SharedCostCache::Op::compare_and_swap,
                   access.shared, access.shared_lanes, 4);
    else
      count_unmodelled(warp, in, AccessKind::shared_atomic);
  }
  if (access.global_lanes)
    count_global(warp, in, AccessKind::global_atomic, access, bytes);
}

/// T holds the type's bits; registers of up to 32 bits have 32-bit lanes.
template <typename T, typename Operation> void atomic(Warp &warp, const Instruction &in) {
  using Lane = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
  const std::uint32_t active = warp.active();
  const unsigned elements = element_count(in), bytes = elements * unsigned(sizeof(T));
  LaneAccess access;
  resolve(warp, address_space(in.flags), address_base(in.flags), in.op[0], in.imm, active, bytes, bytes,
          Direction::write, access);
  if (const std::uint32_t other = active & ~(access.shared_lanes | access.global_lanes))
    throw FaultError(FaultKind::bad_operand, "an atomic operation outside global and shared memory",
                     std::countr_zero(other));
  count(warp, in, access, bytes);
  const bool returns = in.flags & kReturns;
  if (elements == 1) {
    const Lane *const b = warp.lanes<Lane>(in.op[2]), *const c = warp.lanes<Lane>(in.op[3]);
    Lane *const to = warp.lanes<Lane>(in.op[1]);
    for_lanes(active, [&](int lane) {
      const T old =
          update<T, Operation>(access.at<T>(lane), T(b[lane]), T(c[lane]), access.shared_lanes >> lane & 1);
      if (returns)
        to[lane] = old;
    });
    return;
  }
  const std::uint32_t *const slots = warp.more(in);
  for_lanes(active, [&](int lane) {
    // Read all sources before writing a destination: they may be the same registers.
    T b[8] = {};
    for (unsigned i = 0; i < elements; ++i)
      b[i] = T(warp.lanes<Lane>(slots[elements + i])[lane]);
    for (unsigned i = 0; i < elements; ++i) {
      const T old = update<T, Operation>(access.at<T>(lane) + i, b[i], T(0), access.shared_lanes >> lane & 1);
      if (returns)
        warp.lanes<Lane>(slots[i])[lane] = old;
    }
  });
}

// --- binding

struct Atomics {
  using Result = Handler;
  template <typename T, typename Operation> static constexpr Handler of = atomic<T, Operation>;
};

constexpr std::string_view kOperations[] = {"and", "or",  "xor", "cas", "exch",
                                            "add", "inc", "dec", "min", "max"};

/// Every order and scope is treated as the strongest; caches are not modelled.
bool is_accepted(std::string_view word) {
  for (const std::string_view known :
       {"relaxed", "acquire", "release", "acq_rel", "cta", "cluster", "gpu", "sys", "global", "shared",
        "shared::cta", "shared::cluster", "noftz", "v2", "v4", "v8"})
    if (word == known)
      return true;
  return std::ranges::find(kOperations, word) != std::end(kOperations) || word.starts_with("L2::") ||
         ptx::type_from_name(word).has_value();
}

template <bool returns> bool bind_atomic(Binder &binder) {
  std::string_view operation;
  for (const std::string &modifier : binder.source.modifiers) {
    if (!is_accepted(modifier))
      binder.unsupported("." + modifier);
    if (std::ranges::find(kOperations, modifier) != std::end(kOperations))
      operation = modifier;
  }
  const Type type = binder.type();
  binder.out.execute = find_operation<Atomics>(operation, type);
  if (!binder.out.execute)
    binder.unsupported("this operation on ." + std::string(ptx::type_name(type)));

  std::size_t next = 0;
  const Operand *const destination = returns ? &binder.operand(next++) : nullptr;
  const Binder::Address place = binder.address(binder.operand(next++));
  const Operand &b = binder.operand(next++);
  const unsigned elements = binder.has("v2") ? 2 : binder.has("v4") ? 4 : binder.has("v8") ? 8 : 1;
  binder.out.op[0] = place.slot;
  binder.out.imm = place.offset;
  binder.out.flags =
      address_flags(place.base, space_of(binder)) | elements << kElementsShift | (returns ? kReturns : 0);

  if (elements > 1) {
    std::vector<std::uint32_t> slots(elements);
    if (b.elements.size() != elements || (destination && destination->elements.size() != elements))
      binder.unsupported("the number of elements differs from the vector's");
    for (unsigned i = 0; destination && i < elements; ++i)
      slots[i] = binder.destination_slot(destination->elements[i], type);
    for (const Operand &element : b.elements)
      slots.push_back(binder.source_slot(element, type));
    binder.set_more(slots);
    return true;
  }
  const std::uint32_t b_slot = binder.source_slot(b, type);
  binder.out.op[2] = binder.out.op[3] = b_slot;
  if (destination)
    binder.out.op[1] = binder.destination_slot(*destination, type);
  if (operation == "cas")
    binder.out.op[3] = binder.source_slot(next, type);
  // Only the measured forms. Adding an immediate is not one: ptxas turns adding 1 into another instruction.
  if (returns && destination->kind != Operand::Kind::sink && binder.is_named_again(*destination)) {
    if (operation == "add" && type == Type::u32 && b.kind == Operand::Kind::reg)
      binder.out.flags |= kCostOfAdd;
    if (operation == "cas" && type == Type::b32)
      binder.out.flags |= kCostOfSwap;
  }
  return true;
}

constexpr TableEntry kTable[] = {{"atom", bind_atomic<true>}, {"red", bind_atomic<false>}};

} // namespace

std::span<const TableEntry> atomic_table() { return kTable; }

} // namespace ladder::instructions
