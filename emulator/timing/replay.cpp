#include "timing/replay.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <queue>
#include <stdexcept>
#include <unordered_map>

namespace ladder::timing {

namespace {

constexpr double kSectorBytes = 32;
constexpr double kWavefrontBytes = 128;
constexpr int kQuarters = 4;
constexpr std::uint32_t kWarpsOfGroup = 4;
constexpr double kShownWait = 8; ///< cycles
constexpr std::size_t kMostWaits = 100'000;

struct Ready {
  double at = 0;
  Stall stall = Stall::wait;
};

struct Warp {
  const WarpTrace *trace = nullptr;
  std::uint32_t block = 0, index = 0, quarter = 0, number = 0;
  std::size_t run = 0, slot = 0;
  const std::vector<Slot> *slots = nullptr;
  std::uint32_t cost = 0;     ///< of the run's recorded instructions, the next in PTX order
  double next = 0;            ///< the earliest cycle of the next instruction
  Stall reason = Stall::wait; ///< why not before
  double issued = 0;          ///< the cycle of the last one
  bool blocked = false;
  double blocked_at = 0;
  std::vector<Ready> ready; ///< by register
  // cp.async
  double open_copies = 0;
  std::deque<double> copy_groups;
  // bulk stores
  double open_stores = 0;
  std::deque<double> store_groups;
  // wgmma
  std::uint64_t products = 0;
  std::deque<std::uint64_t> product_groups;
};

struct Mbarrier {
  std::int64_t expected = 0, pending = 0, bytes = 0;
  std::uint64_t phases = 0;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> waiting; ///< warp, parity
};

struct Barrier {
  std::uint32_t arrived = 0;
  std::vector<std::uint32_t> waiting;
};

/// The products of a warpgroup.
struct Group {
  std::vector<int> arrived;                                     ///< by product: warps that have issued it
  std::vector<double> ends;                                     ///< by product: 0 until all four have
  std::vector<std::pair<std::uint32_t, std::uint64_t>> waiting; ///< warp, number of products
};

struct Block {
  std::uint32_t live = 0; ///< warps
  std::unordered_map<std::uint32_t, Mbarrier> mbarriers;
  std::array<Barrier, 16> barriers;
  std::vector<Group> groups;
  std::vector<std::uint32_t> warps;
};

/// What happens to an mbarrier later.
struct Arrival {
  std::uint32_t block, address;
  std::int64_t arrivals, bytes;
};

class Replay {
public:
  Replay(const Facts &facts, const std::vector<BlockTrace> &traces, std::uint64_t blocks, const Parameters &p)
      : facts_(facts), traces_(traces), left_(blocks), p_(p) {}

  Replayed run() {
    for (std::size_t i = 0; i < traces_.size() && left_; ++i)
      start_block(0);
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      now_ = event.at;
      if (event.is_arrival) {
        const Arrival arrival = arrivals_[event.which];
        arrive(arrival.block, arrival.address, arrival.arrivals, arrival.bytes, now_);
      } else {
        step(event.which);
      }
    }
    if (live_blocks_)
      throw std::runtime_error("the warps wait for each other in simulated time");
    return std::move(result_);
  }

private:
  struct Event {
    double at;
    std::uint64_t order; ///< ties: the oldest warp first
    std::uint32_t which;
    bool is_arrival;
    bool operator<(const Event &other) const { return at != other.at ? at > other.at : order > other.order; }
  };

  void start_block(double at) {
    const BlockTrace &trace = traces_[started_ % traces_.size()];
    const auto number = std::uint32_t(blocks_.size());
    blocks_.emplace_back();
    Block &block = blocks_.back();
    block.live = std::uint32_t(trace.warps.size());
    block.groups.resize((trace.warps.size() + kWarpsOfGroup - 1) / kWarpsOfGroup);
    ++started_;
    --left_;
    ++live_blocks_;
    for (std::uint32_t i = 0; i < trace.warps.size(); ++i) {
      Warp warp;
      warp.trace = &trace.warps[i];
      warp.block = number;
      warp.index = i;
      warp.number = std::uint32_t(warps_.size());
      warp.quarter = warp.number % kQuarters;
      warp.next = warp.issued = at;
      warp.ready.resize(facts_.registers());
      block.warps.push_back(warp.number);
      warps_.push_back(std::move(warp));
      enter_run(warps_.back());
      push(warps_.back(), at);
    }
  }

