// The table of opcodes (opcodes.def): what every layer asks of an instruction, so that none of them compares
// names.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ladder::program {

/// What an instruction is, a bit each.
namespace trait {
enum Trait : std::uint32_t {
  nothing = 0,
  writes_first = 1 << 0,    ///< writes its first operand and reads the others; else all may be both
  branches = 1 << 1,        ///< to labels
  by_index = 1 << 2,        ///< the label comes from a list
  calls = 1 << 3,           ///< operands as program::Instruction says
  returns = 1 << 4,         ///< from the function
  exits = 1 << 5,           ///< ends the thread
  traps = 1 << 6,           ///< ends the launch
  polls = 1 << 7,           ///< what a waiting loop is made of: what it sees, another thread changes
  polls_if_strong = 1 << 8, ///< the same with .volatile, .relaxed, .acquire or .mmio
  mma = 1 << 9,             ///< a matrix product, counted as such
  warp_wide = 1 << 10,      ///< all lanes, or those that a mask names, must come to it
  barrier = 1 << 11,        ///< of threads of different warps
  aligned = 1 << 12,        ///< a barrier that takes whole warps
  lands_late = 1 << 13,     ///< writes its first operand, which it also reads, once somebody waits for it
  adds = 1 << 14,           ///< its first operand becomes the sum of the two others
  moves = 1 << 15,          ///< its first operand becomes the second
  offsets = 1 << 16,        ///< from an address makes one in the same variable
};
} // namespace trait
using trait::Trait;

/// What an instruction does to memory, or to the order in which threads see it. The sanitizer has a check for
/// each; binding refuses an instruction that has an address and no effect.
enum class Effect : std::uint8_t {
  none,
  unchecked, ///< on caches alone, or not modelled: the sanitizer passes it over
  load,
  store,
  atomic,
  matrix_load, ///< a row of 16 bytes a lane
  matrix_store,
  fragment_load, ///< a matrix with a stride
  fragment_store,
  copy, ///< cp.async
  copy_commit,
  copy_wait,
  copy_arrive, ///< an mbarrier learns of the thread's copies
  bulk_copy,
  mbarrier_setup,
  mbarrier,
  mbarrier_wait,
  block_barrier,
  warp_barrier,
  product, ///< wgmma.mma_async: reads its operands at its wait
  product_commit,
  product_wait,
  bulk_commit,
  bulk_wait,
  proxy_fence, ///< between threads and the asynchronous proxy
  cluster_arrive,
  cluster_wait,
  shuffle,
  vote, ///< what lanes do together besides shuffles
  fence,
  call,
  window, ///< into or out of the generic address space
};

/// A row of the table.
struct Opcode {
  std::string_view form; ///< "cp.async.bulk"
  std::uint32_t traits;
  Effect effect;
  std::string_view effect_name;

  bool is(Trait trait) const { return traits & trait; }
};

std::span<const Opcode> opcodes();

/// The row of an instruction. One that the table does not know has traits that are always safe, and no
/// effect.
const Opcode &find_opcode(std::string_view opcode, const std::vector<std::string> &modifiers);
/// The same for a dotted name.
const Opcode &find_opcode(std::string_view full_opcode);

} // namespace ladder::program
