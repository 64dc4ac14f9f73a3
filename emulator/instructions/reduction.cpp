#include "instructions/reduction.h"

#include "instructions/memory_operations.h"

#include <cstring>

namespace ladder::instructions {

namespace {

using machine::Combine;
using ptx::Type;

/// Reductions never flush subnormals, in any state space.
template <typename T, typename Operation>
void combine(std::uint8_t *to, const std::uint8_t *from, std::size_t bytes) {
  auto *place = reinterpret_cast<T *>(to);
  for (std::size_t i = 0; i + sizeof(T) <= bytes; i += sizeof(T), ++place) {
    T value;
    std::memcpy(&value, from + i, sizeof value);
    T old = __atomic_load_n(place, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(place, &old, Operation::apply(old, value, T(0), true), true,
                                        __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {
    }
  }
}

struct Reductions {
  using Result = Combine;
  template <typename T, typename Operation> static constexpr Combine of = combine<T, Operation>;
};

} // namespace

Combine find_reduction(std::string_view operation, Type type) {
  switch (type) {
  case Type::u8:
    return integer_operation<Reductions, std::uint8_t>(operation);
  case Type::u16:
    return integer_operation<Reductions, std::uint16_t>(operation);
  case Type::f16x2:
  case Type::bf16x2:
    return nullptr;
  default:
    return find_operation<Reductions>(operation, type);
  }
}

} // namespace ladder::instructions
