// A block: its warps, its shared memory and its barriers.
#pragma once

#include "machine/access_pattern.h"
#include "machine/bulk.h"
#include "machine/debugger.h"
#include "machine/device_heap.h"
#include "machine/gpu.h"
#include "machine/observer.h"
#include "machine/register_pool.h"
#include "machine/warp.h"
#include "machine/warpgroup.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace ladder::machine {

/// The slice of a warp that has only polled, in instructions.
inline constexpr std::uint64_t kPollSlice = 512;

inline constexpr int kBarriers = 16;

inline constexpr int kClusterRankShift = 24; ///< of a shared address
inline constexpr std::uint32_t kOffsetInBlock = (1u << kClusterRankShift) - 1;

struct Dim3 {
  std::uint32_t x = 1, y = 1, z = 1;
  std::uint64_t count() const { return std::uint64_t(x) * y * z; }
};

class DeviceRuntime;
class TensorCore;

/// State shared by all blocks of a launch. Read-only while the launch runs.
struct LaunchContext {
  std::shared_ptr<const Code> code;
  const VirtualGpu *gpu = nullptr;
  const GlobalMemory *memory = nullptr;
  DeviceHeap *heap = nullptr; ///< nullptr: kernels cannot allocate
  Dim3 grid, block;
  Dim3 cluster; ///< blocks per cluster; divides the grid
  bool has_explicit_clusters = false;
  std::uint32_t dynamic_shared_bytes = 0;
  std::vector<std::uint8_t> params;         ///< the kernel's argument block
  std::uint64_t warp_instruction_limit = 0; ///< 0: none
  std::uint64_t grid_id = 0;
  /// Cooperative launches: zeroed global memory for the grid barrier.
  std::uint64_t grid_workspace = 0;
  std::uint64_t most_clusters = ~std::uint64_t(0); ///< only so many of the first run
  std::atomic<bool> stop{false};                   ///< set to stop the launch
  std::atomic<std::uint64_t> progress{0};          ///< rounds of slices in which a block did more than poll
  LaunchObserver *observer = nullptr;              ///< nullptr: no observer
  Debugger *debugger = nullptr;                    ///< nullptr: no debugger
  /// Called by blocks on the launching thread after each round of slices.
  std::function<void()> on_round;
  DeviceRuntime *device_runtime = nullptr; ///< nullptr: kernels cannot launch kernels
};

class Cluster;

/// A wait on an mbarrier whose phase was incomplete, for the deadlock message.
struct MbarrierWait {
  std::uint32_t lanes = 0, instruction = 0;
  std::uint32_t address = 0, parity = 0; ///< of the first lane
  std::string (*describe)(std::uint64_t bits) = nullptr;
};

class Block {
public:
  /// `on_launching_thread`: calls launch.on_round.
  Block(LaunchContext &launch, Dim3 index, Counters &counters, bool on_launching_thread, Cluster &cluster,
        std::uint32_t cluster_rank);

  ~Block(); ///< settles outstanding counts
  Block(const Block &) = delete;
  Block &operator=(const Block &) = delete;

  enum class State { finished, spinning, waiting, interrupted, gave_way };
  /// Runs the warps in turn, a slice each, until all have exited, until a whole round only polled (the block
  /// may be waiting for another block), or until all wait for other blocks of the cluster. The first time, it
  /// ends after one round if the device takes the liberty to run backwards.
  State run();
  bool finished() const { return live_threads_ == 0; }
  /// True if a warp has done anything but poll since the last call.
  bool take_moved() { return std::exchange(moved_, false); }
  /// True if no warp can proceed without another block of the cluster.
  bool starves() const;
  /// Throws a fault that lists what each warp waits for.
  [[noreturn]] void deadlock();
  /// The same for a block that polls for a change that no thread can make.
  FaultError endless_wait() const;

  // --- used by instructions ---
  const LaunchContext &launch() const { return *launch_; }
  const Code &code() const { return *launch_->code; }
  Dim3 index() const { return index_; }
  std::uint64_t linear_index() const {
    const Dim3 &grid = launch_->grid;
    return index_.x + std::uint64_t(grid.x) * (index_.y + std::uint64_t(grid.y) * index_.z);
  }
  std::uint32_t thread_count() const { return threads_; }
  Counters &counters() { return *counters_; }
  /// Counts an asynchronous copy to or from shared memory if this is the first block.
  void note_copy(const Instruction &in, std::uint32_t shared_address) {
    if (linear_index() == 0)
      counters().note_copy(std::uint32_t(&in - code().instructions.data()), shared_address);
  }
  BlockObserver *observer() { return observer_.get(); }
  Cluster &cluster() { return *cluster_; }
  std::uint32_t cluster_rank() const { return cluster_rank_; }
  /// The block of the cluster that a shared address refers to. Throws out_of_bounds.
  Block &owner(std::uint64_t address, int lane);
  std::vector<Warp> &warps() { return warps_; }
  /// The warpgroup of a warp; nullptr if the block ends within it.
  Warpgroup *warpgroup(int warp) {
    const std::size_t index = std::size_t(warp / kWarpsOfGroup);
    return index < warpgroups_.size() ? &warpgroups_[index] : nullptr;
  }

