// Shared memory as the async proxy (TMA, tensor cores) sees it: writes by threads that are not yet visible to
// it, its reads in progress, and the swizzle of its writes.
#pragma once

#include "machine/swizzle.h"
#include "sanitizer/shadow.h"

#include <cstdint>
#include <map>
#include <vector>

namespace ladder::sanitizer {

class AsyncProxy {
public:
  /// `shared_end` is 0 for kernels that do not use the async proxy.
  AsyncProxy(std::uint32_t shared_end, std::uint32_t threads)
      : chunks_(shared_end / kChunk + 1), fences_(threads) {}

  // --- what threads do
  void wrote(std::uint64_t address, unsigned bytes, const Access &write);
  /// fence.proxy.async
  void fenced(std::uint32_t thread) { fences_[thread] = ++time_; }

  // --- what the proxy does
  /// TMA wrote a box with this swizzle.
  void copied(std::uint64_t address, unsigned bytes, machine::Swizzle swizzle);
  /// Starts a read; it lasts until end_read is called with the returned number.
  std::uint64_t begin_read(std::vector<std::uint32_t> addresses, const Access &reader);
  void end_read(std::uint64_t number);

  // --- what is wrong
  /// The last write by a thread if neither that thread nor one of `lanes` of the reading warp has fenced it;
  /// epoch 0: none.
  Access unfenced(std::uint32_t address, int warp, std::uint32_t lanes) const;
  /// A read in progress; epoch 0: none.
  Access reader(std::uint64_t address, unsigned bytes) const;
  std::vector<Access> going_on() const;
  /// True if TMA wrote the chunk last, with another swizzle.
  bool has_other_swizzle(std::uint32_t address, machine::Swizzle swizzle) const;

private:
  struct Chunk {
    Access write;            ///< last write by a thread
    std::uint64_t time = 0;  ///< time of that write; 0: none since the last copy
    std::uint64_t reads = 0; ///< reads in progress
    std::uint64_t last_read = 0;
    std::uint8_t swizzle = 0; ///< 1 + mode of the copy that wrote it last; 0: none did
  };
  struct Read {
    std::vector<std::uint32_t> addresses;
    Access reader;
  };

  std::vector<Chunk> chunks_;
  std::vector<std::uint64_t> fences_; ///< by thread: time of its last fence
  std::map<std::uint64_t, Read> reads_;
  std::uint64_t time_ = 0, next_read_ = 1;
};

} // namespace ladder::sanitizer
