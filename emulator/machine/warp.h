// A warp: 32 lanes that execute one instruction at a time, with divergence and reconvergence.
//
// The lanes of a warp are split into paths. A path is a set of lanes at one instruction. A divergent branch
// splits its path in two and creates a join at the branch's immediate post-dominator, where the lanes wait
// for each other and continue as one path; a call creates a join at the return address. A path that must wait
// (for a block barrier, or for lanes that a warp-wide instruction names) lets the others run, as independent
// thread scheduling guarantees.
#pragma once

#include "machine/bank_model.h"
#include "machine/code.h"
#include "machine/counters.h"
#include "machine/fault.h"
#include "machine/global_memory.h"
#include "machine/local_memory.h"

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

namespace ladder::machine {

class Block;

/// "lanes 0-3,8", for messages.
std::string lanes_text(std::uint32_t lanes);

inline constexpr std::uint32_t kAllLanes = 0xffffffffu;

/// Registers of one function call, for all lanes. The entry's frame lives as long as the warp.
struct Frame {
  const FrameLayout *layout = nullptr;
  std::unique_ptr<std::uint8_t[]> storage; ///< over-allocated for alignment
  std::uint8_t *registers = nullptr;       ///< 64-byte aligned
  std::vector<std::uint8_t> params;        ///< [lane][param_area_bytes]
  std::uint32_t local_base = 0; ///< start of this call's local variables, in bytes on a thread's stack
  std::vector<std::uint32_t> alloca_tops; ///< by lane: end of its stack; empty before the first alloca
  std::uint32_t alloca_bytes = 0;         ///< maximum over the lanes
  std::shared_ptr<Frame> caller;
  std::uint32_t call_site = 0; ///< index of the call in Code::instructions, for returning values
  int depth = 0;
};

/// cp.async: data in flight to shared memory.
struct PendingCopy {
  std::uint8_t data[16];
  std::uint32_t shared_address; ///< offset in the block's shared memory
  std::uint8_t lane;
  std::uint8_t bytes;
};

/// What lanes contribute to an instruction that exchanges values across lanes.
struct Offer {
  std::uint32_t lanes = 0, value[32]{};
};

/// Lanes that are at one instruction of one call, for a debugger.
struct LanesAt {
  enum class State { ready, at_barrier, at_warp_barrier, at_event, at_join };
  std::uint32_t lanes = 0;
  std::uint32_t pc = 0; ///< index of their next instruction
  std::shared_ptr<Frame> frame;
  State state = State::ready;
};

/// Outcome of Warp::run.
enum class RunResult { exited, blocked, slice_over };

class Warp {
public:
  Warp(Block &block, int index, std::uint32_t live_lanes);

  /// Runs at most `slice` instructions. Returns `blocked` if every path waits. Throws FaultError, with the
  /// lane if one is at fault.
  RunResult run(std::uint64_t slice);

  // --- used by instructions
  /// Lanes that execute this instruction; never 0 in a handler.
  std::uint32_t active() const { return active_; }
  std::uint32_t path_mask() const { return mask_; } ///< lanes at this instruction, before its guard applies
  std::uint32_t live() const { return live_; }      ///< lanes that have not exited
  std::uint32_t &carry() { return carry_; }         ///< the condition code register CC.CF, one bit per lane
  int index() const { return index_; }
  Block &block() { return *block_; }
  std::uint32_t pc() const { return pc_; } ///< index of the next instruction
  std::vector<LanesAt> lanes_at() const;   ///< of the lanes that have not exited

  /// The 32 lanes of a register. T is uint32_t, int32_t or float for registers of up to 32 bits; uint64_t,
  /// ... for 64 bits.
  template <typename T> T *lanes(std::uint32_t offset) { return reinterpret_cast<T *>(registers_ + offset); }
  /// A predicate register: bit i is lane i.
  std::uint32_t &predicate(std::uint32_t offset) {
    return *reinterpret_cast<std::uint32_t *>(registers_ + offset);
  }
  /// Writes `value` to the active lanes of a predicate.
  void set_predicate(std::uint32_t offset, std::uint32_t value) {
    std::uint32_t &p = predicate(offset);
    p = (p & ~active_) | (value & active_);
  }
  Frame &frame() { return *frame_; }
  const std::shared_ptr<Frame> &shared_frame() const { return paths_[current_].frame; }
  const std::uint32_t *more(const Instruction &instruction) const {
    return code_->more.data() + instruction.more_begin;
  }
  AccessCounters &access(const Instruction &instruction, AccessKind kind);
  /// The source instruction, for messages and slow paths.
  const program::Instruction &source(const Instruction &instruction) const;