  void push(const Warp &warp, double at) { events_.push({at, warp.number, warp.number, false}); }

  const std::vector<Slot> &slots_of(const Run &run) {
    const std::uint64_t key = std::uint64_t(run.first) << 32 | run.last;
    const auto found = slots_.find(key);
    return found != slots_.end() ? found->second
                                 : slots_.emplace(key, facts_.slots(run.first, run.last)).first->second;
  }

  void enter_run(Warp &warp) {
    warp.slot = 0;
    warp.slots = nullptr;
    if (warp.run < warp.trace->runs.size())
      warp.slots = &slots_of(warp.trace->runs[warp.run]);
  }

  /// What the execution of this instruction in the warp's run costs.
  const Cost &cost_of(const Warp &warp, std::uint32_t pc) {
    static const Cost none;
    const Run &run = warp.trace->runs[warp.run];
    const std::uint64_t key = std::uint64_t(run.first) << 32 | pc;
    auto found = before_.find(key);
    if (found == before_.end()) {
      std::uint32_t count = 0;
      for (std::uint32_t other = run.first; other < pc; ++other)
        count += facts_.is_recorded(other);
      found = before_.emplace(key, count).first;
    }
    const std::size_t place = std::size_t(run.costs) + found->second;
    return place < warp.trace->costs.size() ? warp.trace->costs[place] : none;
  }

  void later(double &at, Stall &stall, double other, Stall reason) const {
    if (other > at) {
      at = other;
      stall = reason;
    }
  }

  double interval(Pipe pipe) const {
    switch (pipe) {
    case Pipe::fma:
      return p_.fma_interval;
    case Pipe::alu:
      return p_.alu_interval;
    case Pipe::xu:
      return p_.xu_interval;
    default:
      return 1;
    }
  }

  void step(std::uint32_t number) {
    Warp &warp = warps_[number];
    // What ptxas has removed takes no time.
    while (warp.slots && (warp.slot >= warp.slots->size() || (*warp.slots)[warp.slot].stall == 0 ||
                          is_free(warp, (*warp.slots)[warp.slot]))) {
      if (warp.slot >= warp.slots->size()) {
        const std::uint32_t last = warp.trace->runs[warp.run].last;
        ++warp.run;
        if (warp.run < warp.trace->runs.size() && warp.trace->runs[warp.run].first != last + 1)
          later(warp.next, warp.reason, warp.issued + p_.branch_latency, Stall::branch_resolving);
        enter_run(warp);
      } else {
        rename(warp, (*warp.slots)[warp.slot].pc);
        ++warp.slot;
      }
    }
    if (!warp.slots)
      return end(warp);
    const Slot &slot = (*warp.slots)[warp.slot];
    const Fact &fact = facts_[slot.pc];
    double at = warp.next;
    Stall stall = warp.reason;
    if (slot.is_main)
      for (const auto *const registers : {&fact.reads, &fact.writes})
        for (const std::uint32_t reg : *registers)
          later(at, stall, warp.ready[reg].at, warp.ready[reg].stall);
    double &pipe = pipe_free_[warp.quarter][std::size_t(slot.pipe)];
    if (slot.pipe != Pipe::memory && slot.pipe != Pipe::other)
      later(at, stall, pipe, Stall::math_pipe_throttle);
    if (slot.pipe == Pipe::memory)
      later(at, stall, memory_free_ - p_.memory_queue,
            is_global(warp, slot) ? Stall::lg_throttle : Stall::mio_throttle);
    if (slot.is_main && fact.kind == Kind::copy_wait) {
      for (std::size_t i = 0; i + fact.n < warp.copy_groups.size(); ++i)
        later(at, stall, warp.copy_groups[i], Stall::long_scoreboard);
      if (fact.n == 0)
        later(at, stall, warp.open_copies, Stall::long_scoreboard);
    }
    if (slot.is_main && fact.kind == Kind::bulk_wait)
      for (std::size_t i = 0; i + fact.n < warp.store_groups.size(); ++i)
        later(at, stall, warp.store_groups[i] + (fact.only_reads ? 0 : p_.l2_latency),
              Stall::long_scoreboard);
    later(at, stall, port_free_[warp.quarter], Stall::not_selected);
    if (at > now_) {
      // The reason is kept, since the next look sees only what has changed.
      if (stall != Stall::not_selected) {
        warp.next = at;
        warp.reason = stall;
      }
      return push(warp, at);
    }
    issue(warp, slot, fact, now_, stall);
  }

