// Shared memory as the async proxy (TMA, tensor cores) sees it: writes by threads that are not yet visible to
// it, its reads, and the swizzle of its writes.
#pragma once

#include "machine/swizzle.h"
#include "sanitizer/clocks.h"
#include "sanitizer/shadow.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

namespace ladder::sanitizer {

/// An asynchronous read and the threads that have waited for it. A write to the memory must be ordered after
/// one of these waits.
struct AsyncRead {
  struct Wait {
    std::uint32_t block;
    int warp;
    std::array<std::uint32_t, 32> epochs; ///< by lane; 0: it has not waited
  };
  Access reader;
  std::vector<Wait> waits;
};
using SharedRead = std::shared_ptr<AsyncRead>;

class AsyncProxy {
public:
  /// The last access by a thread; time 0: none.
  struct Touched {
    Access access;
    std::uint64_t time = 0;
  };

  /// `begin` is the address of the shared memory, and `bytes` its size, or 0 for kernels that do not use the
  /// async proxy. Reads of one of the `parties` complete in order.
  AsyncProxy(std::uint32_t begin, std::uint32_t bytes, std::uint32_t threads, std::size_t parties)
      : begin_(begin), parties_(parties), chunks_(bytes / kChunk + 1), fences_(threads), moments_(threads) {}

  // --- events: threads
  void wrote(std::uint64_t address, unsigned bytes, const Access &write);
  /// ldmatrix read 16 bytes.
  void read_matrix(std::uint64_t address, const Access &read) {
    chunks_[chunk_of(address)].read = {read, ++time_};
  }
  /// A write by a thread of another block, whose fences are not tracked here.
  void forget(std::uint64_t address, unsigned bytes);
  /// fence.proxy.async by `now.thread`
  void fenced(BlockClocks::Moment now);

  // --- events: the async proxy
  /// TMA wrote a box with this swizzle.
  void copied(std::uint64_t address, unsigned bytes, machine::Swizzle swizzle);
  void read(const std::vector<std::uint32_t> &addresses, std::size_t party, const SharedRead &read);

  // --- checks
  const Touched &last_write(std::uint64_t address) const { return chunks_[chunk_of(address)].written; }
  const Touched &last_matrix_read(std::uint64_t address) const { return chunks_[chunk_of(address)].read; }
  /// False if its thread or one of `lanes` of that warp has executed a fence since.
  bool is_unfenced(const Touched &last, int warp, std::uint32_t lanes) const;
  /// True if any other thread has executed a fence between two barriers: it knew of the access, and the async
  /// proxy's thread knows of its fence. `knows(thread, epoch)`.
  template <typename Knows> bool is_fenced_between(const Touched &last, Knows knows) const;
  /// A read whose completion the overwriting thread does not know of; epoch 0: none. `knows(block, thread,
  /// epoch)`.
  template <typename Knows> Access reader(std::uint64_t address, unsigned bytes, Knows knows);
  /// True if the last write to the chunk was by TMA, with another swizzle.
  bool has_other_swizzle(std::uint32_t address, machine::Swizzle swizzle) const;

private:
  struct Fence {
    std::uint64_t time;
    BlockClocks::Moment by;
  };
  /// Kept per thread. A reader is behind a thread by the buffers of a ring at most.
  static constexpr std::size_t kFences = 16;
  struct Chunk {
    Touched written;          ///< by a thread, since the last copy
    Touched read;             ///< by ldmatrix
    std::uint8_t swizzle = 0; ///< 1 + the swizzle mode of the last copy to it; 0: none
  };

  std::size_t chunk_of(std::uint64_t address) const { return (address - begin_) / kChunk; }

  std::uint64_t begin_;
  std::size_t parties_;
  std::vector<Chunk> chunks_;
  std::vector<SharedRead> reads_;          ///< [chunk][party]: the last read; empty before the first
  std::vector<std::uint64_t> fences_;      ///< by thread: time of its last fence
  std::vector<std::deque<Fence>> moments_; ///< by thread: its last fences
  std::uint64_t time_ = 0;
};

template <typename Knows> bool AsyncProxy::is_fenced_between(const Touched &last, Knows knows) const {
  const auto orders = [&](const Fence &fence) {
    return fence.time > last.time && fence.by.knows(last.access.thread, last.access.epoch) &&
           knows(fence.by.thread, fence.by.epoch);
  };
  return std::ranges::any_of(moments_,
                             [&](const auto &fences) { return std::ranges::any_of(fences, orders); });
}

template <typename Knows> Access AsyncProxy::reader(std::uint64_t address, unsigned bytes, Knows knows) {
  if (reads_.empty())
    return {};
  const auto is_over = [&](const AsyncRead &read) {
    for (const AsyncRead::Wait &wait : read.waits)
      for (std::uint32_t lane = 0; lane < 32; ++lane)
        if (wait.epochs[lane] && knows(wait.block, std::uint32_t(wait.warp) * 32 + lane, wait.epochs[lane]))
          return true;
    return false;
  };
  for (std::size_t chunk = chunk_of(address); chunk <= chunk_of(address + bytes - 1); ++chunk)
    for (std::size_t party = 0; party < parties_; ++party) {
      SharedRead &read = reads_[chunk * parties_ + party];
      if (!read)
        continue;
      if (!is_over(*read))
        return read->reader;
      read = nullptr; // the next write must be ordered after this one
    }
  return {};
}

} // namespace ladder::sanitizer
