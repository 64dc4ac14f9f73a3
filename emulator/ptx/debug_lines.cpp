#include "ptx/debug_lines.h"

#include <algorithm>
#include <functional>

namespace ladder::ptx {

namespace {

/// Longest chain kept; longer ones lose their middle. Real chains are far shorter.
constexpr int kLongestChain = 64;

std::size_t mix(std::size_t seed, std::uint64_t value) {
  return seed ^ (std::hash<std::uint64_t>()(value) + 0x9e3779b97f4a7c15u + (seed << 6) + (seed >> 2));
}

} // namespace

std::size_t DebugLines::PlaceHash::operator()(const Place &place) const {
  return mix(mix(std::size_t(place.file), std::uint64_t(place.line)), std::uint64_t(place.column));
}

std::size_t DebugLines::KeyHash::operator()(const std::pair<Link, int> &key) const {
  const auto &[link, caller] = key;
  return mix(mix(mix(PlaceHash()(link.place), std::hash<std::string_view>()(link.label)), link.offset),
             std::uint64_t(caller));
}

int DebugLines::caller_of(const LocDirective &loc) {
  const Place place{loc.at_file, loc.at_line, loc.at_column};
  const auto found = latest_.find(place);
  if (found != latest_.end())
    return found->second;
  return latest_[place] = enter({place, {}, 0}, -1);
}

int DebugLines::add(const LocDirective &loc) {
  const Place place{loc.file, loc.line, loc.column};
  const Link link{place, loc.function_label, loc.function_offset};
  if (loc.line == 0) {
    if (loc.is_inlined)
      return current_ = caller_of(loc);
    after_unknown_ = true;
    return current_;
  }
  if (!loc.is_inlined && after_unknown_ && current_ >= 0 && locations_[current_].first.place == place) {
    // The compiler returns to the previous position and omits its inlined_at.
    after_unknown_ = false;
    return current_;
  }
  after_unknown_ = false;
  current_ = enter(link, loc.is_inlined ? caller_of(loc) : -1);
  latest_[place] = current_;
  return current_;
}

int DebugLines::enter(const Link &link, int caller) {
  // The call site of a helper may be its own position (a macro, a lambda). If the link is in the chain
  // already, reuse the chain up to it.
  for (int outer = caller; outer >= 0; outer = locations_[outer].second)
    if (locations_[outer].first == link)
      return outer;
  if (caller >= 0 && depth_[caller] >= kLongestChain)
    caller = locations_[caller].second;
  const auto [entry, is_new] = known_.try_emplace({link, caller}, int(locations_.size()));
  if (is_new) {
    locations_.push_back({link, caller});
    depth_.push_back(caller < 0 ? 1 : depth_[caller] + 1);
  }
  return entry->second;
}

void DebugLines::add_bytes(std::uint64_t value, unsigned count) {
  for (unsigned i = 0; i < count; ++i)
    strings_ += static_cast<char>(value >> (8 * i));
}

std::string DebugLines::name(const Link &link) const {
  const auto label = labels_.find(link.label);
  if (link.label.empty() || label == labels_.end() || link.offset >= strings_.size() - label->second)
    return {};
  const std::size_t begin = label->second + link.offset;
  return strings_.substr(begin, std::min(strings_.find('\0', begin), strings_.size()) - begin);
}

std::vector<SourceLocation> DebugLines::finish() {
  std::vector<SourceLocation> result;
  result.reserve(locations_.size());
  for (const auto &[link, caller] : locations_) {
    SourceLocation location;
    location.chain.push_back({link.place.file, link.place.line, link.place.column, name(link)});
    if (caller >= 0) // callers precede callees, so theirs is complete
      location.chain.insert(location.chain.end(), result[caller].chain.begin(), result[caller].chain.end());
    result.push_back(std::move(location));
  }
  return result;
}

} // namespace ladder::ptx
