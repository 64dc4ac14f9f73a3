// Checks one block while it runs.
//
// Each handler inspects the accesses of the lanes, records events, masks off the lanes whose access would end
// the block (out of bounds, misaligned), and runs the original handler for the other lanes.
#pragma once

#include "instructions/addressing.h"
#include "instructions/bulk_copy.h"
#include "machine/block.h"
#include "sanitizer/async_proxy.h"
#include "sanitizer/clocks.h"
#include "sanitizer/displaced_reads.h"
#include "sanitizer/findings.h"
#include "sanitizer/launch_checker.h"
#include "sanitizer/shadow.h"
#include "sanitizer/tensor_shadow.h"
#include "sanitizer/undefined.h"

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

namespace ladder::instructions {
class TensorOperand;
}

namespace ladder::sanitizer {

class BlockChecker final : public machine::BlockObserver {
public:
  BlockChecker(LaunchChecker &launch, machine::Block &block);
  ~BlockChecker() override {
    if (block_.finished())
      check_end();
  }

  void members_skipped(machine::Warp &warp, std::uint32_t instruction, std::uint32_t lanes,
                       std::uint32_t missing) override;
  void barrier_completed(int barrier) override {
    clocks_.complete(barrier);
    first_arrival_[std::size_t(barrier)] = -1;
  }
  void heap_allocated(machine::Warp &warp, int lane, std::uint64_t address, std::uint64_t bytes) override;
  bool heap_freed(machine::Warp &warp, int lane, std::uint64_t address) override;
  void written(machine::Warp &warp, int lane, std::uint64_t address, std::uint64_t bytes) override;

