#include "sanitizer/async_proxy.h"

#include <bit>

namespace ladder::sanitizer {

void AsyncProxy::wrote(std::uint64_t address, unsigned bytes, const Access &write) {
  ++time_;
  for (std::uint64_t chunk = address / kChunk; chunk <= (address + bytes - 1) / kChunk; ++chunk) {
    chunks_[chunk].write = write;
    chunks_[chunk].time = time_;
    chunks_[chunk].swizzle = 0;
  }
}

void AsyncProxy::copied(std::uint64_t address, unsigned bytes, machine::Swizzle swizzle) {
  for (std::uint64_t chunk = address / kChunk; chunk <= (address + bytes - 1) / kChunk; ++chunk) {
    chunks_[chunk].time = 0;
    chunks_[chunk].swizzle = std::uint8_t(1 + std::uint32_t(swizzle));
  }
}

std::uint64_t AsyncProxy::begin_read(std::vector<std::uint32_t> addresses, const Access &reader) {
  for (const std::uint32_t address : addresses) {
    ++chunks_[address / kChunk].reads;
    chunks_[address / kChunk].last_read = next_read_;
  }
  reads_.emplace(next_read_, Read{std::move(addresses), reader});
  return next_read_++;
}

void AsyncProxy::end_read(std::uint64_t number) {
  const auto found = reads_.find(number);
  if (found == reads_.end())
    return;
  for (const std::uint32_t address : found->second.addresses)
    --chunks_[address / kChunk].reads;
  reads_.erase(found);
}

Access AsyncProxy::unfenced(std::uint32_t address, int warp, std::uint32_t lanes) const {
  const Chunk &chunk = chunks_[address / kChunk];
  if (chunk.time == 0 || fences_[chunk.write.thread] > chunk.time)
    return {};
  for (; lanes; lanes &= lanes - 1)
    if (fences_[std::size_t(warp * 32 + std::countr_zero(lanes))] > chunk.time)
      return {};
  return chunk.write;
}

Access AsyncProxy::reader(std::uint64_t address, unsigned bytes) const {
  if (reads_.empty())
    return {};
  for (std::uint64_t chunk = address / kChunk; chunk <= (address + bytes - 1) / kChunk; ++chunk)
    if (chunks_[chunk].reads) {
      const auto found = reads_.find(chunks_[chunk].last_read);
      return found == reads_.end() ? reads_.begin()->second.reader : found->second.reader;
    }
  return {};
}

std::vector<Access> AsyncProxy::going_on() const {
  std::vector<Access> readers;
  for (const auto &[number, read] : reads_)
    readers.push_back(read.reader);
  return readers;
}

bool AsyncProxy::has_other_swizzle(std::uint32_t address, machine::Swizzle swizzle) const {
  const std::uint8_t mode = chunks_[address / kChunk].swizzle;
  return mode != 0 && mode != 1 + std::uint32_t(swizzle);
}

} // namespace ladder::sanitizer