  // Control flow. Each acts on the active lanes of the current path.
  void branch(std::uint32_t target, std::uint32_t taken, std::uint32_t reconverge);
  /// brx.idx: lane i goes to targets[i].
  void branch_indexed(const std::uint32_t (&targets)[32], std::uint32_t reconverge);
  /// Calls the function with this index in Code::frames for the active lanes; they return to the next
  /// instruction. Returns the callee's frame, so that the handler can copy the arguments in.
  Frame &call(std::uint32_t frame_index);
  /// An indirect call: active lane i calls the function with index frame_indices[i]. Returns the frame of
  /// each callee.
  std::vector<Frame *> call_indexed(const std::uint32_t (&frame_indices)[32]);
  void ret();
  void exit();
  /// Merges waiting lanes; runs before the instruction at a reconvergence point.
  void reconverge();

  /// Returns true if the current path holds all live lanes of `members`, or all of them have reached such an
  /// instruction. Otherwise the path waits for the missing lanes, then executes the instruction again; the
  /// handler must return at once.
  bool converge(std::uint32_t members);
  /// For a path that lacks members, before converge(): values of its lanes, for members at an instruction of
  /// the same opcode elsewhere.
  void offer(const Offer &offer);
  /// After converge(): what lanes elsewhere offered; nullptr if all lanes are here, or if they reached
  /// another opcode.
  std::shared_ptr<const Offer> take_offers();
  /// Makes the current path wait at a block barrier; its instruction executes again once the block releases
  /// it.
  void wait_barrier(int barrier);
  void release_barrier(int barrier);
  /// Describes what a path waits for, for the deadlock message.
  using Describe = std::string (*)(Warp &waiting);
  /// Makes the current path wait for an event in other warps; its instruction executes again after
  /// release_waits, possibly too early.
  void wait_for(Describe describe) {
    paths_[current_].describe = describe;
    wait_current(Path::State::event);
  }
  void release_waits();
  /// A polling instruction saw no change. `waits_at_mbarrier`: only another warp can change that.
  void note_idle_poll(bool waits_at_mbarrier) {
    ++idle_polls_;
    waits_at_mbarrier_ = waits_at_mbarrier_ || waits_at_mbarrier;
  }
  /// True if the last slice did nothing but find mbarriers incomplete.
  bool starves() const { return starves_; }
  /// Returns true, once, if the current instruction executes again after its wait.
  bool take_release();
  /// The same without clearing it.
  bool released() const { return paths_[current_].released; }
  /// Lanes of other paths for which only the kernel's end remains.
  std::uint32_t about_to_exit() const;
  /// Restricts the instruction about to execute to these lanes.
  void restrict_active(std::uint32_t lanes) { active_ = lanes; }
  /// Ends this warp's slice, so that a spinning loop lets others run (nanosleep, failed try_wait).
  void yield() {
    executed_ -= remaining_;
    remaining_ = 0;
  }

  // Asynchronous copies (cp.async). Data is read at issue and written at the wait, so that a missing wait
  // shows.
  std::vector<PendingCopy> &open_copies() { return open_copies_; }
  void commit_copies();
  /// Completes all but the newest `pending` groups; `all` also completes uncommitted copies.
  void wait_copies(std::size_t pending, bool all);

  // A lane's local memory, addressed as bytes on its stack.
  std::uint8_t *local(int lane, std::uint64_t address, std::uint64_t bytes) {
    return local_.at(lane, address, bytes, local_top());
  }
  /// Bytes of local memory that a thread has at this point; accesses must end below.
  std::uint64_t local_top() const {
    return std::uint64_t(frame_->local_base) + frame_->layout->local_bytes + frame_->alloca_bytes;
  }
  /// The end of a lane's stack, which alloca moves. Throws stack_overflow.
  std::uint32_t stack_end(int lane) const;
  void set_stack_end(int lane, std::uint64_t end);
  std::uint64_t local_stride() const { return local_.stride(); }
  /// The same for a call that is under way in these lanes, or its callers.
  std::uint8_t *local_of(const Frame &frame, int lane, std::uint64_t offset, std::uint64_t bytes) {
    const std::uint64_t begin = frame.local_base, end = begin + frame.layout->local_bytes;
    return local_.at(lane, begin + offset, bytes, end + frame.alloca_bytes);
  }

  /// The global range that contains the bytes; throws out_of_bounds or read_only.
  const MemoryRange &global_range(std::uint64_t address, std::uint64_t bytes, bool write, int lane) {
    const MemoryRange *const range = remembered_range(address, bytes, write);
    return range ? *range : find_global_range(address, bytes, write, lane);
  }
  /// The same if it is among the last few found, else nullptr.
  const MemoryRange *remembered_range(std::uint64_t address, std::uint64_t bytes, bool write) {
    const MemoryRange *const last = recent_ranges_.front();
    return last && holds(*last, address, bytes, write) ? last : recall_range(address, bytes, write);
  }

