#include "machine/bulk.h"

#include "machine/block.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace ladder::machine {

void BulkGroups::commit() { groups_.push_back(std::exchange(open_, {})); }

void BulkGroups::complete(Block &block, Group &group, bool reads_only) {
  for (BulkStore &store : group) {
    if (!store.is_read) {
      store.is_read = true;
      store.data.resize(store.bytes);
      constexpr std::uint32_t kChunk = 16;
      for (std::uint32_t i = 0; i < store.bytes; i += kChunk)
        std::memcpy(store.data.data() + i, block.shared_base() + store.place.of(i),
                    std::min(kChunk, store.bytes - i));
    }
    if (!reads_only)
      store.write(store.data.data());
  }
}

void BulkGroups::wait(Block &block, std::size_t pending, bool reads_only) {
  const std::size_t complete_groups = groups_.size() > pending ? groups_.size() - pending : 0;
  for (std::size_t i = 0; i < complete_groups; ++i)
    complete(block, groups_[i], reads_only);
  if (!reads_only)
    groups_.erase(groups_.begin(), groups_.begin() + std::ptrdiff_t(complete_groups));
}

void BulkGroups::finish(Block &block) {
  commit();
  wait(block, 0, false);
}

} // namespace ladder::machine
