// Bulk copies in flight, to and from shared memory.
#pragma once

#include "machine/swizzle.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <utility>
#include <vector>

namespace ladder::machine {

class Block;

/// Combines `bytes` bytes from `from` into `to`: sum, minimum, ...
using Combine = void (*)(std::uint8_t *to, const std::uint8_t *from, std::size_t bytes);

/// Layout of data in shared memory: swizzled lines that start `pitch` bytes apart.
struct SharedPlace {
  std::uint32_t address = 0;
  std::uint32_t line_bytes = 0, pitch = 0; ///< 0: one line
  Swizzle swizzle = Swizzle::none;

  /// Shared address of a byte of the data. An aligned 16-byte chunk of a line stays contiguous.
  std::uint32_t of(std::uint32_t byte) const {
    const std::uint32_t offset = line_bytes ? byte / line_bytes * pitch + byte % line_bytes : byte;
    return swizzled(address + offset, swizzle);
  }
  /// Bytes from the first byte to the end of the last line.
  std::uint32_t extent(std::uint32_t bytes) const {
    return line_bytes ? (bytes / line_bytes - 1) * pitch + line_bytes : bytes;
  }
};

/// Data in flight to a block's shared memory; lands when a thread looks at the mbarrier.
struct BulkCopyInFlight {
  SharedPlace place; ///< in the block's shared memory, like the mbarrier
  std::uint32_t mbarrier = 0;
  std::vector<std::uint8_t> data;
  Combine combine = nullptr;                 ///< nullptr: a copy
  const std::uint8_t *late_source = nullptr; ///< shared memory to read when the data lands
};

/// Data in flight from shared memory: read when its thread waits for the read, written when it waits for
/// completion.
struct BulkStore {
  SharedPlace place;
  std::uint32_t bytes = 0;
  std::function<void(const std::uint8_t *data)> write;
  std::vector<std::uint8_t> data;
  bool is_read = false;
};

/// The bulk groups of one thread.
class BulkGroups {
public:
  void add(BulkStore store) { open_.push_back(std::move(store)); }
  void commit();
  /// Completes all but the newest `pending` groups; with `reads_only`, only reads their sources.
  void wait(Block &block, std::size_t pending, bool reads_only);
  /// At the end of the block: everything lands, committed or not.
  void finish(Block &block);

private:
  using Group = std::vector<BulkStore>;
  static void complete(Block &block, Group &group, bool reads_only);

  Group open_;
  std::deque<Group> groups_;
};

} // namespace ladder::machine
