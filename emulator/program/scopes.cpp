#include "program/scopes.h"

namespace ladder::program {

void Scopes::open() {
  const std::uint32_t index = ++opened_;
  if (index == scopes_.size()) {
    scopes_.emplace_back();
    scopes_.back().parent = current_;
  }
  current_ = index;
}

void Scopes::restart() { current_ = opened_ = 0; }

bool Scopes::declare(std::string_view name, const Entity &entity) {
  return scopes_[current_].names.emplace(name, entity).second;
}

bool Scopes::declare_range(std::string_view prefix, std::uint32_t count, const Entity &model) {
  return scopes_[current_].ranges.emplace(prefix, Range{count, model}).second;
}

const Entity *Scopes::in_range(const Scope &scope, std::string_view name) {
  // %r12 may be number 12 of %r<N> or number 2 of %r1<N>: try every split, the longest number first.
  std::size_t split = name.size();
  while (split > 0 && name[split - 1] >= '0' && name[split - 1] <= '9' && name.size() - split < 10)
    --split;
  for (; split < name.size(); ++split) {
    if (name[split] == '0' && split + 1 < name.size())
      continue; // %r01 is not in %r<N>
    const auto found = scope.ranges.find(name.substr(0, split));
    if (found == scope.ranges.end())
      continue;
    std::uint64_t number = 0;
    for (char c : name.substr(split))
      number = number * 10 + std::uint64_t(c - '0');
    if (number < found->second.count)
      return &found->second.model;
  }
  return nullptr;
}

} // namespace ladder::program