  void load(machine::Warp &warp, const machine::Instruction &in);
  void load_constant(machine::Warp &warp, const machine::Instruction &in);
  void store(machine::Warp &warp, const machine::Instruction &in);
  void atomic(machine::Warp &warp, const machine::Instruction &in);
  void matrix(machine::Warp &warp, const machine::Instruction &in, bool writes);
  void fragment(machine::Warp &warp, const machine::Instruction &in, bool writes);
  void copy(machine::Warp &warp, const machine::Instruction &in);
  void bulk_copy(machine::Warp &warp, const machine::Instruction &in);
  void async_store(machine::Warp &warp, const machine::Instruction &in);
  void commit(machine::Warp &warp, const machine::Instruction &in);
  void wait(machine::Warp &warp, const machine::Instruction &in);
  void copy_arrive(machine::Warp &warp, const machine::Instruction &in);
  void mbarrier(machine::Warp &warp, const machine::Instruction &in);
  void mbarrier_wait(machine::Warp &warp, const machine::Instruction &in);
  void barrier(machine::Warp &warp, const machine::Instruction &in);
  void warp_barrier(machine::Warp &warp, const machine::Instruction &in);
  void shuffle(machine::Warp &warp, const machine::Instruction &in);
  void vote(machine::Warp &warp, const machine::Instruction &in);
  void call(machine::Warp &warp, const machine::Instruction &in);
  void to_generic(machine::Warp &warp, const machine::Instruction &in);
  void from_generic(machine::Warp &warp, const machine::Instruction &in);
  void fence(machine::Warp &warp, const machine::Instruction &in);
  void cluster_arrive(machine::Warp &warp, const machine::Instruction &in);
  void product(machine::Warp &warp, const machine::Instruction &in);
  void product_fence(machine::Warp &warp, const machine::Instruction &in);
  void product_commit(machine::Warp &warp, const machine::Instruction &in);
  void product_wait(machine::Warp &warp, const machine::Instruction &in);
  void bulk_commit(machine::Warp &warp, const machine::Instruction &in);
  void bulk_wait(machine::Warp &warp, const machine::Instruction &in);
  void proxy_fence(machine::Warp &warp, const machine::Instruction &in);
  void grid_wait(machine::Warp &warp, const machine::Instruction &in);
  void map_change(machine::Warp &warp, const machine::Instruction &in);
  void cluster_wait(machine::Warp &warp, const machine::Instruction &in);
  void tensor_alloc(machine::Warp &warp, const machine::Instruction &in);
  void tensor_dealloc(machine::Warp &warp, const machine::Instruction &in);
  void tensor_load(machine::Warp &warp, const machine::Instruction &in);
  void tensor_store(machine::Warp &warp, const machine::Instruction &in);
  void tensor_wait(machine::Warp &warp, const machine::Instruction &in);
  void tensor_fence(machine::Warp &warp, const machine::Instruction &in);
  void tensor_product(machine::Warp &warp, const machine::Instruction &in);
  void tensor_copy(machine::Warp &warp, const machine::Instruction &in);
  void tensor_commit(machine::Warp &warp, const machine::Instruction &in);
  /// Before every instruction, and before its own checks.
  void values(machine::Warp &warp, const machine::Instruction &in);

private:
  enum class Act { read, async_read, write, update, copy };
  /// The addresses of an instruction's lanes, and which lanes access which space.
  struct Reach {
    std::uint64_t address[32]; ///< for lanes in no space: as given by the instruction
    std::uint32_t shared = 0, global = 0, local = 0, elsewhere = 0;
    std::uint32_t lanes() const { return shared | global | local | elsewhere; }
    Reach only(std::uint32_t some) const {
      Reach part = *this;
      for (std::uint32_t *lanes : {&part.shared, &part.global, &part.local, &part.elsewhere})
        *lanes &= some;
      return part;
    }
  };
  /// The space of an access, or the use of an undefined value that `past` loaded.
  enum class Where : std::uint8_t { none, shared, global, local, decides_branch, is_address, is_stored };
  struct Event {
    Kind kind;
    int lane;
    std::uint64_t address;
    Where where;
    Access past; ///< the other party; epoch 0: none
    bool past_wrote = false, now_writes = false;
  };
  struct CopyInFlight {
    std::uint32_t address, bytes;
    Access write;
    SharedRead source;     ///< the read of another block's shared memory, or nullptr
    Knowledge issuer;      ///< of a bulk copy: what its thread had done and known; nullptr for other copies
    std::uint64_t map = 0; ///< in global memory: the tensor map that it reads; 0: none
  };
  /// Data in flight to the shared memory of a block of the cluster, and the mbarrier that counts its bytes.
  struct Landing {
    std::uint64_t to, mbarrier;              ///< shared::cluster addresses
    unsigned bytes;                          ///< from the first to the last
    bool reduces = false;                    ///< a reduction
    bool is_bulk = false;                    ///< by the async proxy
    std::optional<machine::Swizzle> swizzle; ///< of a tensor copy
    SharedRead source;                       ///< the read of shared memory, or nullptr
    std::uint64_t map = 0;                   ///< the address of its tensor map
  };
  struct Poll {
    std::uint32_t instruction = 0;
    std::uint64_t address = 0;
    bool operator==(const Poll &) const = default;
  };
  struct Phase {
    int lane; ///< the first at this mbarrier
    std::uint32_t parity;
  };
  struct Init {
    Access access;
    bool is_published; ///< its thread has executed a fence since, or a barrier of the cluster
  };
  /// At an mbarrier: the arrivals in the phase of this parity, and in the previous one; of a warp's lanes,
  /// the first's.
  struct Arrivals {
    std::uint32_t parity = 0;
    std::vector<Access> current, previous;
  };
  using Phases = std::map<std::pair<BlockChecker *, std::uint64_t>, Phase>; ///< by mbarrier
  /// At an mbarrier: by warp, the wait by which it last saw the end of the phase before this parity's, and
  /// how many phases it had then seen.
  struct Waits {
    struct Seen {
      Access wait;
      std::uint32_t count;
    };
    std::uint32_t parity = 0;
    std::map<int, Seen> by_warp;
  };
  struct WarpCopies {
    std::vector<CopyInFlight> open;
    std::deque<std::vector<CopyInFlight>> groups;
  };
  /// A register of products: the last instructions that accessed and wrote it, and the last product that uses
  /// it. Times count the fences and accesses of the warp; 0: never.
  struct ProductRegister {
    std::uint64_t accessed = 0, written = 0;
    std::uint32_t accessed_by = 0, written_by = 0, product = 0;
    std::uint64_t number = 0; ///< 1 + the number of that product
    bool is_accumulator = false;
  };
  struct WarpProducts {
    std::deque<std::pair<std::uint64_t, SharedRead>>
        reads;                              ///< by product number; this warp has not waited for them
    std::deque<std::uint64_t> groups;       ///< by group: 1 + its last product
    std::uint64_t issued = 0, complete = 0; ///< complete: this warp has waited for them
    std::vector<std::uint32_t> seen_phases; ///< by product: of mbarriers, when this warp issued it
    std::vector<ProductRegister> registers; ///< by number in CheckedCode
    std::uint64_t time = 0, fence = 0;      ///< of the last fence
  };
  /// A bulk store: its read of shared memory (nullptr after the wait for it) and what it writes.
  struct StoreInFlight {
    SharedRead read;
    std::vector<std::pair<std::uint64_t, unsigned>> runs{}; ///< address, bytes
    std::uint64_t map = 0;                                  ///< the address of its tensor map
  };
  struct ThreadStores {
    std::vector<StoreInFlight> open;
    std::deque<std::vector<StoreInFlight>> groups;
  };
  struct LocalShadow {
    enum Byte : std::uint8_t { unwritten, written, undefined };
    std::uint64_t bytes = 0; ///< per lane
    std::vector<std::uint8_t> states;
  };
  /// The undefined bytes that a load read from partly written memory: by lane, bit i is set if byte i is
  /// undefined.
  struct PartlyRead {
    std::uint32_t lanes = 0, masks[32];
    bool is_unwritten = false; ///< some lane read local memory that was never written
    unsigned begin = 0;        ///< of the run of bytes that is being read
    void add(int lane, std::uint32_t mask) {
      masks[lane] = (lanes >> lane & 1 ? masks[lane] : 0) | mask << begin;
      lanes |= 1u << lane;
    }
  };
  /// The instruction being checked.
  struct Context {
    machine::Warp &warp;
    const machine::Instruction &in;
    const Site &site;
    std::uint32_t index;
    std::uint32_t thread(int lane) const { return std::uint32_t(warp.index() * 32 + lane); }
  };

