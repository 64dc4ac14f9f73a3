#include "program/registers.h"

#include <algorithm>
#include <array>
#include <queue>

namespace ladder::program {

namespace {

constexpr std::uint64_t kMostVisits = 4'000'000; ///< bounds the liveness walk to a fraction of a second

template <typename Visit> void visit_all(Operand &operand, const Visit &visit) {
  if (operand.kind == Operand::Kind::reg)
    visit(operand.reg);
  for (Operand &element : operand.elements)
    visit_all(element, visit);
}

/// Registers that a destination operand writes; those of an address are only read.
template <typename Visit> void visit_destinations(Operand &operand, const Visit &visit) {
  if (operand.kind == Operand::Kind::address)
    return;
  if (operand.kind == Operand::Kind::reg)
    visit(operand.reg);
  for (Operand &element : operand.elements)
    visit_destinations(element, visit);
}

template <typename Visit> void visit_each(Instruction &instruction, const Visit &visit) {
  if (instruction.guarded)
    visit(instruction.guard, Use::read);
  const bool writes_first = instruction.is(Trait::writes_first);
  const auto read = [&](Register &reg) { visit(reg, Use::read); };
  for (std::size_t i = 0; i < instruction.operands.size(); ++i) {
    Operand &operand = instruction.operands[i];
    if (!writes_first || i > 0 || operand.kind == Operand::Kind::address)
      visit_all(operand, read);
  }
  if (writes_first) {
    const Use use = instruction.guarded ? Use::partial_write : Use::write;
    if (!instruction.operands.empty())
      visit_destinations(instruction.operands[0], [&](Register &reg) { visit(reg, use); });
    return;
  }
  for (Operand &operand : instruction.operands)
    visit_destinations(operand, [&](Register &reg) { visit(reg, Use::partial_write); });
}

} // namespace

void visit_registers(Instruction &instruction, const std::function<void(Register &, Use)> &visit) {
  visit_each(instruction, visit);
}

unsigned lane_bytes(ptx::Type type) {
  const unsigned bytes = ptx::type_bytes(type);
  return bytes == 0 ? 0 : bytes <= 4 ? 4 : bytes;
}

std::vector<LiveInterval> live_intervals(std::vector<Instruction> &code, const ControlFlow &flow,
                                         const std::vector<VirtualRegister> &registers) {
  std::vector<LiveInterval> intervals(registers.size());
  const auto extend = [&](std::uint32_t reg, std::uint32_t at) {
    intervals[reg].first = std::min(intervals[reg].first, at);
    intervals[reg].last = std::max(intervals[reg].last, at);
  };

  // Per block: the registers it reads before writing them (exposed) and those it writes (killed).
  struct Event {
    std::uint32_t reg, block;
    auto operator<=>(const Event &) const = default;
  };
  std::vector<Event> exposed, killed;
  std::vector<std::uint32_t> written_in(registers.size(), kNone); // the latest block that writes it
  std::vector<std::uint32_t> exposed_in(registers.size(), kNone);
  std::vector<std::vector<std::uint32_t>> declared(
      flow.blocks.size()); // by block: registers of nested scopes
  for (std::uint32_t r = 0; r < registers.size(); ++r)
    if (registers[r].declared_at > 0 && registers[r].declared_at < code.size())
      declared[flow.block_of[registers[r].declared_at]].push_back(r);

  for (std::uint32_t b = 0; b < flow.blocks.size(); ++b) {
    auto &births = declared[b];
    std::sort(births.begin(), births.end(), [&](std::uint32_t x, std::uint32_t y) {
      return registers[x].declared_at < registers[y].declared_at;
    });
    std::size_t birth = 0;
    const auto kill = [&](std::uint32_t reg) {
      if (written_in[reg] != b) {
        written_in[reg] = b;
        killed.push_back({reg, b});
      }
    };
    for (std::uint32_t i = flow.blocks[b].begin; i < flow.blocks[b].end; ++i) {
      for (; birth < births.size() && registers[births[birth]].declared_at <= i; ++birth)
        kill(births[birth]);
      visit_each(code[i], [&](Register &operand, Use use) {
        const std::uint32_t reg = operand.offset;
        extend(reg, i);
        if (use == Use::write) {
          kill(reg);
        } else if (written_in[reg] != b && exposed_in[reg] != b) {
          // A partial write counts as a read: the other lanes keep their old value.
          exposed_in[reg] = b;
          exposed.push_back({reg, b});
        }
      });
    }
  }

  // Walk from each exposed read back to the writes it may see. The cost is the number of (block, live
  // register) pairs. Adversarial PTX can make that huge, so past the limit registers live throughout.
  std::uint64_t visits_left = kMostVisits;
  std::sort(exposed.begin(), exposed.end());
  std::sort(killed.begin(), killed.end());
  std::vector<std::uint32_t> live_in(flow.blocks.size(),
                                     kNone); // latest register found live at the block's start
  std::vector<std::uint32_t> kills(flow.blocks.size(),
                                   kNone); // latest register that the block is known to write
  std::vector<std::uint32_t> stack;
  std::size_t next_kill = 0;
  for (std::size_t e = 0; e < exposed.size();) {
    const std::uint32_t reg = exposed[e].reg;
    while (next_kill < killed.size() && killed[next_kill].reg < reg)
      ++next_kill;
    for (; next_kill < killed.size() && killed[next_kill].reg == reg; ++next_kill)
      kills[killed[next_kill].block] = reg;
    for (; e < exposed.size() && exposed[e].reg == reg; ++e)
      stack.push_back(exposed[e].block);
    if (visits_left == 0) {
      stack.clear();
      extend(reg, 0);
      extend(reg, std::uint32_t(code.size() - 1));
      continue;
    }
    while (!stack.empty()) {
      const std::uint32_t b = stack.back();
      stack.pop_back();
      if (live_in[b] == reg)
        continue;
      visits_left -= visits_left > 0;
      live_in[b] = reg;
      extend(reg, flow.blocks[b].begin);
      for (const std::uint32_t predecessor : flow.blocks[b].predecessors) {
        extend(reg, flow.blocks[predecessor].end - 1);
        if (kills[predecessor] != reg)
          stack.push_back(predecessor);
      }
    }
  }
  return intervals;
}

namespace {

/// Linear scan: hands slots of one width to intervals in order of their starts.
class SlotPool {
public:
  void add(std::uint32_t reg, const LiveInterval &interval) {
    pending_.push_back({interval.first, interval.last, reg});
  }

