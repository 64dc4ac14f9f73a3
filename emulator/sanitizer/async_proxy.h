// Shared memory between threads and the asynchronous proxy (TMA, tensor cores): what threads have written and
// not yet made visible to it, what it is still reading, and in which swizzle it wrote.
#pragma once

#include "machine/swizzle.h"
#include "sanitizer/shadow.h"

#include <cstdint>
#include <map>
#include <vector>

namespace ladder::sanitizer {

class AsyncProxy {
public:
  /// `shared_end` is 0 for kernels that have no use for it.
  AsyncProxy(std::uint32_t shared_end, std::uint32_t threads)
      : chunks_(shared_end / kChunk + 1), fences_(threads) {}

  // --- what threads do
  void wrote(std::uint64_t address, unsigned bytes, const Access &write);
  /// fence.proxy.async
  void fenced(std::uint32_t thread) { fences_[thread] = ++time_; }

  // --- what the proxy does
  /// TMA wrote a box with this swizzle.
  void copied(std::uint64_t address, unsigned bytes, machine::Swizzle swizzle);
  /// A read that goes on until `end` is called with what this returns.
  std::uint64_t begin_read(std::vector<std::uint32_t> addresses, const Access &reader);
  void end_read(std::uint64_t number);

  // --- what is wrong
  /// The write of a thread that has not been fenced, by itself or by one of `lanes` of the reading warp;
  /// epoch 0: none.
  Access unfenced(std::uint32_t address, int warp, std::uint32_t lanes) const;
  /// A read that is going on; epoch 0: none.
  Access reader(std::uint64_t address, unsigned bytes) const;
  std::vector<Access> going_on() const;
  /// Whether TMA wrote the chunk last, and with another swizzle.
  bool has_other_swizzle(std::uint32_t address, machine::Swizzle swizzle) const;

private:
  struct Chunk {
    Access write;            ///< the last one by a thread
    std::uint64_t time = 0;  ///< of that write; 0: none since the last copy
    std::uint64_t reads = 0; ///< going on
    std::uint64_t last_read = 0;
    std::uint8_t swizzle = 0; ///< 1 + mode of the copy that wrote it last; 0: none did
  };
  struct Read {
    std::vector<std::uint32_t> addresses;
    Access reader;
  };

  std::vector<Chunk> chunks_;
  std::vector<std::uint64_t> fences_; ///< by thread: when it last executed one
  std::map<std::uint64_t, Read> reads_;
  std::uint64_t time_ = 0, next_read_ = 1;
};

} // namespace ladder::sanitizer