  /// The lanes' accesses of one instruction to one kind of memory.
  struct Deed {
    const Context &at;
    Act act;
    Where where;
    /// The records to keep, by lane. They are built for all lanes at once: copying each record right after
    /// building it stalls the CPU.
    Access accesses[32];
    bool reads() const { return act == Act::read || act == Act::async_read; }
  };
  /// One lane's part of a Deed, or less.
  struct Touch {
    const Deed &deed;
    int lane;
    const Access &now;
    BlockClocks::Known known; ///< to the lane's thread
  };

  /// Of the block's shared memory, with the reserved bytes.
  std::uint64_t shared_bytes() const { return block_.shared_end() - block_.shared_base_address(); }
  Context context(machine::Warp &warp, const machine::Instruction &in) const;
  void carry_out(const Context &at, std::uint32_t lanes);

  Reach reach(const Context &at, std::uint32_t lanes, instructions::Space space, unsigned bytes, bool writes,
              const std::uint64_t (&addresses)[32]);
  Reach reach_operand(const Context &at, std::uint32_t lanes, unsigned bytes, bool writes);
  bool reach_together(const Context &at, unsigned bytes, bool writes, Reach &reach);
  Reach reach_load(const Context &at);
  void place_lane(const Context &at, Reach &reach, int lane, instructions::Space space, unsigned bytes,
                  unsigned alignment, bool writes);
  void place_shared(const Context &at, Reach &reach, int lane, std::uint64_t address, unsigned bytes);
  void place_global(const Context &at, Reach &reach, int lane, std::uint64_t address, unsigned bytes,
                    bool writes);
  void place_local(const Context &at, Reach &reach, int lane, std::uint64_t address, unsigned bytes);

