#include "machine/grid.h"

#include "machine/liberties.h"
#include "machine/occupancy.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <limits>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace ladder::machine {

namespace {

constexpr auto kTick = std::chrono::milliseconds(100);
/// The share of the instruction limit for which a whole grid may only poll.
constexpr std::uint64_t kIdleShare = 32;
/// With fewer polling rounds nothing can be concluded: lanes that wait at joins may still be released.
constexpr std::uint64_t kFewRounds = 256;
/// Each block may poll this often before the grid is suspended. By then most lanes at joins are released.
constexpr std::uint64_t kStallRounds = 80;

[[noreturn]] void refuse(const Code &code, const std::string &why) {
  FaultError error(FaultKind::launch, why);
  error.fault.kernel = code.kernel;
  throw error;
}

void check_launch(const LaunchContext &launch) {
  const Dim3 &grid = launch.grid, &cluster = launch.cluster;
  check_size(*launch.code, grid, launch.block);
  if (cluster.count() == 0 || cluster.count() > kMostBlocksOfCluster || grid.x % cluster.x ||
      grid.y % cluster.y || grid.z % cluster.z)
    refuse(*launch.code, "clusters of " + std::to_string(cluster.x) + " x " + std::to_string(cluster.y) +
                             " x " + std::to_string(cluster.z) + " blocks, which must divide the grid of " +
                             std::to_string(grid.x) + " x " + std::to_string(grid.y) + " x " +
                             std::to_string(grid.z) + " and be at most 16");
  const program::KernelLayout &layout = launch.code->layout;
  const std::uint64_t shared = launch.dynamic_shared_bytes
                                   ? layout.dynamic_shared_offset + launch.dynamic_shared_bytes
                                   : layout.static_shared_bytes;
  if (shared > launch.gpu->shared_bytes_per_block_opt_in)
    refuse(*launch.code, std::to_string(shared) + " bytes of shared memory per block; " +
                             std::string(launch.gpu->arch) + " has " +
                             std::to_string(launch.gpu->shared_bytes_per_block_opt_in));
}

/// How many blocks may be in progress while they wait for each other: as many as the whole GPU holds.
std::uint64_t resident_limit(const LaunchContext &launch) {
  const std::uint64_t warps = (launch.block.count() + 31) / 32;
  const std::uint64_t a_multiprocessor = std::max<std::uint64_t>(
      1, std::min<std::uint64_t>(std::uint64_t(launch.gpu->max_blocks_per_multiprocessor),
                                 std::uint64_t(launch.gpu->max_threads_per_multiprocessor) / 32 / warps));
  return a_multiprocessor * std::uint64_t(multiprocessors_of(*launch.gpu));
}

/// The same, also limited by shared memory.
std::uint64_t resident_with_shared_memory(const LaunchContext &launch) {
  return std::uint64_t(blocks_per_multiprocessor(*launch.gpu, *launch.code, launch.block.count(),
                                                 launch.dynamic_shared_bytes)) *
         std::uint64_t(multiprocessors_of(*launch.gpu));
}

/// The first block (or cluster) to run of `total`, and the end of those to run.
std::uint64_t first_of(std::uint64_t total) {
  const std::uint64_t last = Liberties::current().last_blocks;
  return last ? total - std::min(last, total) : 0;
}
std::uint64_t end_of(std::uint64_t total) {
  const std::uint64_t first = Liberties::current().first_blocks;
  return first ? std::min(first, total) : total;
}

unsigned threads_for(const LaunchOptions &options, std::uint64_t clusters) {
  if (Liberties::current().backwards)
    return 1; // makes the order of blocks the same on every host
  const unsigned threads = options.threads ? options.threads : std::thread::hardware_concurrency();
  return unsigned(std::min<std::uint64_t>(std::max(1u, threads), clusters));
}

} // namespace

void check_size(const Code &code, const Dim3 &grid, const Dim3 &block) {
  const std::string size = std::to_string(block.x) + " x " + std::to_string(block.y) + " x " +
                           std::to_string(block.z) + " threads";
  if (block.count() == 0 || grid.count() == 0)
    refuse(code, "an empty grid or block");
  if (block.x > 1024 || block.y > 1024 || block.z > 64 || block.count() > std::uint64_t(kMaxThreadsPerBlock))
    refuse(code, "a block of " + size + "; at most 1024 are allowed (1024 x 1024 x 64)");
  if (grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535)
    refuse(code, "a grid larger than 2147483647 x 65535 x 65535 blocks");
}

class GridRun {
public:
  GridRun(LaunchContext &launch, const LaunchOptions &options)
      : launch_(launch), options_(options),
        total_(std::min(end_of(launch.grid.count() / launch.cluster.count()), launch.most_clusters)),
        limit_(std::max<std::uint64_t>(1, resident_limit(launch) / launch.cluster.count())),
        room_(std::max<std::uint64_t>(1, resident_with_shared_memory(launch) / launch.cluster.count())),
        next_(first_of(total_)), resident_(threads_for(options, total_)),
        counters_(resident_.size(), Counters(launch.code->instructions.size())),
        idle_since_(resident_.size()) {}

