// "Stack Manipulation Instructions".
#include "instructions/elementwise.h"

#include <algorithm>

namespace ladder::instructions {

namespace {

/// op = d, size; imm: the alignment. The thread's memory is freed when its function returns.
template <class Address> void allocate(Warp &warp, const Instruction &in) {
  const auto *sizes = warp.lanes<Address>(in.op[1]);
  auto *d = warp.lanes<Address>(in.op[0]);
  const auto alignment = static_cast<std::uint64_t>(in.imm);
  for_lanes(warp.active(), [&](int lane) {
    const std::uint64_t begin = (warp.stack_end(lane) + alignment - 1) & ~(alignment - 1);
    const std::uint64_t size = sizes[lane];
    warp.set_stack_end(lane, begin + size < begin ? ~std::uint64_t(0) : begin + size);
    d[lane] = static_cast<Address>(begin);
  });
}

template <class Address> void save(Warp &warp, const Instruction &in) {
  auto *d = warp.lanes<Address>(in.op[0]);
  for_lanes(warp.active(), [&](int lane) { d[lane] = warp.stack_end(lane); });
}

template <class Address> void restore(Warp &warp, const Instruction &in) {
  const auto *ends = warp.lanes<Address>(in.op[0]);
  for_lanes(warp.active(), [&](int lane) { warp.set_stack_end(lane, ends[lane]); });
}

bool is_wide(const Binder &b) {
  only(b, {});
  return ptx::type_bytes(b.type()) == 8;
}

bool bind_alloca(Binder &b) {
  constexpr std::int64_t kDefaultAlignment = 8;
  const bool wide = is_wide(b);
  b.out.op[0] = b.destination_slot(0, b.type());
  b.out.op[1] = b.source_slot(1, b.type());
  b.out.imm = b.operand_count() > 2 ? static_cast<std::int64_t>(b.operand(2).bits) : kDefaultAlignment;
  if (b.out.imm <= 0 || !std::has_single_bit(static_cast<std::uint64_t>(b.out.imm)))
    b.unsupported("an alignment that is not a power of two");
  b.out.execute = wide ? allocate<std::uint64_t> : allocate<std::uint32_t>;
  return true;
}

bool bind_stacksave(Binder &b) {
  b.out.execute = is_wide(b) ? save<std::uint64_t> : save<std::uint32_t>;
  b.out.op[0] = b.destination_slot(0, b.type());
  return true;
}

bool bind_stackrestore(Binder &b) {
  b.out.execute = is_wide(b) ? restore<std::uint64_t> : restore<std::uint32_t>;
  b.out.op[0] = b.source_slot(0, b.type());
  return true;
}

constexpr TableEntry kTable[] = {
    {"alloca", bind_alloca},
    {"stacksave", bind_stacksave},
    {"stackrestore", bind_stackrestore},
};

} // namespace

std::span<const TableEntry> stack_table() { return kTable; }

} // namespace ladder::instructions
