// setmaxnreg: "Miscellaneous Instructions" of the PTX manual. Warps of a block exchange registers through the
// block's pool.
#include "instructions/elementwise.h"
#include "instructions/mma.h"
#include "machine/block.h"

#include <string>

namespace ladder::instructions {

using machine::Block;
using machine::FaultError;
using machine::FaultKind;
using machine::RegisterPool;

namespace {

constexpr std::uint32_t kFewest = 24, kMost = 256, kStep = 8;

std::string registers(std::uint32_t count) { return std::to_string(count) + " registers per thread"; }

/// imm: the new number of registers per thread.
void decrease(Warp &warp, const Instruction &in) {
  if (!whole_warp(warp))
    return;
  RegisterPool &pool = warp.block().register_pool();
  const auto wanted = std::uint32_t(in.imm);
  if (pool.is_ignored())
    return;
  if (wanted > pool.of(warp.index()))
    throw FaultError(FaultKind::bad_operand, "setmaxnreg.dec to " + registers(wanted) +
                                                 " by a warp that has " +
                                                 std::to_string(pool.of(warp.index())));
  pool.resize(warp.index(), wanted);
  warp.block().note_progress();
  for (Warp &other : warp.block().warps())
    other.release_waits();
}

void increase(Warp &warp, const Instruction &in) {
  if (!whole_warp(warp))
    return;
  RegisterPool &pool = warp.block().register_pool();
  const auto wanted = std::uint32_t(in.imm);
  if (pool.is_ignored())
    return;
  if (wanted < pool.of(warp.index()))
    throw FaultError(FaultKind::bad_operand, "setmaxnreg.inc to " + registers(wanted) +
                                                 " by a warp that has " +
                                                 std::to_string(pool.of(warp.index())));
  if (pool.can_resize(warp.index(), wanted)) {
    pool.resize(warp.index(), wanted);
    return;
  }
  warp.wait_for([](Warp &waiting) {
    const RegisterPool &empty = waiting.block().register_pool();
    return "registers: the block was launched with " + registers(empty.at_launch()) + ", this warp has " +
           std::to_string(empty.of(waiting.index())) + " and the pool can add " +
           std::to_string(empty.free() / 32);
  });
}

bool bind_setmaxnreg(Binder &binder) {
  needs_target(binder, {"sm_90a", "sm_100a"});
  const program::Operand &count = binder.operand(0);
  if (count.kind != program::Operand::Kind::integer || count.bits < kFewest || count.bits > kMost ||
      count.bits % kStep)
    binder.unsupported("the number of registers must be a constant, a multiple of 8 from 24 to 256");
  if (!binder.has("inc") && !binder.has("dec"))
    return false;
  binder.out.imm = std::int64_t(count.bits);
  binder.out.execute = binder.has("inc") ? increase : decrease;
  return true;
}

constexpr TableEntry kTable[] = {{"setmaxnreg", bind_setmaxnreg}};

} // namespace

std::span<const TableEntry> set_registers_table() { return kTable; }

} // namespace ladder::instructions
