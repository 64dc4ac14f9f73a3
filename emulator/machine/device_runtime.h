// What kernels ask of CUDA's device runtime: launches of kernels, copies and fills that follow them in a
// stream (dynamic parallelism).
#pragma once

#include "machine/block.h"

#include <cstdint>
#include <string>

namespace ladder::machine {

/// Implemented by the runtime for one grid. Blocks on several host threads call it. Each function returns
/// CUDA's error code, 0 for success, which the calling thread can ask for again.
class DeviceRuntime {
public:
  /// A thread of the grid: the linear index of its block, and its number in the block.
  struct Thread {
    std::uint64_t block;
    std::uint32_t number;
    auto operator<=>(const Thread &) const = default;
  };
  struct Configuration {
    std::uint64_t kernel; ///< address of the function
    Dim3 grid, block;
    std::uint32_t shared_bytes;
  };

  virtual ~DeviceRuntime() = default;
  /// Sets `buffer` to memory for the arguments of a launch, which the thread fills in.
  virtual std::uint32_t prepare(Thread thread, const Configuration &configuration, std::uint64_t &buffer) = 0;
  /// Launches with the arguments that the buffer holds now.
  virtual std::uint32_t launch(Thread thread, std::uint64_t buffer, std::uint64_t stream) = 0;
  virtual std::uint32_t copy(Thread thread, std::uint64_t destination, std::uint64_t source,
                             std::uint64_t bytes, std::uint64_t stream) = 0;
  virtual std::uint32_t fill(Thread thread, std::uint64_t destination, int value, std::uint64_t bytes,
                             std::uint64_t stream) = 0;
  virtual std::uint32_t create_stream(Thread thread, std::uint32_t flags, std::uint64_t &stream) = 0;
  virtual std::uint32_t create_event(Thread thread, std::uint32_t flags, std::uint64_t &event) = 0;
  /// Each event and stream must be one that the grid has created, or a stream that CUDA names. Work is
  /// performed in the order of its calls, so events order nothing else.
  virtual std::uint32_t use(Thread thread, std::uint64_t event, std::uint64_t stream) = 0;
  virtual std::uint32_t destroy(Thread thread, std::uint64_t event_or_stream) = 0;
  virtual std::uint32_t last_error(Thread thread, bool forget) = 0;
  /// The address of an error's name or text, which kernels may read.
  virtual std::uint64_t error_words(std::uint32_t error, bool name) = 0;
};

} // namespace ladder::machine