  /// Sets slot[reg] for every added register.
  void assign(std::vector<std::uint32_t> &slot) {
    std::sort(pending_.begin(), pending_.end(), [](const Pending &a, const Pending &b) {
      return a.first != b.first ? a.first < b.first : a.reg < b.reg;
    });
    using Busy = std::pair<std::uint32_t, std::uint32_t>; // last instruction, slot
    std::priority_queue<Busy, std::vector<Busy>, std::greater<>> busy;
    std::priority_queue<std::uint32_t, std::vector<std::uint32_t>, std::greater<>> free;
    for (const Pending &pending : pending_) {
      for (; !busy.empty() && busy.top().first < pending.first; busy.pop())
        free.push(busy.top().second);
      std::uint32_t chosen = count_;
      if (free.empty()) {
        ++count_;
      } else {
        chosen = free.top();
        free.pop();
      }
      slot[pending.reg] = chosen;
      busy.push({pending.last, chosen});
    }
  }

  std::uint32_t count() const { return count_; }

private:
  struct Pending {
    std::uint32_t first, last, reg;
  };
  std::vector<Pending> pending_;
  std::uint32_t count_ = 0;
};

} // namespace

Allocation allocate_registers(std::vector<Instruction> &code, const ControlFlow &flow,
                              const std::vector<VirtualRegister> &registers, bool keeps_values) {
  std::vector<LiveInterval> intervals = live_intervals(code, flow, registers);
  if (keeps_values)
    for (LiveInterval &interval : intervals)
      if (interval.is_used())
        interval = {0, std::uint32_t(code.size() - 1)};
  // Widest first, so that each pool starts aligned.
  struct Width {
    unsigned lane_bytes;
    std::uint32_t slot_bytes;
    SlotPool pool;
    std::uint32_t begin = 0;
  };
  std::array<Width, 4> widths = {
      {{16, 16 * kLanes, {}}, {8, 8 * kLanes, {}}, {4, 4 * kLanes, {}}, {0, 4, {}}}};
  const auto width_of = [&](std::uint32_t reg) -> Width & {
    return *std::find_if(widths.begin(), widths.end(), [&](const Width &width) {
      return width.lane_bytes == lane_bytes(registers[reg].type);
    });
  };
  for (std::uint32_t r = 0; r < registers.size(); ++r)
    if (intervals[r].is_used())
      width_of(r).pool.add(r, intervals[r]);
  std::vector<std::uint32_t> slot(registers.size(), 0);
  std::uint32_t end = 0;
  for (Width &width : widths) {
    width.pool.assign(slot);
    width.begin = end;
    end += width.pool.count() * width.slot_bytes;
  }
  std::vector<std::uint32_t> offsets(registers.size(), kNone);
  for (std::uint32_t r = 0; r < registers.size(); ++r)
    if (intervals[r].is_used())
      offsets[r] = width_of(r).begin + slot[r] * width_of(r).slot_bytes;

  const auto place = [&](Register &reg) { reg.offset = offsets[reg.offset]; };
  for (Instruction &instruction : code) {
    if (instruction.guarded)
      place(instruction.guard);
    for (Operand &operand : instruction.operands)
      visit_all(operand, place);
  }
  return {(end + 63) & ~63u, std::move(offsets)};
}

} // namespace ladder::program
