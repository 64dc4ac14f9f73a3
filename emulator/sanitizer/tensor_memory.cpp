// Tensor memory: accesses that are not waited for, or not ordered by the two fences of tcgen05.
//
// A product or copy is over for a thread that has observed a commit behind it, or that knows of such a
// thread. A load or store is over after its warp's wait. Across threads the order also needs
// fence::before_thread_sync on the one side and fence::after_thread_sync on the other. PTX ISA, "Memory
// Consistency Model Properties" of tcgen05.
#include "sanitizer/block_checker.h"

#include "instructions/tensor_product.h"

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

namespace ladder::sanitizer {

using instructions::for_lanes;
using instructions::TensorProduct;
using instructions::TensorTransferPlace;
using machine::Instruction;
using machine::Warp;

namespace {

constexpr std::uint32_t kAllBands = (1u << TensorShadow::kBands) - 1;

std::string columns_of(std::uint32_t first, std::uint32_t last) {
  return first == last ? "column " + std::to_string(first)
                       : "columns " + std::to_string(first) + "-" + std::to_string(last);
}

/// The bands of D's rows in a block, and of A's in tensor memory.
std::uint32_t bands_of(const TensorProduct &product) {
  if (product.group.size() == 2 && product.form.m == 128)
    return kAllBands;
  std::uint32_t bands = 0;
  for (std::uint32_t m = 0; m < product.rows_per_block(); m += 16)
    bands |= 1u << product.lane(m) / 16;
  return bands;
}

} // namespace

TensorShadow &BlockChecker::tensor() {
  if (!tensor_)
    tensor_ = std::make_unique<TensorShadow>(block_.warps().size());
  return *tensor_;
}

/// What is missing between an access and one that this lane is about to make.
BlockChecker::TensorOrder BlockChecker::tensor_order(const Context &at, int lane, bool is_work,
                                                     const TensorAccess &past) {
  const std::uint32_t thread = at.thread(lane);
  const TensorShadow::WarpAccesses &own = tensor().warps[std::size_t(at.warp.index())];
  const bool is_of_block = past.by.block == block_index_;
  const auto is_known = [&](std::uint32_t block, std::uint32_t other, std::uint32_t epoch) {
    return epoch && knows(thread, {.epoch = epoch, .thread = std::uint16_t(other), .block = block});
  };
  const auto was_known = [&](std::uint32_t block, std::uint32_t other, std::uint32_t epoch) {
    return block != block_index_ || (own.fenced && own.fenced->knows(other, epoch));
  };
  if (past.work) {
    if (is_work && is_of_block && past.by.thread == thread)
      return TensorOrder::ordered; // the products of a thread execute in order
    for (const auto &[warp, time] : past.observed)
      if (is_of_block && warp == at.warp.index() && time < own.fence_time)
        return TensorOrder::ordered;
    TensorOrder order = TensorOrder::not_waited;
    for (const AsyncRead::Wait &wait : past.work->waits)
      for (std::uint32_t other = 0; other < 32; ++other) {
        const std::uint32_t observer = std::uint32_t(wait.warp) * 32 + other, epoch = wait.epochs[other];
        if (wait.block == block_index_ && wait.warp == at.warp.index() && epoch)
          order = TensorOrder::no_fence_after; // see `observed`
        else if (is_known(wait.block, observer, epoch)) {
          if (was_known(wait.block, observer, epoch))
            return TensorOrder::ordered;
          order = TensorOrder::no_fence_after;
        }
      }
    return order;
  }
  if (!past.is_waited_for)
    return TensorOrder::not_waited;
  if (is_of_block && past.warp == at.warp.index())
    return TensorOrder::ordered;
  TensorOrder order = TensorOrder::unordered;
  bool is_published = false;
  for (std::uint32_t other = 0; other < 32; ++other) {
    const std::uint32_t neighbour = std::uint32_t(past.warp) * 32 + other, epoch = past.published[other];
    is_published = is_published || epoch;
    if (!is_known(past.by.block, neighbour, epoch))
      continue;
    if (was_known(past.by.block, neighbour, epoch))
      return TensorOrder::ordered;
    order = TensorOrder::no_fence_after;
  }
  return is_published ? order : TensorOrder::no_fence_before;
}

/// Checks and records an access to columns [first, first + columns) of the bands.
void BlockChecker::touch_tensor(const Context &at, int lane, const SharedAccess &now,
                                const TensorPlace &place) {
  struct Conflict {
    SharedAccess past;
    bool past_wrote;
    std::uint32_t first, last;
  };
  std::vector<Conflict> conflicts;
  std::uint32_t unwritten = ~0u;
  const auto meet = [&](const SharedAccess &past, bool past_wrote, std::uint32_t column) {
    if (past == now)
      return;
    const auto known = std::ranges::find_if(
        conflicts, [&](const Conflict &one) { return one.past == past && one.past_wrote == past_wrote; });
    if (known == conflicts.end())
      conflicts.push_back({past, past_wrote, column, column});
    else
      known->last = column;
  };
  TensorShadow &shadow = place.owner->tensor();
  for (std::uint32_t column = place.first; column < place.first + place.columns; ++column)
    for (std::uint32_t band = 0; band < TensorShadow::kBands; ++band) {
      if (!(place.bands >> band & 1))
        continue;
      TensorShadow::Cell &cell = shadow.cell(column, band);
      if (cell.write)
        meet(cell.write, true, column);
      else if (place.reads)
        unwritten = std::min(unwritten, column);
      if (place.writes) {
        for (const SharedAccess &read : cell.reads)
          meet(read, false, column);
        cell.write = now;
        cell.reads.clear();
      } else if (cell.reads.empty() || cell.reads.back() != now) {
        cell.reads.push_back(now);
      }
    }
  if (unwritten != ~0u)
    report_tensor(at, lane, Kind::uninitialised, {},
                  "reads column " + std::to_string(unwritten) + " of tensor memory, which was never written");
  for (const Conflict &conflict : conflicts) {
    const TensorOrder order = tensor_order(at, lane, now->work != nullptr, *conflict.past);
    if (order == TensorOrder::ordered)
      continue;
    const std::string what = (place.writes ? "overwrites " : "reads ") +
                             columns_of(conflict.first, conflict.last) + " of tensor memory";
    const std::string past = opcode_of(*conflict.past), verb = conflict.past_wrote ? "writes" : "reads";
    switch (order) {
    case TensorOrder::not_waited:
      report_tensor(at, lane, Kind::tensor_wait, conflict.past->by,
                    what + " while a " + past + " that " + verb + " them may be in flight");
      break;
    case TensorOrder::no_fence_before:
      report_tensor(at, lane, Kind::tensor_fence, conflict.past->by,
                    what + ", which a " + past + " of another warp " + verb +
                        ": tcgen05.fence::before_thread_sync is missing after its wait");
      break;
    case TensorOrder::no_fence_after:
      report_tensor(
          at, lane, Kind::tensor_fence, conflict.past->by,
          what + ", which a " + past + " " + verb +
              ": tcgen05.fence::after_thread_sync is missing between the wait for it and this access");
      break;
    case TensorOrder::unordered:
    case TensorOrder::ordered:
      report_tensor(at, lane, Kind::race_warps, conflict.past->by,
                    what + ", which a " + past + " of another warp " + verb + ", and nothing orders the two");
      break;
    }
  }
}

/// "tcgen05.mma"
std::string BlockChecker::opcode_of(const TensorAccess &access) const {
  return std::string(launch_.code().sources[access.by.instruction]->row->form);
}

void BlockChecker::report_tensor(const Context &at, int lane, Kind kind, const Access &other,
                                 std::string message) {
  const std::uint32_t key = other.epoch ? other.instruction : kNoInstruction;
  launch_.findings().add({kind, &launch_.code(), at.index, key}, 1, [&] {
    const machine::Dim3 block = block_.index();
    Finding finding;
    finding.kind = kind;
    finding.kernel = launch_.kernel();
    finding.message = std::move(message);
    finding.who = launch_.party({block.x, block.y, block.z}, at.warp.index(), 1u << lane, at.index);
    if (other.epoch)
      finding.other = launch_.party(launch_place(other.block), other.thread / 32, 1u << other.thread % 32,
                                    other.instruction);
    finding.space = "tensor";
    return finding;
  });
}

// --- allocation

void BlockChecker::tensor_alloc(Warp &warp, const Instruction &in) {
  const Context at = context(warp, in);
  if (warp.active() == machine::kAllLanes) { // lane 0 stores the address
    const Reach where = reach_operand(at, 1, 4, true);
    touch(at, where, Act::write, 4);
    report(at, 4);
  }
  const machine::TensorCore *const core = block_.used_tensor_core();
  const std::size_t before = core ? block_.tensor_core().memory().allocations().size() : 0;
  carry_out(at, warp.active());
  const auto &allocations = block_.tensor_core().memory().allocations();
  if (allocations.size() > before)
    tensor().allocations[allocations.back().first] = access(at, 0, Act::write);
}

/// No access may be in flight. A barrier orders accesses that are over, without tcgen05 fences.
void BlockChecker::tensor_dealloc(Warp &warp, const Instruction &in) {
  const Context at = context(warp, in);
  const std::uint32_t first = instructions::tensor_column(warp.lanes<std::uint32_t>(in.op[0])[0]),
                      columns = warp.lanes<std::uint32_t>(in.op[1])[0];
  carry_out(at, warp.active());
  if (warp.active() != machine::kAllLanes)
    return;
  const auto is_over = [](const SharedAccess &past) {
    return past->work ? !past->work->waits.empty() : past->is_waited_for;
  };
  SharedAccess open;
  for (std::uint32_t column = first; column < first + columns; ++column)
    for (std::uint32_t band = 0; band < TensorShadow::kBands; ++band) {
      TensorShadow::Cell &cell = tensor().cell(column, band);
      if (cell.write && !is_over(cell.write))
        open = cell.write;
      for (const SharedAccess &read : cell.reads)
        if (!is_over(read))
          open = read;
      cell = {};
    }
  if (open)
    report_tensor(at, 0, Kind::tensor_wait, open->by,
                  "frees " + columns_of(first, first + columns - 1) + " of tensor memory while a " +
                      opcode_of(*open) + " may be in flight");
  tensor().allocations.erase(first);
}

void BlockChecker::check_tensor_end() {
  for (const auto &[first, by] : tensor().allocations)
    report_past(Kind::leak, by, {}, "the block exits without tcgen05.dealloc of this tensor memory");
}

// --- loads and stores

void BlockChecker::transfer(const Context &at, bool loads) {
  Warp &warp = at.warp;
  carry_out(at, warp.active());
  if (warp.active() != machine::kAllLanes)
    return;
  const TensorTransferPlace place = instructions::tensor_transfer_place(warp, at.in);
  const std::uint32_t quarter = std::uint32_t(warp.index()) % 4;
  if (instructions::tensor_lane(place.address) / 32 != quarter)
    report_tensor(at, 0, Kind::tensor_lanes, {},
                  "accesses tensor memory from lane " +
                      std::to_string(instructions::tensor_lane(place.address)) +
                      " on: a warp whose number is " + std::to_string(quarter) + " modulo 4 has lanes " +
                      std::to_string(32 * quarter) + "-" + std::to_string(32 * quarter + 31));
  auto now = std::make_shared<TensorAccess>();
  now->by = access(at, 0, loads ? Act::async_read : Act::write);
  now->warp = warp.index();
  const bool has_all_lanes = place.layout.shape == instructions::TensorLayout::Shape::x32;
  const std::uint32_t bands = (has_all_lanes ? 3u : 1u) << place.lane / 16;
  const auto touch_columns = [&](std::uint32_t first, std::uint32_t columns) {
    touch_tensor(at, 0, now, {this, first, columns, bands, loads, !loads});
  };
  if (const auto half = std::uint32_t(place.layout.second_half)) {
    touch_columns(place.column, place.layout.columns() - half);
    touch_columns(place.column + half, place.layout.columns() - half);
  } else {
    touch_columns(place.column, place.layout.columns());
  }
  TensorShadow::WarpAccesses &own = tensor().warps[std::size_t(warp.index())];
  (loads ? own.loads : own.stores).push_back(now);
}

void BlockChecker::tensor_load(Warp &warp, const Instruction &in) { transfer(context(warp, in), true); }
void BlockChecker::tensor_store(Warp &warp, const Instruction &in) { transfer(context(warp, in), false); }

void BlockChecker::tensor_wait(Warp &warp, const Instruction &in) {
  const Context at = context(warp, in);
  carry_out(at, warp.active());
  if (warp.active() != machine::kAllLanes)
    return;
  TensorShadow::WarpAccesses &own = tensor().warps[std::size_t(warp.index())];
  std::vector<SharedAccess> &waited = warp.source(in).is(program::Trait::only_reads) ? own.loads : own.stores;
  for (const SharedAccess &one : waited) {
    one->is_waited_for = true;
    own.unpublished.push_back(one);
  }
  waited.clear();
}

void BlockChecker::tensor_fence(Warp &warp, const Instruction &in) {
  const Context at = context(warp, in);
  TensorShadow::WarpAccesses &own = tensor().warps[std::size_t(warp.index())];
  if (warp.source(in).is(program::Trait::arrives)) {
    for (const SharedAccess &one : std::exchange(own.unpublished, {}))
      for_lanes(warp.active(),
                [&](int lane) { one->published[std::size_t(lane)] = clocks_.epoch(at.thread(lane)); });
  } else {
    own.fenced = clocks_.now(at.thread(std::countr_zero(warp.active())));
    own.fence_time = ++tensor().time;
  }
  carry_out(at, warp.active());
}

// --- products, copies and their commits

SharedAccess BlockChecker::begin_tensor_work(const Context &at, int lane) {
  auto now = std::make_shared<TensorAccess>();
  now->by = access(at, lane, Act::async_read);
  now->warp = at.warp.index();
  now->work = std::make_shared<AsyncRead>(AsyncRead{now->by, {}});
  tensor().work[at.thread(lane)].push_back(now);
  return now;
}

/// The async proxy reads the operand in the shared memory of each block of the group.
void BlockChecker::read_operand(const Context &at, int lane, const SharedAccess &now,
                                const std::vector<machine::Block *> &group,
                                const instructions::TensorOperand &operand, std::uint32_t lines,
                                std::uint32_t k) {
  for (machine::Block *const block : group) {
    auto &owner = static_cast<BlockChecker &>(*block->observer());
    const Deed read = deed(at, 1u << lane, Act::async_read, Where::shared);
    std::vector<std::uint32_t> chunks;
    bool is_swizzle_noted = false;
    operand.for_chunks(lines, k, [&](std::uint32_t, std::uint32_t, std::uint32_t offset) {
      const std::uint32_t address = block->shared_base_address() + offset;
      touch_shared(read, lane, address, kChunk, owner);
      if (&owner == this)
        check_proxy(at, lane, address);
      if (!is_swizzle_noted && owner.async_.has_other_swizzle(address, operand.descriptor().swizzle)) {
        note(Kind::swizzle, lane, address, Where::shared);
        is_swizzle_noted = true;
      }
      chunks.push_back(address);
    });
    owner.async_.read(chunks, std::size_t(at.warp.index() / machine::kWarpsOfGroup), now->work);
  }
}

void BlockChecker::check_election(const Context &at) {
  const int lanes = std::popcount(at.warp.active());
  if (lanes > 1)
    note(Kind::election, std::countr_zero(at.warp.active()), std::uint64_t(lanes), Where::none);
}

void BlockChecker::tensor_product(Warp &warp, const Instruction &in) {
  const Context at = context(warp, in);
  carry_out(at, warp.active()); // only issues it
  check_election(at);
  for_lanes(warp.active(), [&](int lane) {
    const TensorProduct product = instructions::tensor_product_of(warp, in, lane);
    const SharedAccess now = begin_tensor_work(at, lane);
    const instructions::ProductForm &form = product.form;
    const auto parts = std::uint32_t(product.group.size());
    using instructions::TensorOperand;
    if (!product.a_in_tensor)
      read_operand(at, lane, now, product.group, TensorOperand(product.a, form.a_is_mn_major, form.a),
                   form.m / parts, form.k);
    read_operand(at, lane, now, product.group, TensorOperand(product.b, form.b_is_mn_major, form.b),
                 form.n / parts, form.k);
    for (machine::Block *const block : product.group) {
      auto *const owner = static_cast<BlockChecker *>(block->observer());
      const std::uint32_t bands = bands_of(product);
      if (product.a_in_tensor)
        touch_tensor(at, lane, now,
                     {owner, instructions::tensor_column(product.a_tensor), TensorProduct::kAColumns, bands,
                      true, false});
      touch_tensor(at, lane, now,
                   {owner, instructions::tensor_column(product.d), product.d_columns(), bands,
                    product.accumulates, true});
    }
  });
  report(at, kChunk);
}

void BlockChecker::tensor_copy(Warp &warp, const Instruction &in) {
  const Context at = context(warp, in);
  carry_out(at, warp.active());
  check_election(at);
  for_lanes(warp.active(), [&](int lane) {
    const instructions::TensorCopy copy = instructions::tensor_copy_of(warp, in, lane);
    const SharedAccess now = begin_tensor_work(at, lane);
    using instructions::TensorOperand;
    read_operand(at, lane, now, copy.group,
                 TensorOperand(copy.source, false, instructions::ElementFormat::e4m3), copy.rows,
                 copy.chunks * 16);
    for (machine::Block *const block : copy.group)
      touch_tensor(at, lane, now,
                   {static_cast<BlockChecker *>(block->observer()), instructions::tensor_column(copy.address),
                    copy.columns(), kAllBands, false, true});
  });
  report(at, kChunk);
}

void BlockChecker::tensor_commit(Warp &warp, const Instruction &in) {
  const Context at = context(warp, in);
  carry_out(at, warp.active());
  for_lanes(warp.active(), [&](int lane) {
    std::vector<SharedAccess> &work = tensor().work[at.thread(lane)];
    std::erase_if(work, [](const SharedAccess &one) { return !one->work->waits.empty(); });
    for (const instructions::CommitTarget &target : instructions::commit_targets(warp, in, lane))
      static_cast<BlockChecker &>(*target.block->observer())
          .tensor()
          .commits[target.mbarrier]
          .push_back({work, {}});
  });
}

/// `lanes` have seen an mbarrier's phase complete, or some thread has looked at it: `before` was its parity.
void BlockChecker::observe_commits(const Context &at, std::uint32_t lanes, std::uint64_t mbarrier,
                                   std::uint32_t before) {
  if (!tensor_)
    return;
  std::deque<TensorShadow::Commit> &commits = tensor_->commits[mbarrier];
  const auto pending = std::ranges::count(block_.tensor_core().commits(), std::uint32_t(mbarrier),
                                          &machine::CommitInFlight::mbarrier);
  for (std::size_t i = 0; i + std::size_t(pending) < commits.size(); ++i)
    if (!commits[i].arrived)
      commits[i].arrived = before;
  const auto parity = phase_of(mbarrier);
  for (const TensorShadow::Commit &commit : commits) {
    if (!lanes || !parity || !commit.arrived || *commit.arrived == *parity)
      continue;
    for (const SharedAccess &one : commit.work) {
      one->work->waits.push_back(wait_of(at.warp, lanes));
      one->observed.emplace_back(at.warp.index(), ++tensor_->time);
    }
  }
  // A later wait is for one of the last two phases.
  constexpr std::size_t kKept = 8;
  while (commits.size() > kKept && commits.front().arrived)
    commits.pop_front();
}

} // namespace ladder::sanitizer
