// What was found wrong. The same fault at the same place is one finding with a count.
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
  out_of_bounds,
  misaligned,
  read_only,
  uninitialised, ///< a read of memory that nobody has written
  race_warps,    ///< between two warps of a block
  race_lanes,    ///< between lanes of one warp
  race_blocks,   ///< between two blocks
  race_equal,    ///< any of these, where the one that writes writes what is there already
  race_streams,  ///< between work of two streams
  race_host,     ///< between the host and work that it has not waited for
  async_copy,    ///< data of a cp.async used before its wait
  async_read,    ///< memory written that an asynchronous instruction may still read
  proxy,         ///< data of a thread read by the asynchronous proxy without a fence
  swizzle,       ///< a tile read with another swizzle than it was written with
  election,      ///< several lanes issue what one should
  barrier,
  mask, ///< a member mask, or the lanes of a warp-wide instruction, do not fit
  use_after_free,
  host_pointer, ///< a kernel was given an address of the host's
  host_access,  ///< the host touched device memory
  bad_free,     ///< freed twice, or never allocated
  leak,
  bad_copy, ///< wrong size, or a direction that the pointers do not have
  bad_launch,
  unchecked_error,
  unwritten_output, ///< copied back, or left, without ever having been written
  other,            ///< any other fault of a kernel
};

std::string_view kind_name(Kind kind);

/// One of the two who took part.
struct Party {
  std::array<std::uint32_t, 3> block{};
  int warp = -1;           ///< -1: not tied to one
  std::uint32_t lanes = 0; ///< those of the first time
  machine::SourcePlace place;
  std::string opcode;
  int ptx_line = 0;
};

struct Finding {
  Kind kind = Kind::other;
  std::string message; ///< one sentence
  std::string kernel;
  Party who, other; ///< other.warp is -1 without a second party
  std::string space;
  std::uint64_t address = 0;
  bool has_address = false;
  std::string object; ///< the variable or allocation
  std::uint64_t object_offset = 0;
  std::uint32_t bytes = 0;
  std::string host_module; ///< of a call by the host: where its code lies
  std::vector<std::uint64_t> host_offsets;
  std::uint64_t count = 0; ///< accesses of threads
};

/// In keys: no second party.
inline constexpr std::uint32_t kNoInstruction = 0xffffffffu;

class Findings {
public:
  /// Adds `count` to the finding with this key (kind, code, instruction, the other's instruction), which
  /// `make` makes the first time.
  using Key = std::tuple<Kind, const void *, std::uint32_t, std::uint32_t>;
  template <typename Make> void add(const Key &key, std::uint64_t count, Make make) {
    const std::lock_guard lock(mutex_);
    const auto [found, is_new] = by_key_.try_emplace(key, findings_.size());
    if (is_new)
      findings_.push_back(make());
    findings_[found->second].count += count;
  }
  /// One that stands alone.
  void add(Finding finding);
  /// All of them, those of one kind, kernel and pair of lines as one, in the order in which they were found.
  std::vector<Finding> merged() const;

private:
  mutable std::mutex mutex_;
  std::vector<Finding> findings_;
  std::map<Key, std::size_t> by_key_;
};

/// A fault that ended a block, as a finding.
Finding from_fault(const machine::Fault &fault);

} // namespace ladder::sanitizer
