// The opcode table (opcodes.def). All layers ask it instead of comparing the names of opcodes or modifiers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ladder::program {

/// Instruction traits, one bit each.
namespace trait {
enum Trait : std::uint64_t {
  nothing = 0,
  writes_first = 1ull << 0, ///< writes its first operand, reads the rest; without it any operand may be both
  branches = 1ull << 1,     ///< to labels
  by_index = 1ull << 2,     ///< indexes a list of labels
  calls = 1ull << 3,        ///< operands as described at program::Instruction
  returns = 1ull << 4,      ///< returns from the function
  exits = 1ull << 5,        ///< ends the thread
  traps = 1ull << 6,        ///< ends the launch
  polls = 1ull << 7,        ///< spin loops consist of these: another thread changes the result
  polls_if_strong = 1ull << 8, ///< polls with .volatile, .relaxed, .acquire or .mmio
  mma = 1ull << 9,             ///< a matrix product, counted as such
  warp_wide = 1ull << 10,      ///< all lanes, or those named by a mask, must execute it together
  barrier = 1ull << 11,        ///< synchronises threads of different warps
  aligned = 1ull << 12,        ///< a barrier that whole warps reach
  lands_late = 1ull << 13,     ///< reads and writes its first operand; the write lands at the wait
  adds = 1ull << 14,           ///< first operand = sum of the next two
  moves = 1ull << 15,          ///< first operand = second operand
  offsets = 1ull << 16,        ///< the result of an address operand points into the same variable
  fragments = 1ull << 17,      ///< a matrix product whose fragments the PTX manual specifies lane by lane
  reduces = 1ull << 18,        ///< a bulk copy that combines with the values in memory
  all_groups = 1ull << 19,     ///< waits for all copies of the thread
  by_mask = 1ull << 38,        ///< warp-wide for the lanes that a member mask names
  // Of modifiers:
  strong = 1ull << 20,      ///< another thread may access the address at the same time
  is_volatile = 1ull << 21, ///< strong only by .volatile
  relaxed = 1ull << 22,
  acquires = 1ull << 23,
  releases = 1ull << 24,
  passes_l1 = 1ull << 25,      ///< a load that cannot hit stale data in the L1
  read_only_path = 1ull << 26, ///< ld.global.nc
  in_shared = 1ull << 27,
  in_local = 1ull << 28,
  to_space = 1ull << 29, ///< cvta from a generic address
  swaps = 1ull << 30,    ///< compare-and-swap
  arrives = 1ull << 31,  ///< at a barrier, without waiting
  one_matrix = 1ull << 32,
  two_matrices = 1ull << 33,
  leftwards = 1ull << 34,     ///< the direction of a funnel shift
  wraps = 1ull << 35,         ///< its amount
  saturates = 1ull << 36,     ///< clamps to the range of the result
  expects_bytes = 1ull << 40, ///< of an mbarrier
  only_reads = 1ull << 39,    ///< waits until the sources have been read
  two_halves = 1ull << 37,    ///< computes on each half of its registers
  by_mode = 1ull << 41,       ///< a permutation that its modifier chooses
  sums = 1ull << 42,          ///< an atomic that adds
  floats = 1ull << 43,        ///< of floating-point type
  of_block = 1ull << 44,      ///< strong only among the threads of a block
  of_system = 1ull << 45,     ///< strong among all threads, the host's included
  in_global = 1ull << 46,
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
  mbarrier_init,
  mbarrier_inval,
  mbarrier,
  mbarrier_wait,
  block_barrier,
  warp_barrier,
  product, ///< wgmma.mma_async: the operands are read until the wait
  product_fence,
  product_commit,
  product_wait,
  bulk_commit,
  bulk_wait,
  proxy_fence,  ///< between the generic and the async proxy
  tensor_alloc, ///< columns of tensor memory
  tensor_dealloc,
  tensor_load, ///< from tensor memory; the registers are valid after the wait
  tensor_store,
  tensor_wait,
  tensor_fence,
  tensor_product, ///< tcgen05.mma
  tensor_copy,    ///< from shared to tensor memory
  tensor_commit,  ///< the thread's products and copies arrive on an mbarrier
  grid_wait,      ///< for the previous launch
  map_change,     ///< tensormap: writes a tensor map
  cluster_arrive,
  cluster_wait,
  shuffle,
  vote, ///< warp-wide exchanges other than shuffles
  fence,
  call,
  window, ///< converts to or from a generic address
};
inline constexpr std::size_t kEffects = std::size_t(Effect::window) + 1;

/// Which bits of the sources determine a bit of the result.
enum class BitRule : std::uint8_t {
  by_type, ///< all bits of the same half if the instruction computes on two halves, else all
  whole,   ///< all
  copies,  ///< the same one
  ands,
  ors,
  xors,
  looks_up, ///< lop3
  shifts_left,
  shifts_right,
  funnels, ///< shf
  permutes,
  extracts,
  inserts,
  selects,
  converts,
};

/// One row of the table.
struct Opcode {
  std::string_view form; ///< "cp.async.bulk"
  std::uint64_t traits;
  Effect effect;
  std::string_view effect_name;
  BitRule bits = BitRule::by_type;
};

std::span<const Opcode> opcodes();

/// An instruction's row, and the traits of the row and of the modifiers.
struct FoundOpcode {
  const Opcode *row;
  std::uint64_t traits;
  bool is(Trait trait) const { return traits & trait; }
};

/// An unknown opcode gets a row of conservative traits and no effect.
FoundOpcode find_opcode(std::string_view opcode, const std::vector<std::string> &modifiers);
/// The same, from a dotted name.
FoundOpcode find_opcode(std::string_view full_opcode);

} // namespace ladder::program