  void touch(const Context &at, const Reach &reach, Act act, unsigned bytes) {
    touch(at, reach, act, 0, bytes);
  }
  /// Records the lanes' accesses to `bytes` bytes from offset `begin` on.
  void touch(const Context &at, const Reach &reach, Act act, unsigned begin, unsigned bytes);
  /// The checker of the block that owns the address, and the address in that block. nullopt if there is none;
  /// the machine rejects the access.
  std::optional<std::pair<BlockChecker *, std::uint64_t>> owner(std::uint64_t address, unsigned bytes);
  void touch_shared(const Context &at, const Reach &reach, Act act, unsigned begin, unsigned bytes);
  void touch_global(const Context &at, const Reach &reach, Act act, unsigned begin, unsigned bytes);
  void touch_cluster(const Context &at, const Reach &reach, Act act, unsigned begin, unsigned bytes);
  template <typename TouchRow>
  std::uint32_t for_rows(const Deed &deed, const Reach &reach, std::uint32_t lanes, unsigned begin,
                         unsigned bytes, TouchRow touch_row) const;
  std::optional<Access> touch_row(const Deed &deed, int lane, Cell &row, unsigned bytes) const;
  bool touch_shared_row(const Deed &deed, int lane, std::uint64_t address, unsigned bytes);
  bool touch_global_row(const Deed &deed, InitialisedMemory::Locked &initialised, int lane,
                        std::uint64_t address, unsigned bytes);
  void touch_shared(const Deed &deed, int lane, std::uint64_t address, unsigned bytes) {
    touch_shared(deed, lane, address, bytes, *this);
  }
  /// An access to the shared memory of `owner`, a block of the cluster.
  void touch_shared(const Deed &deed, int lane, std::uint64_t address, unsigned bytes, BlockChecker &owner);
  void touch_global(const Deed &deed, InitialisedMemory::Locked &initialised, int lane, std::uint64_t address,
                    unsigned bytes);
  void touch_local(const machine::Warp &warp, int lane, std::uint64_t address, unsigned bytes, Act act);
  Deed deed(const Context &at, std::uint32_t lanes, Act act, Where where) const;
  void record(Deed &deed, std::uint32_t lanes) const; ///< fills in their records
  template <typename Memory>
  void touch_cells(const Deed &deed, int lane, bool is_silent, Memory &memory, std::uint64_t address,
                   unsigned bytes, BlockChecker *owner); ///< of shared memory
  void read_shared(const Deed &deed, const Reach &reach, std::uint32_t lanes, unsigned begin, unsigned bytes);
  bool read_together(const Deed &deed, int first, int last, std::uint64_t address, unsigned bytes);
  bool read_settled(const Deed &deed, int lane, std::uint64_t address, unsigned bytes, bool in_step);
  bool touch_cell(const Touch &touch, Cell &cell, std::uint64_t place, bool noted, Access &displaced);
  bool is_settled(const Touch &touch, const Cell &cell) const;
  std::optional<Event> conflict(const Touch &touch, const Cell &cell, std::uint64_t place) const;
  Access remember_read(Cell &cell, const Touch &touch) const;
  void keep_displaced(std::uint64_t place, const Access &read);
  void check_displaced_reads(const Deed &deed, int lane, bool is_silent, std::uint64_t address,
                             unsigned bytes, BlockChecker &owner);
  bool races_with_displaced(const Deed &deed, int lane, std::uint64_t row, unsigned bytes);
  void remember_write(Cell &cell, const Touch &touch) const;
  Access access(const Context &at, int lane, Act act) const;
  bool races(const Access &past, const Access &now, bool now_reads, bool passes_l1) const;
  bool are_of_one_scope(const Access &past, const Access &now) const;
  bool are_unordered_sums(const Access &past, const Access &now) const;
  bool changes_nothing(const Context &at, int lane, std::uint64_t address, bool in_shared) const;
  bool any_changes_nothing(const Context &at, int first, std::uint64_t address, unsigned bytes,
                           bool in_shared) const;
  bool same_value(const Context &at, int lane, int other) const;
  bool is_same_store(const Context &at, int lane, const Access &past) const;
  template <typename Same> static bool all_elements(const Context &at, int lane, Same same);
  bool is_same_flag(const Context &at, const Access &past) const;
  void note_early(const Deed &deed, int lane, std::uint64_t address, unsigned bytes);
  void check_repeated_constant(const Deed &deed, int lane, std::uint64_t address, unsigned bytes);
  void check_replaced_stores(const Deed &deed, int lane, std::uint64_t address, unsigned bytes);

  // Undefined values, in registers.
  UndefinedRegisters &undefined_registers(const machine::Warp &warp) {
    return undefined_registers_[std::size_t(warp.index())];
  }
  std::uint64_t undefined_bits(const Context &at, const program::Operand &operand, int lane);
  Input input(const Context &at, const program::Operand &operand, int lane);
  void propagate(const Context &at);
  void propagate_lanes(const Context &at, Rule rule);
  void unpack(const Context &at);
  void propagate_shuffle(const Context &at);
  void propagate_warp(const Context &at);
  void define(const Context &at, const program::Operand &operand, std::uint32_t lanes, const LaneBits &bits,
              std::uint32_t origin);
  const UndefinedRegisters::Value *first_undefined(const Context &at);
  void check_uses(const Context &at);
  void check_use(const Context &at, const program::Register &reg, std::uint32_t lanes, Where use);
  void check_early_loads(const Context &at, std::uint32_t lanes);
  void define_loaded(const Context &at, std::uint32_t lanes);
  void keep_undefined(const Context &at, const Reach &where);

