// A block: its warps, its shared memory and its barriers.
#pragma once

#include "machine/device_heap.h"
#include "machine/gpu.h"
#include "machine/observer.h"
#include "machine/warp.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

namespace ladder::machine {

inline constexpr int kBarriers = 16;

struct Dim3 {
  std::uint32_t x = 1, y = 1, z = 1;
  std::uint64_t count() const { return std::uint64_t(x) * y * z; }
};

/// What all blocks of a launch have in common. Read-only while it runs.
struct LaunchContext {
  std::shared_ptr<const Code> code;
  const VirtualGpu *gpu = nullptr;
  const GlobalMemory *memory = nullptr;
  DeviceHeap *heap = nullptr; ///< nullptr: kernels cannot allocate
  Dim3 grid, block;
  std::uint32_t dynamic_shared_bytes = 0;
  std::vector<std::uint8_t> params;         ///< the kernel's argument block
  std::uint64_t warp_instruction_limit = 0; ///< 0: none
  std::uint64_t grid_id = 0;
  std::uint64_t grid_workspace = 0; ///< of a cooperative launch: zeroed global memory for the grid's barrier
  std::atomic<bool> stop{false};    ///< set to end the launch
  LaunchObserver *observer = nullptr; ///< nullptr: nobody watches
  std::function<void()> on_round;     ///< called by the launching thread's blocks after each round of slices
};

/// cp.async.bulk: data on its way to shared memory.
struct BulkCopyInFlight {
  std::uint32_t shared_address, mbarrier; ///< offsets in the block's shared memory
  std::vector<std::uint8_t> data;
};

class Block {
public:
  /// `on_launching_thread`: calls launch.on_round.
  Block(LaunchContext &launch, Dim3 index, Counters &counters, bool on_launching_thread);

  enum class State { finished, spinning };
  /// Runs the warps in turn, a slice each, until they have all exited, or until a whole round of slices was
  /// nothing but polling, which means that the block may wait for another one.
  State run();

  // --- what instructions use ---
  const LaunchContext &launch() const { return *launch_; }
  const Code &code() const { return *launch_->code; }
  Dim3 index() const { return index_; }
  std::uint64_t linear_index() const {
    const Dim3 &grid = launch_->grid;
    return index_.x + std::uint64_t(grid.x) * (index_.y + std::uint64_t(grid.y) * index_.z);
  }
  std::uint32_t thread_count() const { return threads_; }
  Counters &counters() { return *counters_; }
  BlockObserver *observer() { return observer_.get(); }
  std::vector<Warp> &warps() { return warps_; }

  /// Shared memory. Addresses are those the program sees: the first byte of the window is 0, the block's own
  /// begins after the reserved bytes. Throws out_of_bounds when [address, address + bytes) is not all inside.
  std::uint8_t *shared(std::uint64_t address, std::uint64_t bytes, int lane) {
    if (address < shared_first_ || address + bytes > shared_end_ || address + bytes < address)
      shared_out_of_bounds(address, bytes, lane);
    return shared_.data() + address;
  }
  /// Shared address 0 in host memory, for accesses that have been checked.
  std::uint8_t *shared_base() { return shared_.data(); }
  std::vector<BulkCopyInFlight> &bulk_copies() { return bulk_copies_; }
  SharedCostCache &shared_costs() { return shared_costs_; }
  std::uint32_t shared_begin() const { return shared_begin_; }
  std::uint32_t shared_first() const { return shared_first_; } ///< shared_begin(), unless that was opened
  /// Lets the block use the reserved bytes before its own: cooperative groups that span warps keep their
  /// barriers there and take them to be zero at first. Before, using them is out of bounds.
  void open_system_shared();
  std::uint32_t shared_end() const { return shared_end_; }

  enum class Reduction { none, popc, all, any };
  /// bar.arrive, or the arrival of bar.sync and bar.red: counts the warp's active lanes. `count` is in
  /// threads, 0 for all of the block. With `wait` the path waits and its instruction is executed again once
  /// the barrier is complete; the handler sees that by Warp::take_release(). `values` are the lanes'
  /// predicates for a reduction.
  void arrive(Warp &warp, int barrier, std::uint32_t count, bool wait, Reduction reduction = Reduction::none,
              std::uint32_t values = 0);
  /// Result of the last completed reduction on this barrier: popc, or 0/1.
  std::uint32_t reduction_result(int barrier) const { return barriers_[barrier].result; }
  /// Called by a warp when lanes exit: barriers that wait for all threads need fewer.
  void lanes_exited(std::uint32_t lanes);
  /// Something that may let other blocks or warps go on has happened.
  void note_progress() { progressed_ = true; }

private:
  struct Barrier {
    std::uint32_t arrived = 0; ///< threads
    std::uint32_t slots = 0;   ///< the same with a whole warp counted as 32, however many lanes it began with
    std::uint32_t expected = 0; ///< in slots; 0: all live threads
    bool open = false;          ///< somebody has arrived
    std::uint32_t popc = 0, result = 0;
    bool all = true, any = false;
    Reduction reduction = Reduction::none;
  };
  bool is_complete(const Barrier &barrier) const;
  void complete_barrier(int barrier);
  [[noreturn]] void shared_out_of_bounds(std::uint64_t address, std::uint64_t bytes, int lane) const;
  [[noreturn]] void rethrow_with_place(FaultError error, const Warp &warp) const;
  [[noreturn]] void deadlock();

  LaunchContext *launch_;
  Dim3 index_;
  Counters *counters_;
  std::uint32_t threads_, live_threads_;
  std::uint32_t shared_begin_, shared_end_;
  std::uint32_t shared_first_;       ///< the first byte that may be accessed
  std::vector<std::uint8_t> shared_; ///< indexed by shared address; the reserved bytes are there too
  std::vector<BulkCopyInFlight> bulk_copies_;
  SharedCostCache shared_costs_;
  std::vector<Warp> warps_;
  std::array<Barrier, kBarriers> barriers_;
  bool progressed_ = false;
  bool on_launching_thread_;
  std::unique_ptr<BlockObserver> observer_;
};

} // namespace ladder::machine
