// Launches of kernels by the threads of a grid, which the grid's end performs (dynamic parallelism).
#pragma once

#include "runtime/work/cuda_api.h"
#include "runtime/work/device_work.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace ladder::runtime {

class ChildLaunches : public DeviceWork {
public:
  /// Levels of grids that launch grids, the host's counted.
  static constexpr int kMostLevels = 24;
  /// Bytes of arguments that a thread may pass.
  static constexpr std::uint64_t kArgumentBytes = 4096;

  /// `pending`: launches of earlier grids that have not begun.
  ChildLaunches(const LaunchRequest &parent, std::size_t pending, KernelOfModule kernels);
  ~ChildLaunches() override;

  std::deque<Piece> take() override;
  std::uint32_t prepare(Thread thread, const Configuration &configuration, std::uint64_t &buffer) override;
  std::uint32_t launch(Thread thread, std::uint64_t buffer, std::uint64_t stream) override;
  std::uint32_t copy(Thread thread, std::uint64_t destination, std::uint64_t source, std::uint64_t bytes,
                     std::uint64_t stream) override;
  std::uint32_t fill(Thread thread, std::uint64_t destination, int value, std::uint64_t bytes,
                     std::uint64_t stream) override;
  std::uint32_t create_stream(Thread thread, std::uint32_t flags, std::uint64_t &stream) override;
  std::uint32_t create_event(Thread thread, std::uint32_t flags, std::uint64_t &event) override;
  std::uint32_t use(Thread thread, std::uint64_t event, std::uint64_t stream) override;
  std::uint32_t destroy(Thread thread, std::uint64_t event_or_stream) override;
  std::uint32_t last_error(Thread thread, bool forget) override;
  std::uint64_t error_words(std::uint32_t error, bool name) override;

private:
  struct Free {
    void operator()(void *memory) const;
  };
  using PiecesOfBlocks = std::map<std::uint64_t, std::vector<Piece>>;

  std::uint32_t guarded(Thread thread, const char *what, const std::function<void()> &body);
  LaunchRequest request_of(const Configuration &configuration) const;
  void require_stream(std::uint64_t stream) const;
  std::uint64_t reserve_buffer();
  void add(Thread thread, Piece piece, bool at_the_end);

  const std::shared_ptr<const machine::Code> parent_;
  const int level_;
  const KernelOfModule kernels_;
  const std::size_t room_; ///< launches that may still be prepared

  std::mutex mutex_; ///< guards what follows
  std::unique_ptr<std::uint8_t, Free> buffers_;
  std::vector<LaunchRequest> prepared_; ///< by number of the buffer
  PiecesOfBlocks pieces_, tail_;
  std::set<std::uint64_t> handles_; ///< of streams and events
  std::uint64_t last_handle_;
  std::map<Thread, cudaError_t> errors_;
  std::map<std::pair<std::uint32_t, bool>, std::string>
      words_; ///< names and texts of errors that kernels read
};

} // namespace ladder::runtime