  void order_by_atomics(const Context &at, const Reach &reach, bool acquires, bool releases);
  bool knows_block(std::uint32_t thread, const Access &past, bool with_unfenced) const {
    return clocks_.knows_other(thread, past.block, past.thread, past.epoch, with_unfenced);
  }
  /// Whether the thread knows what a thread of any block did in that epoch.
  bool knows(std::uint32_t thread, const Access &past) const;

  void complete_copies(const std::vector<CopyInFlight> &copies);
  void complete_thread_copies(std::vector<CopyInFlight> &copies);
  /// Completes the copies to the mbarrier that have landed; `parity` is that of the previous phase.
  void complete_bulk_copies(const Context &at, std::uint64_t mbarrier, std::uint32_t parity);
  void check_inits(const Context &at, const Reach &where);
  void check_init_by_cluster(const Context &at, int lane, BlockChecker &owner, std::uint64_t mbarrier);
  void publish_inits(const machine::Warp &warp, std::uint32_t lanes);
  void check_overwritten_inits(const Context &at, int lane, std::uint64_t address, unsigned bytes,
                               BlockChecker &owner);
  std::optional<std::uint32_t> phase_of(std::uint64_t mbarrier) const;
  Phases phases(const Reach &where);
  bool may_complete_several(const Context &at, const Reach &where);
  void arrive(const Context &at, const Reach &where);
  void check_arrivals(const Context &at, const Phases &phases);
  void check_waits(const Context &at, const Phases &before);
  bool may_complete(std::uint64_t mbarrier, std::uint32_t parity) const;
  void note_wait(const Context &at, int lane, std::uint64_t mbarrier, std::uint32_t count);
  void check_phases(const Context &at, const Phases &before);
  void begin_load(const Context &at, int lane, const instructions::BulkCopy &copy, Phases &phases);
  void begin_landing(const Context &at, int lane, const Landing &landing, Phases &phases);
  void check_overwriting(const Context &at, int lane, const BlockChecker &owner, std::uint64_t address,
                         unsigned bytes);
  BlockChecker &checker(std::uint32_t block);
  Access unfenced(const Context &at, int lane, const BlockChecker &owner,
                  const AsyncProxy::Touched &last) const;
  bool is_fenced(const Context &at, int lane, const Access &write) const;
  void check_global_proxy(const Context &at, int lane, std::uint64_t address, unsigned bytes, bool writes);
  void check_maps_in_use(const Context &at, const Reach &reach, unsigned bytes);
  void check_proxy(const Context &at, int lane, std::uint32_t address);
  void learn_phases_of_group(const machine::Warp &warp);
  SharedRead issue(const Context &at, std::size_t first);
  void use_product_registers(const Context &at);
  void check_product_registers(const Context &at);
  void note_register(const Context &at, Kind kind, std::uint32_t instruction);
  AsyncRead::Wait wait_of(const machine::Warp &warp, std::uint32_t lanes) const;
  /// In a block's AsyncProxy, the stores of all threads are one party; each warpgroup is another.
  std::size_t store_party() const { return (products_.size() + 3) / 4; }
  SharedRead begin_read(const Context &at, int lane, std::uint64_t address, unsigned bytes);
  enum class TensorOrder { ordered, not_waited, no_fence_before, no_fence_after, unordered };
  /// Columns of some bands of a block's tensor memory.
  struct TensorPlace {
    BlockChecker *owner;
    std::uint32_t first, columns, bands;
    bool reads, writes;
  };
  TensorShadow &tensor();
  TensorOrder tensor_order(const Context &at, int lane, bool is_work, const TensorAccess &past);
  void touch_tensor(const Context &at, int lane, const SharedAccess &now, const TensorPlace &place);
  std::string opcode_of(const TensorAccess &access) const;
  void report_tensor(const Context &at, int lane, Kind kind, const Access &other, std::string message);
  void transfer(const Context &at, bool loads);
  SharedAccess begin_tensor_work(const Context &at, int lane);
  void read_operand(const Context &at, int lane, const SharedAccess &now,
                    const std::vector<machine::Block *> &group, const instructions::TensorOperand &operand,
                    std::uint32_t lines, std::uint32_t k);
  void check_election(const Context &at);
  void observe_commits(const Context &at, std::uint32_t lanes, std::uint64_t mbarrier, std::uint32_t before);
  void check_tensor_end();
  void check_end();
  void check_use_by_cluster();
  /// A finding at past instructions; `other` may be none.
  void report_past(Kind kind, const Access &access, const Access &other, const char *message);
  std::array<std::uint32_t, 3> launch_place(std::uint32_t block) const;
  bool touch_bulk_global(const Context &at, const instructions::BulkCopy &copy, int lane,
                         StoreInFlight &store);
  void complete_store(const StoreInFlight &store, std::uint32_t thread);
  void meet(const Context &at);
  void check_own_mask(const Context &at);
  std::uint64_t tag_of(const Context &at, int lane) const;
  void check_sources(const Context &at);