  bool run(Patience patience) {
    if (patience == Patience::look && !look())
      return false;
    patience_ = patience == Patience::look ? Patience::stall : patience;
    stalled_ = false;
    std::ranges::fill(idle_since_, kBusy);
    next_tick_ = std::chrono::steady_clock::now() + kTick;
    launch_.on_round = [this] { tick(); };

    std::vector<std::jthread> workers;
    running_ = unsigned(resident_.size()) - 1;
    for (unsigned i = 1; i < resident_.size(); ++i)
      workers.emplace_back([this, i] {
        work(i);
        const std::lock_guard lock(mutex_);
        --running_;
        done_.notify_one();
      });
    work(0);
    for (std::unique_lock lock(mutex_); running_ > 0;)
      if (done_.wait_for(lock, kTick) == std::cv_status::timeout) {
        lock.unlock();
        tick();
        lock.lock();
      }
    workers.clear();
    if (other_error_)
      std::rethrow_exception(other_error_);
    if (fault_)
      throw *fault_;
    return !stalled_;
  }

  FaultError endless_wait() const {
    const auto waiting = std::ranges::find_if(resident_, [](const auto &some) { return !some.empty(); });
    return waiting->back().cluster->block(0).endless_wait();
  }

  Counters take_counters() {
    for (std::size_t i = 1; i < counters_.size(); ++i)
      counters_[0] += counters_[i];
    return std::move(counters_[0]);
  }

private:
  struct Resident {
    std::uint64_t index;
    std::unique_ptr<Cluster> cluster;
    std::uint64_t waits_since = kRuns; ///< the launch's progress when it last waited
  };

  /// Lets each block in progress run once, on this thread. Returns whether one has done more than poll.
  bool look() {
    const std::uint64_t before = launch_.progress.load();
    for (auto &some : resident_)
      for (std::size_t left = some.size(); left > 0; --left) {
        try {
          if (some.front().cluster->run() == Block::State::finished)
            return true; // it is taken from the queue when it runs next
        } catch (FaultError &error) {
          take(some.front().index, error);
          some.pop_front();
          return true;
        }
        some.push_back(std::move(some.front()));
        some.pop_front();
        if (launch_.progress.load() != before)
          return true;
      }
    return false;
  }

  std::unique_ptr<Cluster> make_cluster(std::uint64_t turn, Counters &counters, bool launching) {
    const std::uint64_t index = Liberties::current().backwards ? total_ - 1 - turn : turn;
    return std::make_unique<Cluster>(launch_, index, counters, launching);
  }

  /// Takes clusters (mostly of one block) in order. A cluster that spins goes to the back of this thread's
  /// queue, and another one starts, since the first may be waiting for it. When every second cluster is
  /// interrupted, the next one starts and goes first.
  void work(unsigned worker) {
    run_clusters(counters_[worker], worker);
    idle_since_[worker] = kDone;
  }

