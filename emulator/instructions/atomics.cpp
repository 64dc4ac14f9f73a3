// atom and red: "Parallel Synchronization and Communication Instructions" of the PTX manual.
//
// Lanes act one after another, in lane order. One host thread owns a block's shared memory, so plain reads
// and writes suffice there; blocks on other host threads share global memory, which takes compare-exchange
// loops.
#include "instructions/addressing.h"
#include "instructions/half_type.h"
#include "instructions/machine_accesses.h"

#include <algorithm>
#include <bit>
#include <cmath>
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

// An operation maps (value in memory, b, c) to the new value, all as bits of the type.

struct And {
  template <typename T> static T apply(T old, T b, T, bool) { return old & b; }
};
struct Or {
  template <typename T> static T apply(T old, T b, T, bool) { return old | b; }
};
struct Xor {
  template <typename T> static T apply(T old, T b, T, bool) { return old ^ b; }
};
struct Exchange {
  template <typename T> static T apply(T, T b, T, bool) { return b; }
};
struct CompareAndSwap {
  template <typename T> static T apply(T old, T b, T c, bool) { return old == b ? c : old; }
};
struct Increment {
  template <typename T> static T apply(T old, T b, T, bool) { return old >= b ? 0 : old + 1; }
};
struct Decrement {
  template <typename T> static T apply(T old, T b, T, bool) { return old == 0 || old > b ? b : old - 1; }
};
struct Add {
  template <typename T> static T apply(T old, T b, T, bool) { return old + b; }
};
template <typename Value> struct Min {
  template <typename T> static T apply(T old, T b, T, bool) { return T(std::min(Value(old), Value(b))); }
};
template <typename Value> struct Max {
  template <typename T> static T apply(T old, T b, T, bool) { return T(std::max(Value(old), Value(b))); }
};

float flush(float value) {
  return std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(0.0f, value) : value;
}

struct AddF32 {
  /// Global memory flushes subnormal inputs and results to zero; shared memory does not.
  static std::uint32_t apply(std::uint32_t old, std::uint32_t b, std::uint32_t, bool in_shared) {
    const float x = std::bit_cast<float>(old), y = std::bit_cast<float>(b);
    return std::bit_cast<std::uint32_t>(in_shared ? x + y : flush(flush(x) + flush(y)));
  }
};
struct AddF64 {
  static std::uint64_t apply(std::uint64_t old, std::uint64_t b, std::uint64_t, bool) {
    return std::bit_cast<std::uint64_t>(std::bit_cast<double>(old) + std::bit_cast<double>(b));
  }
};

// Rounding the sum of two 16-bit floats to f32 first is harmless: 24 bits are at least 2 * 11 + 2.
template <typename Format> struct AddHalf {
  static std::uint16_t apply(std::uint16_t old, std::uint16_t b, std::uint16_t, bool) {
    return std::uint16_t(Format::from_float(Format::to_float(old) + Format::to_float(b)));
  }
};
template <typename Format> struct MinHalf {
  static std::uint16_t apply(std::uint16_t old, std::uint16_t b, std::uint16_t, bool) {
    return std::uint16_t(Format::from_float(std::fmin(Format::to_float(old), Format::to_float(b))));
  }
};
template <typename Format> struct MaxHalf {
  static std::uint16_t apply(std::uint16_t old, std::uint16_t b, std::uint16_t, bool) {
    return std::uint16_t(Format::from_float(std::fmax(Format::to_float(old), Format::to_float(b))));
  }
};
template <typename One> struct Packed {
  static std::uint32_t apply(std::uint32_t old, std::uint32_t b, std::uint32_t, bool in_shared) {
    const std::uint32_t low = One::apply(std::uint16_t(old), std::uint16_t(b), 0, in_shared);
    const std::uint32_t high = One::apply(std::uint16_t(old >> 16), std::uint16_t(b >> 16), 0, in_shared);
    return low | high << 16;
  }
};

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

template <typename T> Handler bits_handler(std::string_view operation) {
  if (operation == "and")
    return atomic<T, And>;
  if (operation == "or")
    return atomic<T, Or>;
  if (operation == "xor")
    return atomic<T, Xor>;
  if (operation == "exch")
    return atomic<T, Exchange>;
  if (operation == "cas")
    return atomic<T, CompareAndSwap>;
  return nullptr;
}

template <typename Value> Handler integer_handler(std::string_view operation) {
  using T = std::make_unsigned_t<Value>;
  if (operation == "add")
    return atomic<T, Add>;
  if (operation == "min")
    return atomic<T, Min<Value>>;
  if (operation == "max")
    return atomic<T, Max<Value>>;
  if constexpr (std::is_same_v<Value, std::uint32_t>) {
    if (operation == "inc")
      return atomic<T, Increment>;
    if (operation == "dec")
      return atomic<T, Decrement>;
  }
  return bits_handler<T>(operation);
}

template <typename Format> Handler half_handler(std::string_view operation) {
  if (operation == "add")
    return atomic<std::uint16_t, AddHalf<Format>>;
  if (operation == "min")
    return atomic<std::uint16_t, MinHalf<Format>>;
  if (operation == "max")
    return atomic<std::uint16_t, MaxHalf<Format>>;
  return nullptr;
}

template <typename Format> Handler packed_handler(std::string_view operation) {
  if (operation == "add")
    return atomic<std::uint32_t, Packed<AddHalf<Format>>>;
  if (operation == "min")
    return atomic<std::uint32_t, Packed<MinHalf<Format>>>;
  if (operation == "max")
    return atomic<std::uint32_t, Packed<MaxHalf<Format>>>;
  return nullptr;
}

Handler handler(std::string_view operation, Type type) {
  switch (type) {
  case Type::b16:
    return operation == "cas" || operation == "exch" ? bits_handler<std::uint16_t>(operation) : nullptr;
  case Type::b32:
    return bits_handler<std::uint32_t>(operation);
  case Type::b64:
    return bits_handler<std::uint64_t>(operation);
  case Type::u32:
    return integer_handler<std::uint32_t>(operation);
  case Type::s32:
    return integer_handler<std::int32_t>(operation);
  case Type::u64:
    return integer_handler<std::uint64_t>(operation);
  case Type::s64:
    return integer_handler<std::int64_t>(operation);
  case Type::f32:
    return operation == "add" ? atomic<std::uint32_t, AddF32> : nullptr;
  case Type::f64:
    return operation == "add" ? atomic<std::uint64_t, AddF64> : nullptr;
  case Type::f16:
    return half_handler<Half>(operation);
  case Type::bf16:
    return half_handler<BFloat>(operation);
  case Type::f16x2:
    return packed_handler<Half>(operation);
  case Type::bf16x2:
    return packed_handler<BFloat>(operation);
  default:
    return nullptr;
  }
}

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
  binder.out.execute = handler(operation, type);
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