  /// An access that the emulator counts with another one, since ptxas has merged them.
  bool is_free(const Warp &warp, const Slot &slot) {
    const Fact &fact = facts_[slot.pc];
    if (fact.kind != Kind::memory)
      return false;
    const Cost &cost = cost_of(warp, slot.pc);
    return cost.takes_part && cost.wavefronts == 0 && cost.sectors == 0;
  }

  bool is_global(const Warp &warp, const Slot &slot) {
    const Kind kind = facts_[slot.pc].kind;
    return kind == Kind::copy || (kind == Kind::memory && cost_of(warp, slot.pc).sectors > 0);
  }

  /// The result is another register's, or known when its sources are.
  void rename(Warp &warp, std::uint32_t pc) {
    const Fact &fact = facts_[pc];
    Ready latest{0, Stall::wait};
    for (const std::uint32_t reg : fact.reads)
      if (warp.ready[reg].at > latest.at)
        latest = warp.ready[reg];
    for (const std::uint32_t reg : fact.writes)
      warp.ready[reg] = latest;
  }

  void issue(Warp &warp, const Slot &slot, const Fact &fact, double t, Stall stall) {
    note_wait(warp, slot.pc, t, stall);
    ++result_.instructions;
    port_free_[warp.quarter] = t + 1;
    if (slot.pipe != Pipe::tensor && slot.pipe != Pipe::memory)
      pipe_free_[warp.quarter][std::size_t(slot.pipe)] = t + interval(slot.pipe);
    warp.issued = t;
    warp.next = t + slot.stall;
    warp.reason = Stall::wait;
    ++warp.slot;
    result_.cycles = std::max(result_.cycles, t + 1);
    if (slot.is_main)
      execute(warp, slot, fact, t);
    else if (slot.pipe == Pipe::memory)
      memory_free_ = std::max(memory_free_, t) + 1;
    if (!warp.blocked)
      push(warp, std::max(warp.next, t + 1));
  }

  void make(Warp &warp, const Fact &fact, double at, Stall stall) {
    for (const std::uint32_t reg : fact.writes)
      warp.ready[reg] = {at, stall};
  }

  /// The cycle at which the L2 has answered.
  double from_l2(double t, double bytes) {
    l2_free_ = std::max(l2_free_, t) + bytes / p_.l2_bytes;
    if (p_.dram_share == 0)
      return l2_free_ + p_.l2_latency;
    dram_free_ = std::max(dram_free_, t) + p_.dram_share * bytes / p_.dram_bytes;
    return std::max(l2_free_, dram_free_) + p_.l2_latency + p_.dram_share * p_.dram_latency;
  }