  void note(Event event) { events_.push_back(event); }
  void note(Kind kind, int lane, std::uint64_t address, Where where) {
    events_.push_back({kind, lane, address, where, {}, false, false});
  }
  /// Turns the events of an instruction into findings; lanes with the same event share one.
  void report(const Context &at, unsigned bytes);
  Finding describe(const Context &at, const Event &event, std::uint32_t lanes, unsigned bytes) const;
  void check_arrival(const Context &at, std::uint32_t barrier);
  void report_barrier(const Context &at, std::string message, std::uint32_t other);

  LaunchChecker &launch_;
  machine::Block &block_;
  std::uint32_t block_index_;
  BlockClocks clocks_;
  Shadow shadow_;                   ///< shadow of shared memory
  DisplacedReads displaced_reads_;  ///< of shared memory
  WrittenBytes written_;            ///< shadow of shared memory
  bool is_used_by_cluster_ = false; ///< another block has accessed the shared memory
  AsyncProxy async_;
  std::unique_ptr<TensorShadow> tensor_; ///< nullptr: no tensor memory yet
  std::vector<WarpProducts> products_;   ///< by warp
  std::map<std::uint32_t, ThreadStores> stores_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>>
      grid_waits_;                   ///< waits for the previous launch: thread, epoch
  bool uses_maps_in_memory_ = false; ///< some copy has a tensor map in global memory
  std::vector<WarpCopies> copies_;   ///< by warp
  std::unordered_map<std::uint64_t, std::vector<CopyInFlight>> bulk_copies_; ///< by mbarrier
  std::vector<LocalShadow> local_;                                           ///< by warp
  std::vector<UndefinedRegisters> undefined_registers_;                      ///< by warp
  UndefinedBytes undefined_;                                                 ///< of shared memory
  PartlyRead partly_read_;
  /// Loads of local memory that was never written. Compilers load a variable before they know whether it has
  /// a value, so the values are tracked instead of reporting the load.
  std::set<std::uint32_t> early_loads_;
  std::vector<bool> has_spun_;                  ///< by warp
  std::vector<Poll> polls_;                     ///< by warp: the last strong load or atomic of a global word
  std::vector<std::uint32_t> cluster_arrivals_; ///< by thread
  /// By mbarrier: the sources, in other blocks' shared memory, of the copies that landed last.
  std::unordered_map<std::uint64_t, std::vector<SharedRead>> landed_;
  std::unordered_map<std::uint64_t, Init> inits_; ///< by mbarrier
  std::uint64_t inits_end_ = 0;                   ///< no mbarrier ends above this address
  std::unordered_map<std::uint64_t, Access>
      expectations_; ///< by mbarrier: the last access that expected bytes
  std::unordered_map<std::uint64_t, Access>
      unseen_completions_;                               ///< by mbarrier: the arrival that completed it
  std::unordered_map<std::uint64_t, Arrivals> arrivals_; ///< by mbarrier
  std::unordered_map<std::uint64_t, Waits> waits_;       ///< by mbarrier
  /// Synchronisation objects in shared memory: atomics, mbarriers.
  std::unordered_map<std::uint64_t, SyncObject> objects_;
  std::array<std::int64_t, machine::kBarriers> first_arrival_; ///< instruction; -1: no arrival yet
  std::vector<Event> events_;
};

/// A handler that calls a method of the block's checker.
template <auto method, auto... arguments> void checked(machine::Warp &warp, const machine::Instruction &in) {
  (static_cast<BlockChecker &>(*warp.block().observer()).*method)(warp, in, arguments...);
}

} // namespace ladder::sanitizer
