// A warp: 32 lanes that run one instruction at a time, with divergence and reconvergence.
//
// The lanes of a warp are split into paths. A path is a set of lanes at one instruction. A divergent branch
// splits its path in two and makes a join at the branch's immediate post-dominator, where the lanes wait for
// each other and go on as one path; a call makes a join at the return address. A path that must wait (for a
// block barrier, or for lanes that a warp-wide instruction names) lets the others run, which is what
// independent thread scheduling promises.
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

/// Registers of one call of a function, for all lanes. The entry's lives as long as the warp.
struct Frame {
  const FrameLayout *layout = nullptr;
  std::unique_ptr<std::uint8_t[]> storage; ///< over-allocated for alignment
  std::uint8_t *registers = nullptr;       ///< 64-byte aligned
  std::vector<std::uint8_t> params;        ///< [lane][param_area_bytes]
  std::uint32_t local_base = 0; ///< where this call's local variables start, bytes in a thread's stack
  std::vector<std::uint32_t> alloca_tops; ///< by lane, where its stack ends; empty before the first alloca
  std::uint32_t alloca_bytes = 0;         ///< of the lane that took most
  std::shared_ptr<Frame> caller;
  std::uint32_t call_site = 0; ///< index of the call in Code::instructions, for the values it returns
  int depth = 0;
};

/// cp.async: data on its way to shared memory.
struct PendingCopy {
  std::uint8_t data[16];
  std::uint32_t shared_address; ///< offset in the block's shared memory
  std::uint8_t lane;
  std::uint8_t bytes;
};

/// What lanes bring to an instruction that exchanges values between lanes.
struct Offer {
  std::uint32_t lanes = 0, value[32]{};
};

/// What happens when a warp is run.
enum class RunResult { exited, blocked, slice_over };

class Warp {
public:
  Warp(Block &block, int index, std::uint32_t live_lanes);

  /// Runs at most `slice` instructions. Returns `blocked` when every path waits. Throws FaultError with the
  /// lane set where one is to blame.
  RunResult run(std::uint64_t slice);

  // --- what instructions use
  // ---------------------------------------------------------------------------------------
  std::uint32_t active() const {
    return active_;
  } ///< lanes that execute this instruction; never 0 in a handler
  std::uint32_t path_mask() const { return mask_; } ///< lanes at this instruction, guard not applied
  std::uint32_t live() const { return live_; }      ///< lanes that have not exited
  std::uint32_t &carry() { return carry_; }         ///< the condition code register CC.CF, a bit a lane
  std::uint32_t initial_lanes() const { return initial_; }
  int index() const { return index_; }
  Block &block() { return *block_; }
  std::uint32_t pc() const { return pc_; } ///< of the next instruction

  /// 32 lanes of a register. T is uint32_t, int32_t, float for registers of up to 32 bits, uint64_t, ... for
  /// 64 bits.
  template <typename T> T *lanes(std::uint32_t offset) { return reinterpret_cast<T *>(registers_ + offset); }
  /// A predicate register: bit i is lane i.
  std::uint32_t &predicate(std::uint32_t offset) {
    return *reinterpret_cast<std::uint32_t *>(registers_ + offset);
  }
  /// Writes `value` for the active lanes of a predicate.
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
  /// The source instruction, for messages and rare paths.
  const program::Instruction &source(const Instruction &instruction) const;

  // Control flow. Each acts on the active lanes of the current path.
  void branch(std::uint32_t target, std::uint32_t taken, std::uint32_t reconverge);
  /// brx.idx: lane i goes to targets[i].
  void branch_indexed(const std::uint32_t (&targets)[32], std::uint32_t reconverge);
  /// Calls the function with this index in Code::frames for the active lanes; they come back to the next
  /// instruction. The callee's parameter area is handed out so that the handler can copy the arguments in.
  Frame &call(std::uint32_t frame_index);
  /// An indirect call: active lane i calls the function with index frame_indices[i]. Hands out each callee's
  /// frame.
  std::vector<Frame *> call_indexed(const std::uint32_t (&frame_indices)[32]);
  void ret();
  void exit();
  /// Joins waiting lanes; placed before the instruction at a reconvergence point.
  void reconverge();

  /// True when the current path holds all live lanes of `members`, or they have all come to such an
  /// instruction. Otherwise makes the path wait for the missing ones, after which the instruction is executed
  /// again; the handler must return at once.
  bool converge(std::uint32_t members);
  /// Before converge(), by a path that lacks members: what its lanes give to those that come to an
  /// instruction of the same opcode elsewhere.
  void offer(const Offer &offer);
  /// After converge(): what lanes gave that have come elsewhere; nullptr when all are here, or when what they
  /// came to is another opcode.
  std::shared_ptr<const Offer> take_offers();
  /// Makes the current path wait at a block barrier; its instruction is executed again when the block
  /// releases it.
  void wait_barrier(int barrier);
  void release_barrier(int barrier);
  /// What a path waits for, for the message about a deadlock.
  using Describe = std::string (*)(Warp &waiting);
  /// Makes the current path wait for something that other warps do; its instruction is executed again after
  /// release_waits, which may be too early.
  void wait_for(Describe describe) {
    paths_[current_].describe = describe;
    wait_current(Path::State::event);
  }
  void release_waits();
  /// A polling instruction has found nothing new. `waits_at_mbarrier`: only another warp can change that.
  void note_idle_poll(bool waits_at_mbarrier) {
    ++idle_polls_;
    waits_at_mbarrier_ = waits_at_mbarrier_ || waits_at_mbarrier;
  }
  /// True when all that the last slice did was to find mbarriers incomplete.
  bool starves() const { return starves_; }
  /// True, once, when the current instruction is executed again after the wait that it began.
  bool take_release();
  /// The same without taking it.
  bool released() const { return paths_[current_].released; }
  /// Lanes of other paths that have nothing before them but the kernel's end.
  std::uint32_t about_to_exit() const;
  /// Leaves only these lanes to the instruction that is about to be executed.
  void restrict_active(std::uint32_t lanes) { active_ = lanes; }
  /// Ends this warp's slice: a spinning loop lets others run (nanosleep, failed try_wait).
  void yield() {
    executed_ -= remaining_;
    remaining_ = 0;
  }