  /// Host pointer to shared memory. Addresses are as the program sees them: the window starts at
  /// shared_base_address(), the block's own memory follows the reserved bytes. Also resolves other blocks of
  /// the cluster. Throws out_of_bounds unless [address, address + bytes) lies inside.
  std::uint8_t *shared(std::uint64_t address, std::uint64_t bytes, int lane) {
    if (address < shared_first_ || address + bytes > shared_end_ || address + bytes < address)
      return cluster_shared(address, bytes, lane);
    return shared_base() + address;
  }
  /// The address of the first reserved byte: the block's rank.
  std::uint32_t shared_base_address() const { return cluster_rank_ << kClusterRankShift; }
  /// What to add to a shared address for its host pointer, for accesses already checked.
  std::uint8_t *shared_base() { return shared_.data() - shared_base_address(); }
  /// Host pointer to the first reserved byte, for offsets.
  std::uint8_t *shared_memory() { return shared_.data(); }
  std::vector<BulkCopyInFlight> &bulk_copies() { return bulk_copies_; }
  /// By thread number within the block.
  BulkGroups &bulk_groups(int thread) { return bulk_groups_[thread]; }
  RegisterPool &register_pool() { return register_pool_; }
  /// Replaces what these lanes waited for last.
  void note_mbarrier_wait(const Warp &warp, const MbarrierWait &wait);
  SharedCostCache &shared_costs() { return shared_costs_; }
  AccessPattern &pattern(const Instruction &instruction) { return patterns_[instruction.site]; }
  /// Settles the instruction's pattern and returns it for reuse with a new pattern, counted as `kind`.
  AccessPattern &renew_pattern(const Instruction &instruction, AccessKind kind);
  std::uint32_t shared_begin() const { return shared_begin_; }
  /// The first accessible byte: shared_begin(), or shared_base_address() once the reserved bytes are open.
  std::uint32_t shared_first() const { return shared_first_; }
  /// Makes the reserved bytes before the block's own memory accessible: cooperative groups that span warps
  /// keep their barriers there and expect zeros. Until then, accessing them is out of bounds.
  void open_system_shared();
  std::uint32_t shared_end() const { return shared_end_; }

  TensorCore &tensor_core();                                    ///< created when first used
  TensorCore *used_tensor_core() { return tensor_core_.get(); } ///< nullptr: not used yet

  enum class Reduction { none, popc, all, any };
  /// bar.arrive, or the arrival part of bar.sync and bar.red: counts the warp's active lanes. `count` is in
  /// threads, 0 for the whole block. With `wait` the path waits, and its instruction executes again once the
  /// barrier completes; the handler detects this with Warp::take_release(). `values` are the lanes'
  /// predicates for a reduction.
  void arrive(Warp &warp, int barrier, std::uint32_t count, bool wait, Reduction reduction = Reduction::none,
              std::uint32_t values = 0);
  /// Result of the barrier's last completed reduction: popc, or 0/1.
  std::uint32_t reduction_result(int barrier) const { return barriers_[barrier].result; }
  /// Called when lanes of a warp exit: barriers that wait for all threads then expect fewer.
  void lanes_exited(const Warp &warp, std::uint32_t lanes);
  /// A fault at the instruction where the spinning block waits.
  FaultError waiting_fault(const std::string &message) const;
  /// Records an event that may let other blocks or warps proceed.
  void note_progress() { progressed_ = moved_ = true; }
  /// Ends the warp's slice, and then the block's turn, so that the blocks that wait for this one go first.
  void give_way(Warp &warp) {
    warp.yield();
    note_progress();
    gives_way_ = true;
  }

private:
  struct Barrier {
    std::uint32_t arrived = 0;  ///< threads
    std::uint32_t slots = 0;    ///< like `arrived`, but a whole warp always counts as 32
    std::uint32_t expected = 0; ///< in slots; 0: all live threads
    bool open = false;          ///< a thread has arrived
    std::uint32_t popc = 0, result = 0;
    bool all = true, any = false;
    Reduction reduction = Reduction::none;
  };
  bool is_complete(const Barrier &barrier) const;
  void complete_barrier(int barrier);
  [[noreturn]] void shared_out_of_bounds(std::uint64_t address, std::uint64_t bytes, int lane) const;
  FaultError with_place(FaultError error, const Warp &warp) const;
  std::uint8_t *cluster_shared(std::uint64_t address, std::uint64_t bytes, int lane);
  std::string describe_wait(const Warp &warp) const;
  std::string describe_waits() const;

  LaunchContext *launch_;
  Dim3 index_;
  Counters *counters_;
  std::uint32_t threads_, live_threads_;
  std::uint32_t shared_begin_, shared_end_;
  std::uint32_t shared_first_;       ///< first accessible byte
  std::vector<std::uint8_t> shared_; ///< reserved bytes included
  std::vector<BulkCopyInFlight> bulk_copies_;
  std::map<int, BulkGroups> bulk_groups_;
  RegisterPool register_pool_;
  std::vector<std::vector<MbarrierWait>> mbarrier_waits_; ///< by warp: each lane's last wait
  Cluster *cluster_;
  std::uint32_t cluster_rank_;
  SharedCostCache shared_costs_;
  std::vector<AccessPattern> patterns_; ///< by Instruction::site
  std::vector<Warp> warps_;
  std::vector<Warpgroup> warpgroups_; ///< complete ones only
  std::unique_ptr<TensorCore> tensor_core_;
  std::array<Barrier, kBarriers> barriers_;
  bool progressed_ = false, moved_ = false, gives_way_ = false;
  bool on_launching_thread_, to_interrupt_;
  std::unique_ptr<BlockObserver> observer_;
};

} // namespace ladder::machine
