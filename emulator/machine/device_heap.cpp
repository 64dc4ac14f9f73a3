#include "machine/device_heap.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>

namespace ladder::machine {

namespace {

constexpr std::uint64_t kAlignment = 16;

constexpr std::uint64_t round_up(std::uint64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

} // namespace

void DeviceHeap::Free::operator()(std::uint8_t *memory) const { std::free(memory); }

DeviceHeap::~DeviceHeap() {
  if (storage_)
    memory_.remove(begin_);
}

bool DeviceHeap::set_bytes(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (storage_ || bytes > kMostBytes)
    return false;
  bytes_ = bytes;
  return true;
}

std::uint64_t DeviceHeap::allocate(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (bytes == 0 || bytes > bytes_)
    return 0;
  if (!storage_) {
    // Left untouched, so that only used pages cost memory; fails on a host with less memory.
    storage_.reset(static_cast<std::uint8_t *>(std::malloc(bytes_ + kAlignment)));
    if (!storage_)
      return 0;
    begin_ = round_up(reinterpret_cast<std::uintptr_t>(storage_.get()));
    memory_.add({begin_, begin_ + bytes_, true, "device heap"});
    free_.emplace(begin_, bytes_);
  }
  const std::uint64_t wanted = round_up(bytes);
  const auto place =
      std::find_if(free_.begin(), free_.end(), [&](const auto &piece) { return piece.second >= wanted; });
  if (place == free_.end())
    return 0;
  const auto [address, size] = *place;
  free_.erase(place);
  if (size > wanted)
    free_.emplace(address + wanted, size - wanted);
  taken_.emplace(address, wanted);
  return address;
}

bool DeviceHeap::release(std::uint64_t address) {
  const std::lock_guard lock(mutex_);
  const auto taken = taken_.find(address);
  if (taken == taken_.end())
    return false;
  auto piece = free_.emplace(address, taken->second).first;
  taken_.erase(taken);
  // Merge free neighbours.
  if (const auto next = std::next(piece);
      next != free_.end() && piece->first + piece->second == next->first) {
    piece->second += next->second;
    free_.erase(next);
  }
  if (piece != free_.begin())
    if (const auto before = std::prev(piece); before->first + before->second == piece->first) {
      before->second += piece->second;
      free_.erase(piece);
    }
  return true;
}

} // namespace ladder::machine
