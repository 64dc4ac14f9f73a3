#include "sanitizer/initialised.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <new>
#include <utility>

namespace ladder::sanitizer {

void InitialisedMemory::track(std::uint64_t begin, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  // Zeros; only touched pages take memory.
  auto *const words = static_cast<std::uint64_t *>(std::calloc(bytes / 64 + 1, sizeof(std::uint64_t)));
  if (!words)
    throw std::bad_alloc();
  by_begin_[begin] = {bytes, std::unique_ptr<std::uint64_t[], Free>(words)};
}

void InitialisedMemory::forget(std::uint64_t begin) {
  const std::lock_guard lock(mutex_);
  if (const auto found = by_begin_.find(begin); found != by_begin_.end()) {
    undefined_.clear(begin, found->second.bytes);
    by_begin_.erase(found);
  }
}

std::pair<const InitialisedMemory::Tracked *, std::uint64_t>
InitialisedMemory::find(std::uint64_t address) const {
  const auto above = by_begin_.upper_bound(address);
  if (above == by_begin_.begin())
    return {nullptr, 0};
  const auto &[begin, tracked] = *std::prev(above);
  return {address - begin < tracked.bytes ? &tracked : nullptr, address - begin};
}

template <typename F>
bool InitialisedMemory::Locked::for_words(std::uint64_t address, std::uint64_t bytes, F f) {
  if (!tracked_ || address - begin_ >= tracked_->bytes) {
    const auto [tracked, offset] = memory_.find(address);
    if (!tracked)
      return true;
    tracked_ = tracked;
    begin_ = address - offset;
  }
  const std::uint64_t end = std::min(address - begin_ + bytes, tracked_->bytes);
  for (std::uint64_t at = address - begin_; at < end;) {
    const std::uint64_t count = std::min(64 - at % 64, end - at);
    if (!f(tracked_->written[at / 64], ~std::uint64_t(0) >> (64 - count) << at % 64))
      return false;
    at += count;
  }
  return true;
}

void InitialisedMemory::Locked::mark(std::uint64_t address, std::uint64_t bytes) {
  for_words(address, bytes, [](std::uint64_t &word, std::uint64_t bits) {
    word |= bits;
    return true;
  });
  if (!memory_.undefined_.empty()) [[unlikely]]
    memory_.undefined_.clear(address, bytes);
}

InitialisedMemory::Locked::Missing InitialisedMemory::Locked::missing(std::uint64_t address, unsigned bytes) {
  Missing missing;
  unsigned done = 0;
  for_words(address, bytes, [&](std::uint64_t word, std::uint64_t bits) {
    missing.unwritten |= std::uint32_t((~word & bits) >> std::countr_zero(bits)) << done;
    done += unsigned(std::popcount(bits));
    return true;
  });
  if (!memory_.undefined_.empty()) [[unlikely]]
    missing.undefined = memory_.undefined_.mask(address, bytes);
  return missing;
}

bool InitialisedMemory::Locked::is_defined(std::uint64_t address, std::uint64_t bytes) {
  return memory_.undefined_.empty() &&
         for_words(address, bytes, [](std::uint64_t word, std::uint64_t bits) { return !(~word & bits); });
}

bool InitialisedMemory::Locked::is_unwritten(std::uint64_t address, std::uint64_t bytes) {
  bool is_tracked = false;
  const bool has_none = for_words(address, bytes, [&](std::uint64_t word, std::uint64_t bits) {
    is_tracked = true;
    return !(word & bits);
  });
  return is_tracked && has_none;
}

void InitialisedMemory::mark(std::uint64_t address, std::uint64_t bytes) {
  Locked(*this).mark(address, bytes);
}

void InitialisedMemory::copy(std::uint64_t destination, std::uint64_t source, std::uint64_t bytes) {
  const auto first = gap(source, bytes);
  if (!first)
    mark(destination, bytes);
  const std::lock_guard lock(mutex_);
  undefined_.copy(destination, source, bytes);
  if (!first)
    return;
  const auto [to, to_offset] = find(destination);
  const auto [from, from_offset] = find(source);
  if (!to || !from)
    return;
  for (std::uint64_t i = 0; i < bytes && to_offset + i < to->bytes && from_offset + i < from->bytes; ++i) {
    const std::uint64_t at = to_offset + i, bit = std::uint64_t(1) << at % 64;
    if (from->written[(from_offset + i) / 64] >> (from_offset + i) % 64 & 1)
      to->written[at / 64] |= bit;
    else
      to->written[at / 64] &= ~bit;
  }
}

std::uint32_t InitialisedMemory::add_source(Source source) {
  const std::lock_guard lock(mutex_);
  sources_.push_back(std::move(source));
  return std::uint32_t(sources_.size() - 1);
}

std::optional<InitialisedMemory::Undefined> InitialisedMemory::undefined(std::uint64_t address,
                                                                         std::uint64_t bytes) const {
  const std::lock_guard lock(mutex_);
  const auto found = undefined_.find(address, bytes);
  if (!found)
    return std::nullopt;
  return Undefined{found->first, found->bytes, sources_[found->origin]};
}

std::optional<InitialisedMemory::Gap> InitialisedMemory::gap(std::uint64_t address,
                                                             std::uint64_t bytes) const {
  const std::lock_guard lock(mutex_);
  const auto [tracked, offset] = find(address);
  if (!tracked)
    return std::nullopt;
  Gap gap;
  for (std::uint64_t at = offset; at < std::min(offset + bytes, tracked->bytes); ++at)
    if (!(tracked->written[at / 64] >> at % 64 & 1)) {
      if (gap.bytes == 0)
        gap.first = address - offset + at;
      ++gap.bytes;
    }
  return gap.bytes ? std::optional(gap) : std::nullopt;
}

} // namespace ladder::sanitizer