  bool finished() const { return live_ == 0; }
  bool ready() const; ///< some path can run
  std::uint32_t ready_lanes() const;
  bool waits_at_barrier() const;
  std::uint64_t executed() const { return executed_; }
  /// Instructions issued so far; valid while one runs.
  std::uint64_t clock() const { return executed_ - remaining_; }
  /// True if the last slice was spent polling: a loop around a volatile load, an atomic or a sleep.
  bool polled() const { return polled_; }
  /// Releases lanes that have waited long at a join without the others, which may be spinning for them.
  /// Returns true if there were any.
  bool release_joins() { return release_joins(kAllLanes); }
  /// Describes what the waiting paths wait for, for the deadlock message.
  std::string describe_waits() const;
  /// For messages: the instruction that the warp executes or, if all paths wait, the first waiting one.
  std::uint32_t instruction_for_messages() const;

private:
  /// Lanes that reconverge at an instruction. `expected` shrinks as lanes exit.
  struct Join {
    std::uint32_t pc;
    std::uint32_t expected, arrived = 0;
    std::shared_ptr<Join> parent;
    std::shared_ptr<Frame> frame; ///< the frame to continue in
    bool is_call = false;
  };
  struct Path {
    enum class State { ready, barrier, converge, event };
    std::uint32_t pc = 0, mask = 0;
    std::shared_ptr<Join> join;
    std::shared_ptr<Frame> frame;
    State state = State::ready;
    int barrier = -1;
    std::uint32_t members = 0;          ///< converge: the lanes it waits for
    Describe describe = nullptr;        ///< event: what it waits for
    std::shared_ptr<const Offer> offer; ///< converge: the path's own offer; afterwards, all offers
    bool released = false;              ///< the wait is over; the instruction executes again
  };

  template <bool kDebugged> RunResult run_slice(std::uint64_t slice);
  void execute_debugged(const Instruction &instruction);
  std::shared_ptr<Frame> make_frame(std::uint32_t frame_index, const std::shared_ptr<Frame> &caller);
  void enter(std::size_t path);         ///< makes paths_[path] current
  void leave();                         ///< stores the current path's state
  bool next_path();                     ///< picks another ready path; false if all wait
  void wait_current(Path::State state); ///< the current instruction will execute again
  void drop_current();
  bool settle_products(); ///< runs before the instruction at pc_; false: the path waits
  void arrive(const std::shared_ptr<Join> &join, std::uint32_t lanes);
  void leave_join(const std::shared_ptr<Join> &join, std::uint32_t lanes);
  std::vector<std::shared_ptr<Join>> waiting_joins() const; ///< with lanes that wait for others
  bool release_joins(std::uint32_t lanes);                  ///< those at which some of these lanes wait
  bool release_members();
  void complete(const std::shared_ptr<Join> &join);
  void try_release_converge(std::uint32_t members);
  static bool holds(const MemoryRange &range, std::uint64_t address, std::uint64_t bytes, bool write) {
    return address >= range.begin && address + bytes <= range.end && address + bytes > address &&
           (!write || range.writable);
  }
  const MemoryRange *recall_range(std::uint64_t address, std::uint64_t bytes, bool write);
  const MemoryRange &find_global_range(std::uint64_t address, std::uint64_t bytes, bool write, int lane);
  void complete_copies(std::vector<PendingCopy> &copies);

  // Hot state of the current path.
  std::uint8_t *registers_ = nullptr;
  const Code *code_;
  std::uint32_t pc_ = 0, mask_ = 0, active_ = 0, carry_ = 0;
  std::uint64_t remaining_ = 0;
  bool switch_path_ = false; ///< the current path has ended or waits
  Frame *frame_ = nullptr;
  std::array<const MemoryRange *, 4> recent_ranges_{}; ///< global memory, most recent first

  Block *block_;
  int index_;
  std::uint32_t initial_, live_;
  std::vector<Path> paths_;
  std::size_t current_ = 0;
  std::uint64_t executed_ = 0;
  bool polled_ = false, starves_ = false, waits_at_mbarrier_ = false;
  std::uint64_t idle_polls_ = 0;  ///< in this slice
  std::uint64_t poll_slices_ = 0; ///< in a row
  std::uint64_t patience_;        ///< slices before lanes are released; shrinks each time that helped
  LocalMemory local_;
  std::vector<PendingCopy> open_copies_;
  std::vector<std::vector<PendingCopy>> groups_;
};

} // namespace ladder::machine
