// Bulk copies under way, to shared memory and out of it.
#pragma once

#include "machine/swizzle.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

namespace ladder::machine {

class Block;

/// Adds (or takes the minimum, ...) of `bytes` bytes into `to`.
using Combine = void (*)(std::uint8_t *to, const std::uint8_t *from, std::size_t bytes);

/// How data lies in shared memory: lines that begin `pitch` bytes apart, swizzled.
struct SharedPlace {
  std::uint32_t address = 0;
  std::uint32_t line_bytes = 0, pitch = 0; ///< 0: one line
  Swizzle swizzle = Swizzle::none;

  /// Of a byte of the data; 16 bytes that begin at a multiple of 16 in their line stay together.
  std::uint32_t of(std::uint32_t byte) const {
    const std::uint32_t offset = line_bytes ? byte / line_bytes * pitch + byte % line_bytes : byte;
    return swizzled(address + offset, swizzle);
  }
  /// From the first byte to the end of the last line.
  std::uint32_t extent(std::uint32_t bytes) const {
    return line_bytes ? (bytes / line_bytes - 1) * pitch + line_bytes : bytes;
  }
};

/// Data on its way to a block's shared memory; it lands when somebody looks at the mbarrier.
struct BulkCopyInFlight {
  SharedPlace place; ///< in the block's shared memory, as is the mbarrier
  std::uint32_t mbarrier = 0;
  std::vector<std::uint8_t> data;
  Combine combine = nullptr;                 ///< nullptr: a copy
  const std::uint8_t *late_source = nullptr; ///< shared memory that is read when the data lands
};

/// Data on its way out of shared memory: read when its thread waits for that, written when it waits for all.
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
  /// Completes all but the newest `pending` groups; with `reads_only` only their sources are read.
  void wait(Block &block, std::size_t pending, bool reads_only);
  /// The end of the block: everything lands, committed or not.
  void finish(Block &block);

private:
  using Group = std::vector<BulkStore>;
  static void complete(Block &block, Group &group, bool reads_only);

  Group open_;
  std::deque<Group> groups_;
};

} // namespace ladder::machine