  void execute(Warp &warp, const Slot &slot, const Fact &fact, double t) {
    Block &block = blocks_[warp.block];
    switch (fact.kind) {
    case Kind::plain:
      make(warp, fact,
           t + (slot.pipe == Pipe::xu || slot.pipe == Pipe::other ? p_.xu_latency : p_.fixed_latency),
           slot.pipe == Pipe::xu ? Stall::short_scoreboard : Stall::wait);
      break;
    case Kind::memory: {
      const Cost &cost = cost_of(warp, slot.pc);
      if (!cost.takes_part)
        break;
      const double wavefronts =
          std::max(1.0, cost.wavefronts + std::ceil(cost.sectors * kSectorBytes / kWavefrontBytes));
      memory_free_ = std::max(memory_free_, t) + wavefronts;
      if (cost.sectors && fact.writes.empty()) {
        store_free_ = std::max(store_free_, t) + cost.sectors * kSectorBytes / p_.l2_bytes;
      } else if (cost.sectors) {
        make(warp, fact, from_l2(memory_free_, cost.sectors * kSectorBytes), Stall::long_scoreboard);
      } else {
        const double latency =
            fact.writes.size() > 1 && slot.pipe == Pipe::memory ? p_.matrix_load_latency : p_.shared_latency;
        make(warp, fact, memory_free_ - 1 + latency, Stall::short_scoreboard);
      }
      break;
    }
    case Kind::shuffle:
      memory_free_ = std::max(memory_free_, t) + 1;
      make(warp, fact, memory_free_ - 1 + p_.shuffle_latency, Stall::short_scoreboard);
      break;
    case Kind::mma: {
      const double busy = fact.operations / (p_.mma_operations / kQuarters);
      pipe_free_[warp.quarter][std::size_t(Pipe::tensor)] = t + busy;
      make(warp, fact, t + p_.mma_latency, Stall::wait);
      break;
    }
    case Kind::copy: {
      const Cost &cost = cost_of(warp, slot.pc);
      if (!cost.takes_part)
        break;
      memory_free_ = std::max(memory_free_, t) + std::ceil(cost.sectors * kSectorBytes / kWavefrontBytes);
      warp.open_copies = std::max(warp.open_copies, from_l2(memory_free_, cost.sectors * kSectorBytes));
      break;
    }
    case Kind::copy_commit:
      warp.copy_groups.push_back(std::exchange(warp.open_copies, 0));
      break;
    case Kind::copy_wait:
      while (warp.copy_groups.size() > fact.n)
        warp.copy_groups.pop_front();
      break;
    case Kind::copy_arrive: {
      const Cost &cost = cost_of(warp, slot.pc);
      double last = warp.open_copies;
      for (const double end : warp.copy_groups)
        last = std::max(last, end);
      arrive_at(std::max(last, t + 1), {warp.block, cost.wavefronts, cost.sectors, 0});
      break;
    }
    case Kind::bulk_copy: {
      const Cost &cost = cost_of(warp, slot.pc);
      if (!cost.takes_part)
        break;
      tma_free_ = std::max(tma_free_, t) + p_.tma_interval;
      if (cost.is_store) {
        store_free_ = std::max(store_free_, tma_free_) + cost.bytes / p_.l2_bytes;
        warp.open_stores = std::max(warp.open_stores, store_free_ + p_.tma_latency);
      } else {
        arrive_at(from_l2(tma_free_, cost.bytes) + p_.tma_latency,
                  {warp.block, cost.wavefronts, 0, -cost.bytes});
      }
      break;
    }
    case Kind::bulk_commit:
      warp.store_groups.push_back(std::exchange(warp.open_stores, 0));
      break;
    case Kind::bulk_wait:
      while (warp.store_groups.size() > fact.n)
        warp.store_groups.pop_front();
      break;
    case Kind::mbarrier_init: {
      const Cost &cost = cost_of(warp, slot.pc);
      if (!cost.takes_part)
        break;
      Mbarrier &barrier = block.mbarriers[cost.wavefronts];
      barrier = {};
      barrier.expected = barrier.pending = cost.sectors;
      break;
    }
    case Kind::mbarrier_arrive: {
      const Cost &cost = cost_of(warp, slot.pc);
      if (cost.takes_part)
        arrive(warp.block, cost.wavefronts, cost.sectors, cost.bytes, t);
      break;
    }
    case Kind::mbarrier_wait: {
      const Cost &cost = cost_of(warp, slot.pc);
      if (!cost.takes_part)
        break;
      Mbarrier &barrier = block.mbarriers[cost.wavefronts];
      if ((barrier.phases & 1) != cost.sectors) {
        later(warp.next, warp.reason, t + p_.mbarrier_latency, Stall::long_scoreboard);
      } else {
        barrier.waiting.emplace_back(warp.number, cost.sectors);
        block_warp(warp, t);
      }
      break;
    }
    case Kind::block_barrier: {
      const Cost &cost = cost_of(warp, slot.pc);
      if (cost.takes_part)
        reach_barrier(warp, block.barriers[cost.wavefronts & 15], cost.sectors, fact.arrives, t);
      break;
    }
    case Kind::product:
      issue_product(warp, block.groups[warp.index / kWarpsOfGroup], fact, t);
      break;
    case Kind::product_commit:
      warp.product_groups.push_back(warp.products);
      break;
    case Kind::product_wait:
      wait_products(warp, block.groups[warp.index / kWarpsOfGroup], fact.n, t);
      break;
    case Kind::fence:
      later(warp.next, warp.reason, t + p_.fence_latency, Stall::membar);
      break;
    case Kind::unknown:
      break;
    }
  }

