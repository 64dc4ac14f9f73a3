#include "sanitizer/async_proxy.h"

#include <bit>
#include <utility>

namespace ladder::sanitizer {

void AsyncProxy::wrote(std::uint64_t address, unsigned bytes, const Access &write) {
  ++time_;
  for (std::size_t chunk = chunk_of(address); chunk <= chunk_of(address + bytes - 1); ++chunk) {
    chunks_[chunk].written = {write, time_};
    chunks_[chunk].swizzle = 0;
  }
}

void AsyncProxy::fenced(BlockClocks::Moment now) {
  fences_[now.thread] = ++time_;
  std::deque<Fence> &fences = moments_[now.thread];
  if (fences.size() == kFences)
    fences.pop_front();
  fences.push_back({time_, std::move(now)});
}

void AsyncProxy::copied(std::uint64_t address, unsigned bytes, machine::Swizzle swizzle) {
  for (std::size_t chunk = chunk_of(address); chunk <= chunk_of(address + bytes - 1); ++chunk) {
    chunks_[chunk].written.time = 0;
    chunks_[chunk].swizzle = std::uint8_t(1 + std::uint32_t(swizzle));
  }
}

void AsyncProxy::forget(std::uint64_t address, unsigned bytes) {
  for (std::size_t chunk = chunk_of(address); chunk <= chunk_of(address + bytes - 1); ++chunk) {
    chunks_[chunk].written.time = 0;
    chunks_[chunk].swizzle = 0;
  }
}

void AsyncProxy::read(const std::vector<std::uint32_t> &addresses, std::size_t party,
                      const SharedRead &read) {
  reads_.resize(chunks_.size() * parties_);
  for (const std::uint32_t address : addresses)
    reads_[chunk_of(address) * parties_ + party] = read;
}

bool AsyncProxy::is_unfenced(const Touched &last, int warp, std::uint32_t lanes) const {
  if (last.time == 0 || fences_[last.access.thread] > last.time)
    return false;
  for (; lanes; lanes &= lanes - 1)
    if (fences_[std::size_t(warp * 32 + std::countr_zero(lanes))] > last.time)
      return false;
  return true;
}

bool AsyncProxy::has_other_swizzle(std::uint32_t address, machine::Swizzle swizzle) const {
  const std::uint8_t mode = chunks_[chunk_of(address)].swizzle;
  return mode != 0 && mode != 1 + std::uint32_t(swizzle);
}

} // namespace ladder::sanitizer
