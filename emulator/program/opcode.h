// The opcode table (opcodes.def): the traits that all layers query, so that none compares opcode names.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ladder::program {

/// Instruction traits, one bit each.
namespace trait {
enum Trait : std::uint32_t {
  nothing = 0,
  writes_first = 1 << 0,    ///< writes its first operand, reads the rest; without it any operand may be both
  branches = 1 << 1,        ///< to labels
  by_index = 1 << 2,        ///< indexes a list of labels
  calls = 1 << 3,           ///< operands as described at program::Instruction
  returns = 1 << 4,         ///< returns from the function
  exits = 1 << 5,           ///< ends the thread
  traps = 1 << 6,           ///< ends the launch
  polls = 1 << 7,           ///< spin loops consist of these: another thread changes the result
  polls_if_strong = 1 << 8, ///< polls with .volatile, .relaxed, .acquire or .mmio
  mma = 1 << 9,             ///< a matrix product, counted as such
  warp_wide = 1 << 10,      ///< all lanes, or those named by a mask, must execute it together
  barrier = 1 << 11,        ///< synchronises threads of different warps
  aligned = 1 << 12,        ///< a barrier that whole warps reach
  lands_late = 1 << 13,     ///< reads and writes its first operand; the write lands at the wait
  adds = 1 << 14,           ///< first operand = sum of the next two
  moves = 1 << 15,          ///< first operand = second operand
  offsets = 1 << 16,        ///< the result of an address operand points into the same variable
  fragments = 1 << 17,      ///< a matrix product of which the PTX manual says what each lane holds
};
} // namespace trait
using trait::Trait;

/// What an instruction does to memory, or to the order in which threads see it. The sanitizer checks each
/// effect; the binder rejects an instruction that has an address operand but no effect.
enum class Effect : std::uint8_t {
  none,
  unchecked, ///< affects only caches, or is not modelled: the sanitizer skips it
  load,
  store,
  atomic,
  matrix_load, ///< one 16-byte row per lane
  matrix_store,
  fragment_load, ///< a matrix whose rows are a stride apart
  fragment_store,
  copy, ///< cp.async
  copy_commit,
  copy_wait,
  copy_arrive, ///< the thread's copies arrive on an mbarrier
  bulk_copy,
  async_store, ///< st.async, red.async
  mbarrier_setup,
  mbarrier,
  mbarrier_wait,
  block_barrier,
  warp_barrier,
  product, ///< wgmma.mma_async: the operands are read until the wait
  product_commit,
  product_wait,
  bulk_commit,
  bulk_wait,
  proxy_fence, ///< between the generic and the async proxy
  cluster_arrive,
  cluster_wait,
  shuffle,
  vote, ///< warp-wide exchanges other than shuffles
  fence,
  call,
  window, ///< converts to or from a generic address
};

/// One row of the table.
struct Opcode {
  std::string_view form; ///< "cp.async.bulk"
  std::uint32_t traits;
  Effect effect;
  std::string_view effect_name;

  bool is(Trait trait) const { return traits & trait; }
};

std::span<const Opcode> opcodes();

/// Returns the row of an instruction. An unknown opcode gets a row of conservative traits and no effect.
const Opcode &find_opcode(std::string_view opcode, const std::vector<std::string> &modifiers);
/// The same, from a dotted name.
const Opcode &find_opcode(std::string_view full_opcode);

} // namespace ladder::program