  // Asynchronous copies (cp.async). Data is read at once and written when it is waited for, so that a missing
  // wait shows.
  std::vector<PendingCopy> &open_copies() { return open_copies_; }
  void commit_copies();
  /// Completes all but the newest `pending` groups; `all` also completes what is not committed.
  void wait_copies(std::size_t pending, bool all);

  // Local memory of a lane, as bytes in its stack.
  std::uint8_t *local(int lane, std::uint64_t address, std::uint64_t bytes) {
    return local_.at(lane, address, bytes, local_top());
  }
  /// Bytes of local memory that a thread has here; accesses end below.
  std::uint64_t local_top() const {
    return std::uint64_t(frame_->local_base) + frame_->layout->local_bytes + frame_->alloca_bytes;
  }
  /// The end of a lane's stack, which alloca moves. Throws stack_overflow.
  std::uint32_t stack_end(int lane) const;
  void set_stack_end(int lane, std::uint64_t end);
  std::uint64_t local_stride() const { return local_.stride(); }

  /// A global range that holds the bytes; throws out_of_bounds or read_only.
  const MemoryRange &global_range(std::uint64_t address, std::uint64_t bytes, bool write, int lane) {
    const MemoryRange *const range = remembered_range(address, bytes, write);
    return range ? *range : find_global_range(address, bytes, write, lane);
  }
  /// The same if it is one of the last few found, else nullptr.
  const MemoryRange *remembered_range(std::uint64_t address, std::uint64_t bytes, bool write) {
    const MemoryRange *const last = recent_ranges_.front();
    return last && holds(*last, address, bytes, write) ? last : recall_range(address, bytes, write);
  }

  bool finished() const { return live_ == 0; }
  bool ready() const; ///< some path can run
  std::uint64_t executed() const { return executed_; }
  /// Instructions issued so far, while one runs.
  std::uint64_t clock() const { return executed_ - remaining_; }
  /// True when the last slice was spent on polling: a loop around a volatile load, an atomic or a sleep.
  bool polled() const { return polled_; }
  /// Lets lanes that have waited at a join for long go on without the others, which may be spinning for them.
  /// Returns whether there were any.
  bool release_joins();
  /// What the waiting paths wait for, for the message about a deadlock.
  std::string describe_waits() const;
  /// For messages: the instruction that the warp executes or, when all its paths wait, the first one waiting.
  std::uint32_t instruction_for_messages() const;

private:
  /// Lanes that meet at an instruction. `expected` shrinks when lanes leave for good.
  struct Join {
    std::uint32_t pc;
    std::uint32_t expected, arrived = 0;
    std::shared_ptr<Join> parent;
    std::shared_ptr<Frame> frame; ///< the frame to go on with
    bool is_call = false;
  };
  struct Path {
    enum class State { ready, barrier, converge, event };
    std::uint32_t pc = 0, mask = 0;
    std::shared_ptr<Join> join;
    std::shared_ptr<Frame> frame;
    State state = State::ready;
    int barrier = -1;
    std::uint32_t members = 0;          ///< converge: whom it waits for
    Describe describe = nullptr;        ///< event: what it waits for
    std::shared_ptr<const Offer> offer; ///< converge: the path's own; after it, everybody's
    bool released = false;              ///< the wait is over and the instruction is executed again
  };

  std::shared_ptr<Frame> make_frame(std::uint32_t frame_index, const std::shared_ptr<Frame> &caller);
  void enter(std::size_t path);         ///< makes paths_[path] current
  void leave();                         ///< stores the current path's state
  bool next_path();                     ///< picks another ready path; false when all wait
  void wait_current(Path::State state); ///< the current instruction will be executed again
  void drop_current();
  bool settle_products(); ///< before the instruction at pc_; false: the path waits
  void arrive(const std::shared_ptr<Join> &join, std::uint32_t lanes);
  void leave_join(const std::shared_ptr<Join> &join, std::uint32_t lanes);
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
  bool switch_path_ = false; ///< the current path is gone or waits
  Frame *frame_ = nullptr;
  std::array<const MemoryRange *, 4> recent_ranges_{}; ///< global memory, the last one first

  Block *block_;
  int index_;
  std::uint32_t initial_, live_;
  std::vector<Path> paths_;
  std::size_t current_ = 0;
  std::uint64_t executed_ = 0;
  bool polled_ = false, starves_ = false, waits_at_mbarrier_ = false;
  std::uint64_t idle_polls_ = 0;  ///< in this slice
  std::uint64_t poll_slices_ = 0; ///< in a row
  std::uint64_t patience_;        ///< how many of them are too many; less after each time that it helped
  LocalMemory local_;
  std::vector<PendingCopy> open_copies_;
  std::vector<std::vector<PendingCopy>> groups_;
};

} // namespace ladder::machine