  void block_warp(Warp &warp, double t) {
    warp.blocked = true;
    warp.blocked_at = t;
  }

  void release(std::uint32_t number, double at, Stall reason) {
    Warp &warp = warps_[number];
    warp.blocked = false;
    warp.next = std::max(warp.next, at);
    warp.reason = reason;
    push(warp, warp.next);
  }

  void arrive_at(double at, const Arrival &arrival) {
    arrivals_.push_back(arrival);
    const auto which = std::uint32_t(arrivals_.size() - 1);
    events_.push({at, which, which, true});
  }

  void arrive(std::uint32_t number, std::uint32_t address, std::int64_t arrivals, std::int64_t bytes,
              double t) {
    Mbarrier &barrier = blocks_[number].mbarriers[address];
    barrier.pending -= arrivals;
    barrier.bytes += bytes;
    if (barrier.pending > 0 || barrier.bytes != 0 || barrier.expected == 0)
      return;
    ++barrier.phases;
    barrier.pending += barrier.expected;
    std::erase_if(barrier.waiting, [&](const auto &one) {
      if ((barrier.phases & 1) == one.second)
        return false;
      release(one.first, t + p_.mbarrier_latency, Stall::long_scoreboard);
      return true;
    });
  }

  void reach_barrier(Warp &warp, Barrier &barrier, std::uint32_t threads, bool only_arrives, double t) {
    ++barrier.arrived;
    if (!only_arrives) {
      barrier.waiting.push_back(warp.number);
      block_warp(warp, t);
    }
    const std::uint32_t expected = threads ? threads / 32 : blocks_[warp.block].live;
    if (barrier.arrived >= expected)
      complete(barrier, t);
  }

  void complete(Barrier &barrier, double t) {
    barrier.arrived = 0;
    for (const std::uint32_t number : std::exchange(barrier.waiting, {}))
      release(number, t + p_.barrier_latency, Stall::barrier);
  }

  /// It starts when all four warps have issued it, and takes the tensor cores or, if that is longer, shared
  /// memory as long as its operands need.
  void issue_product(Warp &warp, Group &group, const Fact &fact, double t) {
    const std::uint64_t number = warp.products++;
    if (number >= group.arrived.size()) {
      group.arrived.resize(number + 1);
      group.ends.resize(number + 1);
    }
    if (++group.arrived[number] < int(kWarpsOfGroup))
      return;
    constexpr double kWavefrontsOfA = 16;
    const double operands = fact.n / 4.0 + (fact.a_in_registers ? 0 : kWavefrontsOfA);
    const double busy = std::max(fact.operations / p_.product_operations, operands);
    tensor_free_ = std::max(tensor_free_, t) + busy;
    group.ends[number] = tensor_free_ + p_.product_latency;
    std::erase_if(group.waiting, [&](const auto &one) {
      if (one.second > number + 1)
        return false;
      release(one.first, group.ends[one.second - 1], Stall::gmma);
      return true;
    });
  }

