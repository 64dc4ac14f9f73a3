// Findings of the sanitizer. The same fault at the same place is one finding with a count.
#pragma once

#include "machine/fault.h"
#include "machine/source_place.h"

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

namespace ladder::sanitizer {

enum class Kind {
#define KIND(kind, name) kind,
#include "sanitizer/kinds.def"
};

std::string_view kind_name(Kind kind);

/// One of the two parties to a fault.
struct Party {
  std::array<std::uint32_t, 3> block{};
  int warp = -1;           ///< -1: not specific to one
  std::uint32_t lanes = 0; ///< lanes of the first occurrence
  machine::SourcePlace place;
  std::string opcode;
  int ptx_line = 0;
};

struct Finding {
  Kind kind = Kind::other;
  std::string message; ///< one sentence
  std::string kernel;
  Party who, other; ///< other.warp is -1 if there is no second party
  std::string space;
  std::uint64_t address = 0;
  bool has_address = false;
  std::string object;             ///< the variable or allocation
  std::int64_t object_offset = 0; ///< below 0: before it
  std::uint32_t bytes = 0;
  std::string host_module; ///< calls by the host: the module of its code
  std::vector<std::uint64_t> host_offsets;
  std::uint64_t count = 0; ///< accesses by threads
};

/// In keys: there is no second party.
inline constexpr std::uint32_t kNoInstruction = 0xffffffffu;

class Findings {
public:
  /// Adds `count` to the finding with this key (kind, code, instruction, the other party's instruction);
  /// `make` creates it the first time.
  using Key = std::tuple<Kind, const void *, std::uint32_t, std::uint32_t>;
  template <typename Make> void add(const Key &key, std::uint64_t count, Make make) {
    const std::lock_guard lock(mutex_);
    const auto [found, is_new] = by_key_.try_emplace(key, findings_.size());
    if (is_new)
      findings_.push_back(make());
    findings_[found->second].count += count;
  }
  /// Adds a finding without a key.
  void add(Finding finding);
  /// The number of distinct findings so far; another count for one of them does not change it.
  std::size_t size() const {
    const std::lock_guard lock(mutex_);
    return findings_.size();
  }
  /// All findings in order of discovery; those of one kind, kernel and pair of lines are merged.
  std::vector<Finding> merged() const;

private:
  mutable std::mutex mutex_;
  std::vector<Finding> findings_;
  std::map<Key, std::size_t> by_key_;
};

/// Converts the fault that ended a block.
Finding from_fault(const machine::Fault &fault);

} // namespace ladder::sanitizer
