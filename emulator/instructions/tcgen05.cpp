// tcgen05 without its products, which are in tensor_product.cpp: allocation, loads, stores, waits and
// commits.
#include "instructions/tcgen05.h"

#include "instructions/addressing.h"
#include "instructions/elementwise.h"
#include "instructions/mbarrier.h"
#include "instructions/mma.h"
#include "machine/address_space.h"
#include "machine/cluster.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <utility>

namespace ladder::instructions {

using machine::Block;
using machine::FaultError;
using machine::FaultKind;
using machine::Instruction;
using machine::TensorCore;
using machine::TensorTransfer;
using machine::Warp;
using program::Operand;
using ptx::Type;

namespace {

/// The value that all lanes of the warp give.
std::uint32_t uniform(Warp &warp, std::uint32_t slot, const char *what) {
  const std::uint32_t *const values = warp.lanes<std::uint32_t>(slot);
  for (int lane = 1; lane < 32; ++lane)
    if (values[lane] != values[0])
      throw FaultError(FaultKind::bad_operand,
                       std::string(what) + " is not the same in all lanes of the warp", lane);
  return values[0];
}

// Flags of all of these above those of an address.
constexpr std::uint32_t kPair = 1u << kAddressFlagBits;

TensorCore &core_of(Warp &warp, const Instruction &in) {
  TensorCore &core = warp.block().tensor_core();
  core.require_group(in.flags & kPair ? 2 : 1);
  return core;
}

// --- allocation

/// op[0] the address of the result in shared memory, op[1] the number of columns.
void alloc(Warp &warp, const Instruction &in) {
  if (!whole_warp(warp))
    return;
  const std::uint32_t columns = uniform(warp, in.op[1], "the number of columns");
  LaneAccess to;
  resolve(warp, address_space(in.flags), address_base(in.flags), in.op[0], in.imm, warp.active(), 4, 4,
          Direction::write, to);
  if (to.shared_lanes != warp.active())
    throw FaultError(FaultKind::bad_operand, "tcgen05.alloc to an address outside shared memory", 0);
  const auto first = core_of(warp, in).memory().allocate(columns);
  if (!first)
    return warp.wait_for([](Warp &waiting) {
      return "free columns of tensor memory; " + waiting.block().tensor_core().memory().describe();
    });
  std::memcpy(to.at<std::uint8_t>(0), &*first, sizeof *first);
}

/// op[0] the address, op[1] the number of columns.
void dealloc(Warp &warp, const Instruction &in) {
  if (!whole_warp(warp))
    return;
  const std::uint32_t address = uniform(warp, in.op[0], "the address of tensor memory");
  core_of(warp, in).memory().free(tensor_column(address), uniform(warp, in.op[1], "the number of columns"));
  for (Warp &other : warp.block().warps())
    other.release_waits();
}

void relinquish(Warp &warp, const Instruction &in) {
  if (whole_warp(warp))
    core_of(warp, in).memory().relinquish();
}

// --- ld, st

// op[0] the slot of the address, imm its offset. more: the first column of lanes 16 to 31, then the
// registers.
constexpr std::uint32_t kShapeBits = 3;
constexpr std::uint32_t kPacks = 1u << kShapeBits;
constexpr std::uint32_t kRegistersShift = kShapeBits + 1;

TensorLayout layout_of(Warp &warp, const Instruction &in) {
  return {.shape = TensorLayout::Shape(in.flags & ((1u << kShapeBits) - 1)),
          .packs = bool(in.flags & kPacks),
          .registers = in.flags >> kRegistersShift,
          .second_half = std::int32_t(warp.more(in)[0])};
}

/// Calls f(register, lane of the warp, its row of tensor memory, its column).
template <typename F> void for_cells(Block &block, const TensorTransfer &transfer, F f) {
  const std::uint32_t flags = transfer.instruction->flags;
  const TensorLayout layout{TensorLayout::Shape(flags & ((1u << kShapeBits) - 1)), bool(flags & kPacks),
                            transfer.registers, transfer.second_half};
  machine::TensorMemory &memory = block.tensor_core().memory();
  for (std::uint32_t t = 0; t < 32; ++t)
    for (std::uint32_t r = 0; r < transfer.registers; ++r)
      f(r, t, memory.lane(transfer.lane + layout.lane(t, r)) + transfer.column + layout.column(t, r));
}

void land_load(Block &block, const TensorTransfer &load) {
  const bool packs = load.instruction->flags & kPacks;
  for_cells(block, load, [&](std::uint32_t r, std::uint32_t t, const std::uint32_t *cell) {
    reinterpret_cast<std::uint32_t *>(load.frame->registers + load.slots[r])[t] =
        packs ? (cell[0] & 0xffff) | cell[1] << 16 : cell[0];
  });
}

/// .unpack leaves zeros in the upper halves of the columns; the manual leaves them open.
void land_store(Block &block, const TensorTransfer &store) {
  const bool unpacks = store.instruction->flags & kPacks;
  for_cells(block, store, [&](std::uint32_t r, std::uint32_t t, std::uint32_t *cell) {
    const std::uint32_t value = store.values[r * 32 + t];
    cell[0] = unpacks ? value & 0xffff : value;
    if (unpacks)
      cell[1] = value >> 16;
  });
}

TensorTransfer transfer_of(Warp &warp, const Instruction &in) {
  const TensorTransferPlace place = tensor_transfer_place(warp, in);
  return {.instruction = &in,
          .frame = warp.shared_frame(),
          .slots = warp.more(in) + 1,
          .registers = place.layout.registers,
          .second_half = place.layout.second_half,
          .lane = place.lane,
          .column = place.column,
          .values = {},
          .land = land_load};
}

void load(Warp &warp, const Instruction &in) {
  if (whole_warp(warp))
    warp.block().tensor_core().issue_load(warp, transfer_of(warp, in));
}

void store(Warp &warp, const Instruction &in) {
  if (!whole_warp(warp))
    return;
  TensorTransfer transfer = transfer_of(warp, in);
  transfer.land = land_store;
  for (std::uint32_t r = 0; r < transfer.registers; ++r) {
    const std::uint32_t *const values = warp.lanes<std::uint32_t>(transfer.slots[r]);
    transfer.values.insert(transfer.values.end(), values, values + 32);
  }
  warp.block().tensor_core().issue_store(warp, std::move(transfer));
}

void wait_loads(Warp &warp, const Instruction &) {
  if (whole_warp(warp))
    warp.block().tensor_core().wait_loads(warp);
}

void wait_stores(Warp &warp, const Instruction &) {
  if (whole_warp(warp))
    warp.block().tensor_core().wait_stores(warp);
}

/// The emulator executes the instructions of a block one after the other; only the sanitizer looks at fences.
void fence(Warp &, const Instruction &) {}

// --- commit

// op[0] the address, op[1] the mask of blocks.
constexpr std::uint32_t kMulticast = 1u << (kAddressFlagBits + 1);

void commit(Warp &warp, const Instruction &in) {
  core_of(warp, in);
  for_lanes(warp.active(), [&](int lane) {
    machine::TensorQueue &queue = warp.block().tensor_core().queue(warp.index() * 32 + lane);
    for (const CommitTarget &target : commit_targets(warp, in, lane)) {
      load_mbarrier(target.block->shared(target.mbarrier, sizeof(std::uint64_t), lane), target.mbarrier,
                    lane);
      target.block->tensor_core().commits().push_back({target.mbarrier, &queue, queue.issued()});
    }
  });
}

// --- binding

std::uint32_t number_after(const Binder &binder, std::string_view prefix) {
  for (const std::string &modifier : binder.source.modifiers)
    if (modifier.starts_with(prefix) && modifier.size() > prefix.size() &&
        modifier.find_first_not_of("0123456789", prefix.size()) == std::string::npos)
      return std::uint32_t(std::stoul(modifier.substr(prefix.size())));
  return 0;
}

struct ShapeName {
  std::string_view name;
  TensorLayout::Shape shape;
  std::uint32_t registers; ///< of .x1
};
constexpr ShapeName kShapes[] = {
    {"32x32b", TensorLayout::Shape::x32, 1},        {"16x64b", TensorLayout::Shape::x16_64, 1},
    {"16x128b", TensorLayout::Shape::x16_128, 2},   {"16x256b", TensorLayout::Shape::x16_256, 4},
    {"16x32bx2", TensorLayout::Shape::x16_32x2, 1},
};
constexpr std::uint32_t kMostRegisters = 128;

bool bind_transfer(Binder &binder, bool loads) {
  if (binder.has("red"))
    binder.unsupported("tcgen05.ld.red exists on sm_103 and sm_110 only");
  const auto shape =
      std::ranges::find_if(kShapes, [&](const ShapeName &one) { return binder.has(one.name); });
  const std::uint32_t count = number_after(binder, "x");
  if (shape == std::end(kShapes) || !std::has_single_bit(count))
    binder.unsupported("this shape");
  const std::uint32_t registers = count * shape->registers;
  if (registers > kMostRegisters)
    binder.unsupported("more than 128 registers");
  const bool has_halves = shape->shape == TensorLayout::Shape::x16_32x2;
  const std::size_t address = loads ? 1 : 0, values = loads ? 0 : has_halves ? 2 : 1;
  const std::size_t half = loads ? 2 : 1;
  expect_operands(binder, has_halves ? 3 : 2);
  std::vector<std::uint32_t> more{0};
  if (has_halves) {
    if (binder.operand(half).kind != Operand::Kind::integer)
      binder.unsupported("the offset of the second half is not a constant");
    more[0] = std::uint32_t(binder.operand(half).bits);
  }
  const Operand &vector = binder.operand(values);
  const bool is_vector = vector.kind == Operand::Kind::vector;
  if ((is_vector ? vector.elements.size() : 1) != registers)
    binder.unsupported("the number of registers is not " + std::to_string(registers));
  for (std::uint32_t r = 0; r < registers; ++r) {
    const Operand &element = is_vector ? vector.elements[r] : vector;
    more.push_back(loads ? binder.destination_slot(element, Type::b32)
                         : binder.source_slot(element, Type::b32));
  }
  if (loads)
    binder.note_accumulators({more.begin() + 1, more.end()});
  const TensorAddress place = tensor_address(binder, binder.operand(address));
  binder.out.op[0] = place.slot;
  binder.out.imm = place.offset;
  binder.out.flags = std::uint32_t(shape->shape) |
                     (binder.has(loads ? "pack::16b" : "unpack::16b") ? kPacks : 0) |
                     registers << kRegistersShift;
  binder.set_more(more);
  binder.out.execute = loads ? load : store;
  return true;
}

void set_address(Binder &binder, const Operand &operand) {
  const Binder::Address place = binder.address(operand);
  binder.out.op[0] = place.slot;
  binder.out.imm = place.offset;
  binder.out.flags = address_flags(place.base, space_of(binder)) | (is_pair(binder) ? kPair : 0);
}

bool bind_commit(Binder &binder) {
  if (!binder.has("mbarrier::arrive::one"))
    binder.unsupported("a commit without an mbarrier");
  set_address(binder, binder.operand(0));
  if (binder.has("multicast::cluster")) {
    binder.out.op[1] = binder.source_slot(1, Type::b16);
    binder.out.flags |= kMulticast;
  }
  binder.out.execute = commit;
  return true;
}

bool bind_allocation(Binder &binder) {
  machine::Instruction &out = binder.out;
  if (binder.has("relinquish_alloc_permit")) {
    out.flags = is_pair(binder) ? kPair : 0;
    out.execute = relinquish;
    return true;
  }
  expect_operands(binder, 2);
  out.op[1] = binder.source_slot(1, Type::b32);
  if (binder.has("alloc")) {
    set_address(binder, binder.operand(0));
    out.execute = alloc;
  } else {
    out.op[0] = binder.source_slot(0, Type::b32);
    out.flags = is_pair(binder) ? kPair : 0;
    out.execute = dealloc;
  }
  return true;
}

bool bind_tcgen05(Binder &binder) {
  needs_target(binder, {"sm_100a", "sm_100f"});
  const auto has = [&](std::string_view word) { return binder.has(word); };
  if (has("mma"))
    return bind_tensor_product(binder);
  if (has("cp"))
    return bind_tensor_copy(binder);
  if (has("ld") || has("st"))
    return bind_transfer(binder, has("ld"));
  if (has("alloc") || has("dealloc") || has("relinquish_alloc_permit"))
    return bind_allocation(binder);
  if (has("commit"))
    return bind_commit(binder);
  if (has("wait::ld") || has("wait::st"))
    binder.out.execute = has("wait::ld") ? wait_loads : wait_stores;
  else if (has("fence::before_thread_sync") || has("fence::after_thread_sync"))
    binder.out.execute = fence;
  else
    return false;
  return true;
}

constexpr TableEntry kTable[] = {{"tcgen05", bind_tcgen05}};

} // namespace

std::uint32_t TensorLayout::lane(std::uint32_t t, std::uint32_t r) const {
  switch (shape) {
  case Shape::x32:
    return t;
  case Shape::x16_64:
    return (t >> 2) + 8 * (t & 1);
  case Shape::x16_128:
    return (t >> 2) + 8 * (r & 1);
  case Shape::x16_256:
    return (t >> 2) + 8 * (r >> 1 & 1);
  case Shape::x16_32x2:
    break;
  }
  return t & 15;
}

std::uint32_t TensorLayout::column(std::uint32_t t, std::uint32_t r) const {
  const std::uint32_t width = packs ? 2 : 1;
  switch (shape) {
  case Shape::x32:
    return width * r;
  case Shape::x16_64:
    return width * ((t >> 1 & 1) + 2 * r);
  case Shape::x16_128:
    return width * ((t & 3) + 4 * (r >> 1));
  case Shape::x16_256:
    return width * (2 * (t & 3) + (r & 1) + 8 * (r >> 2));
  case Shape::x16_32x2:
    break;
  }
  return width * r + (t >> 4) * std::uint32_t(second_half);
}

std::uint32_t TensorLayout::columns() const {
  const std::uint32_t per_register = shape == Shape::x32 || shape == Shape::x16_32x2 ? 1 : 2;
  return (packs ? 2 : 1) * per_register * registers +
         (shape == Shape::x16_32x2 ? std::uint32_t(second_half) : 0);
}

TensorTransferPlace tensor_transfer_place(Warp &warp, const Instruction &in) {
  const TensorLayout layout = layout_of(warp, in);
  const std::uint32_t address =
      uniform(warp, in.op[0], "the address of tensor memory") + std::uint32_t(in.imm);
  const std::uint32_t lane = tensor_lane(address), step = layout.shape == TensorLayout::Shape::x32 ? 32 : 16;
  if (lane % step)
    throw FaultError(FaultKind::misaligned, "tensor memory from lane " + std::to_string(lane) +
                                                ": this shape starts at a multiple of " +
                                                std::to_string(step));
  warp.block().tensor_core().memory().require(tensor_column(address), layout.columns());
  const std::uint32_t quarter = 32 * (std::uint32_t(warp.index()) % 4);
  return {layout, address, quarter + lane % 32, tensor_column(address)};
}

TensorAddress tensor_address(Binder &binder, const Operand &operand) {
  const Binder::Address place = binder.address(operand);
  if (place.base == Binder::Address::Base::reg32)
    return {place.slot, std::int32_t(place.offset)};
  if (place.base != Binder::Address::Base::absolute)
    binder.unsupported("an address of tensor memory is not a 32-bit register");
  Operand zero;
  zero.kind = Operand::Kind::integer;
  return {binder.source_slot(zero, Type::b32), std::int32_t(place.offset)};
}

bool is_pair(const Binder &binder) {
  if (!binder.has("cta_group::1") && !binder.has("cta_group::2"))
    binder.unsupported(".cta_group is missing");
  return binder.has("cta_group::2");
}

std::vector<Block *> tensor_group(Block &block, bool is_pair) {
  if (!is_pair)
    return {&block};
  machine::Cluster &cluster = block.cluster();
  if (cluster.size() % 2)
    throw FaultError(FaultKind::bad_operand, ".cta_group::2 in a cluster of " +
                                                 std::to_string(cluster.size()) +
                                                 ": it needs pairs of blocks");
  const std::uint32_t even = block.cluster_rank() & ~1u;
  return {&cluster.block(even), &cluster.block(even + 1)};
}

std::vector<CommitTarget> commit_targets(Warp &warp, const Instruction &in, int lane) {
  std::uint64_t addresses[32];
  lane_addresses(warp, address_base(in.flags), in.op[0], in.imm, addresses);
  std::uint64_t address = addresses[lane];
  if (address_space(in.flags) == Space::generic) {
    if ((address & machine::kWindowMask) != machine::kSharedWindow)
      throw FaultError(FaultKind::bad_operand, "an mbarrier outside shared memory", lane).at(address);
    address -= machine::kSharedWindow;
  }
  Block &owner = warp.block().owner(address, lane);
  if (!(in.flags & kMulticast))
    return {{&owner, std::uint32_t(address)}};
  machine::Cluster &cluster = warp.block().cluster();
  const std::uint32_t mask = warp.lanes<std::uint32_t>(in.op[1])[lane] & 0xffff;
  if (mask >> cluster.size())
    throw FaultError(FaultKind::bad_operand,
                     "a commit to the block of rank " + std::to_string(31 - std::countl_zero(mask)) +
                         " of a cluster of " + std::to_string(cluster.size()),
                     lane);
  std::vector<CommitTarget> targets;
  for (std::uint32_t rank = 0; rank < cluster.size(); ++rank)
    if (mask >> rank & 1)
      targets.push_back({&cluster.block(rank),
                         machine::cluster_address(rank, std::uint32_t(address) & machine::kOffsetInBlock)});
  return targets;
}

void land_commits(Block &block, std::uint32_t mbarrier) {
  TensorCore *const core = block.used_tensor_core();
  if (!core)
    return;
  std::vector<machine::CommitInFlight> &commits = core->commits();
  for (;;) {
    const auto found = std::ranges::find(commits, mbarrier, &machine::CommitInFlight::mbarrier);
    if (found == commits.end())
      return;
    const machine::CommitInFlight commit = *found;
    commits.erase(found);
    commit.queue->carry_out_until(commit.number);
    std::uint8_t *const host = block.shared(mbarrier, sizeof(std::uint64_t), 0);
    Mbarrier barrier = load_mbarrier(host, mbarrier, 0);
    if (barrier.pending == 0)
      throw FaultError(FaultKind::barrier,
                       "a tcgen05.commit arrives at an mbarrier that waits for no arrival");
    const std::uint32_t phase = barrier.phase;
    --barrier.pending;
    settle(block, barrier);
    const std::uint64_t bits = barrier.pack();
    std::memcpy(host, &bits, sizeof bits);
    if (barrier.phase != phase)
      return; // the remaining commits arrive in the next phase
  }
}

std::span<const TableEntry> tensor_core_table() { return kTable; }

} // namespace ladder::instructions