  void wait_products(Warp &warp, Group &group, std::uint32_t pending, double t) {
    if (warp.product_groups.size() <= pending)
      return;
    const std::size_t done = warp.product_groups.size() - pending;
    const std::uint64_t number = warp.product_groups[done - 1];
    warp.product_groups.erase(warp.product_groups.begin(),
                              warp.product_groups.begin() + std::ptrdiff_t(done));
    if (number == 0)
      return;
    if (number <= group.ends.size() && group.ends[number - 1] > 0)
      return later(warp.next, warp.reason, group.ends[number - 1], Stall::gmma);
    group.waiting.emplace_back(warp.number, number);
    block_warp(warp, t);
  }

  void end(Warp &warp) {
    Block &block = blocks_[warp.block];
    warp.ready = {};
    result_.cycles = std::max(result_.cycles, warp.issued + 1);
    if (--block.live) {
      for (Barrier &barrier : block.barriers)
        if (barrier.arrived && barrier.arrived >= block.live)
          complete(barrier, now_);
      return;
    }
    --live_blocks_;
    block = {};
    if (left_)
      start_block(now_ + p_.block_latency);
  }

  void note_wait(Warp &warp, std::uint32_t pc, double t, Stall stall) {
    const double cycles = t - warp.issued - 1;
    result_.stalls[{pc, Stall::selected}] += 1;
    if (cycles <= 0)
      return;
    result_.stalls[{pc, stall}] += cycles;
    if (cycles >= kShownWait && warp.block == 0 && result_.waits.size() < kMostWaits)
      result_.waits.push_back({warp.number, warp.issued + 1, t, stall, pc});
  }

  const Facts &facts_;
  const std::vector<BlockTrace> &traces_;
  std::uint64_t left_, started_ = 0, live_blocks_ = 0;
  const Parameters p_;
  std::deque<Warp> warps_;
  std::deque<Block> blocks_;
  std::vector<Arrival> arrivals_;
  std::priority_queue<Event> events_;
  std::unordered_map<std::uint64_t, std::vector<Slot>> slots_; ///< by run
  std::unordered_map<std::uint64_t, std::uint32_t>
      before_; ///< recorded instructions before this one in its run
  double now_ = 0;
  double port_free_[kQuarters] = {};
  double pipe_free_[kQuarters][kPipes] = {};
  double memory_free_ = 0, l2_free_ = 0, dram_free_ = 0, store_free_ = 0, tma_free_ = 0, tensor_free_ = 0;
  Replayed result_;
};

} // namespace

Parameters parameters_of(const std::map<std::string, double> &values) {
  Parameters parameters;
#define PARAMETER(name)                                                                                      \
  if (const auto found = values.find(#name); found != values.end())                                          \
    parameters.name = found->second;                                                                         \
  else                                                                                                       \
    throw std::invalid_argument("the model of time needs the parameter " #name);
#include "timing/parameters.def"
#undef PARAMETER
  return parameters;
}

std::string_view stall_name(Stall stall) {
  constexpr std::string_view kNames[kStalls] = {"selected",
                                                "wait",
                                                "short_scoreboard",
                                                "long_scoreboard",
                                                "math_pipe_throttle",
                                                "mio_throttle",
                                                "lg_throttle",
                                                "barrier",
                                                "gmma",
                                                "membar",
                                                "branch_resolving",
                                                "not_selected"};
  return kNames[std::size_t(stall)];
}

Replayed replay(const Facts &facts, const std::vector<BlockTrace> &traces, std::uint64_t blocks,
                const Parameters &parameters) {
  return Replay(facts, traces, blocks, parameters).run();
}

} // namespace ladder::timing