  void run_clusters(Counters &counters, unsigned worker) {
    std::deque<Resident> &resident = resident_[worker];
    IdleTime idle;
    bool start_one = false;
    try {
      while (!stalled_) {
        if (start_one || resident.empty()) {
          if (next_.load() < total_) {
            idle_since_[worker] = kBusy; // before another worker can see that no block is left to start
            idle = {};
          }
          const std::uint64_t index = next_.fetch_add(1);
          if (index < total_ && index <= faulted_.load())
            resident.push_front({.index = index, .cluster = make_cluster(index, counters, worker == 0)});
          else if (resident.empty())
            return;
        }
        start_one = false;
        Resident current = std::move(resident.front());
        resident.pop_front();
        if (current.index > faulted_.load())
          continue;
        try {
          const Block::State state = current.cluster->run();
          if (state == Block::State::finished) {
            ++finished_;
          } else if (state == Block::State::interrupted) {
            current.waits_since = kRuns;
            start_one = current.index % 2 == 1 && resident.size() + 1 < room_;
            resident.push_front(std::move(current));
          } else if (state == Block::State::gave_way) {
            current.waits_since = kRuns;
            resident.push_back(std::move(current));
          } else {
            if (faulted_.load() != kNoFault || lost_a_block_)
              continue; // it may be waiting for the block that faulted
            start_one = resident.size() + 1 < limit_;
            current.waits_since = launch_.progress.load();
            resident.push_back(std::move(current));
            if (launch_.observer && resident.size() == room_ && next_.load() < total_) {
              if (all_wait(resident))
                report_waiting(resident.back().cluster->block(0));
              else
                start_one = false; // one of them may still let the others go on
            }
            if (only_polls(worker, idle, resident.size())) {
              if (patience_ == Patience::endless_loop)
                throw resident.back().cluster->block(0).endless_wait();
              stalled_ = true;
            }
            if (idle.rounds % resident.size() == 0)
              std::this_thread::yield();
          }
        } catch (FaultError &error) {
          take(current.index, error);
        }
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      other_error_ = std::current_exception();
      launch_.stop = true;
    }
  }

  /// Whether each of the blocks has waited since any of them last did more than poll.
  bool all_wait(const std::deque<Resident> &resident) const {
    return std::ranges::all_of(resident, [progress = launch_.progress.load()](const Resident &one) {
      return one.waits_since == progress;
    });
  }

  /// All blocks that fit on the GPU wait for blocks that do not fit.
  void report_waiting(Block &block) {
    const FaultError error = block.waiting_fault(
        "the block waits, like all " + std::to_string(room_) + " that fit on the GPU at once, while " +
        std::to_string(total_ - next_.load()) + " more blocks cannot start");
    launch_.observer->take_fault(error.fault);
  }

  /// Per worker: the rounds of its blocks that have only polled since the launch last progressed.
  struct IdleTime {
    std::uint64_t progress = 0, rounds = 0;
  };

  /// After how many polling rounds of its `resident` blocks a worker gives up.
  std::uint64_t most_rounds(std::size_t resident) const {
    if (patience_ == Patience::stall)
      return kStallRounds * resident;
    if (!launch_.warp_instruction_limit)
      return std::numeric_limits<std::uint64_t>::max();
    return std::max(launch_.warp_instruction_limit / kIdleShare / kPollSlice, kFewRounds * resident);
  }

  /// True if all blocks have only polled for as long as the patience lasts: every worker has polled its
  /// `resident` blocks so often since the launch last progressed. A worker inside a long round, or not
  /// scheduled by the host, has not.
  bool only_polls(unsigned worker, IdleTime &idle, std::size_t resident) {
    const std::uint64_t progress = launch_.progress.load();
    if (idle.progress != progress)
      idle = {progress, 0};
    if (++idle.rounds <= most_rounds(resident))
      return false;
    idle_since_[worker] = kFirst + progress;
    return std::ranges::all_of(idle_since_, [&](const std::atomic<std::uint64_t> &since) {
      const std::uint64_t value = since.load();
      return value == kDone || value == kFirst + progress;
    });
  }

  /// Keeps the fault of the lowest block, so that reports do not depend on the number of threads.
  void take(std::uint64_t index, const FaultError &error) {
    if (launch_.observer && launch_.observer->take_fault(error.fault)) {
      lost_a_block_ = true;
      return;
    }
    const std::lock_guard lock(mutex_);
    if (index < faulted_.load() || !fault_) {
      fault_ = error;
      faulted_ = index;
    }
  }

  void tick() {
    const auto now = std::chrono::steady_clock::now();
    if (now < next_tick_)
      return;
    next_tick_ = now + kTick;
    const std::uint64_t blocks = launch_.cluster.count();
    if (options_.on_tick && !options_.on_tick(finished_.load() * blocks, total_ * blocks))
      launch_.stop = true;
  }

  static constexpr std::uint64_t kNoFault = std::numeric_limits<std::uint64_t>::max(), kRuns = kNoFault;

  LaunchContext &launch_;
  const LaunchOptions options_;
  const std::uint64_t total_, limit_, room_;
  std::atomic<std::uint64_t> next_, finished_{0}, faulted_{kNoFault};
  /// By worker: kFirst + the launch's progress since which it has only polled, kBusy, or kDone.
  static constexpr std::uint64_t kBusy = 0, kDone = 1, kFirst = 2;
  std::vector<std::deque<Resident>> resident_; ///< by worker: the blocks in progress
  std::vector<Counters> counters_;             ///< by worker
  std::vector<std::atomic<std::uint64_t>> idle_since_;
  Patience patience_ = Patience::endless_loop;
  std::atomic<bool> stalled_{false};
  std::atomic<bool> lost_a_block_{false}; ///< to a fault that the observer took
  std::mutex mutex_;
  std::condition_variable done_;
  unsigned running_ = 0;
  std::optional<FaultError> fault_;
  std::exception_ptr other_error_;
  std::chrono::steady_clock::time_point next_tick_;
};

Liberties &Liberties::current() {
  static Liberties liberties;
  return liberties;
}

int multiprocessors_of(const VirtualGpu &gpu) {
  const Liberties &liberties = Liberties::current();
  if (liberties.multiprocessors)
    return liberties.multiprocessors;
  // A persistent kernel's last blocks then have the last work items, and not a share of all.
  return liberties.first_blocks || liberties.last_blocks ? std::numeric_limits<int>::max()
                                                         : gpu.multiprocessors;
}

Grid::Grid(LaunchContext &launch, const LaunchOptions &options) {
  check_launch(launch);
  run_ = std::make_unique<GridRun>(launch, options);
}

Grid::~Grid() = default;

bool Grid::run(Patience patience) { return run_->run(patience); }

FaultError Grid::endless_wait() const { return run_->endless_wait(); }

Counters Grid::take_counters() { return run_->take_counters(); }

} // namespace ladder::machine
