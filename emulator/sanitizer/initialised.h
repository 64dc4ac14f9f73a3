// Tracks which bytes of allocations have been written, by a kernel or by the host.
#pragma once

#include "sanitizer/findings.h"
#include "sanitizer/undefined.h"

#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace ladder::sanitizer {

/// Untracked memory counts as written.
class InitialisedMemory {
public:
  /// Starts tracking [begin, begin + bytes) as unwritten.
  void track(std::uint64_t begin, std::uint64_t bytes);
  void forget(std::uint64_t begin);
  void mark(std::uint64_t address, std::uint64_t bytes);
  /// After a copy, the destination is written where the source was.
  void copy(std::uint64_t destination, std::uint64_t source, std::uint64_t bytes);
  struct Gap {
    std::uint64_t first = 0; ///< address of the first unwritten byte
    std::uint64_t bytes = 0; ///< number of unwritten bytes
  };
  std::optional<Gap> gap(std::uint64_t address, std::uint64_t bytes) const;

  /// A store of values that derive from memory that was never written.
  struct Source {
    std::string kernel;
    Party store, load; ///< the load brought them
  };
  /// Returns the source's number.
  std::uint32_t add_source(Source source);
  struct Undefined {
    std::uint64_t first = 0, bytes = 0; ///< address of the first undefined byte, number of all
    Source source;                      ///< of the first
  };
  /// Bytes that were written, with undefined values.
  std::optional<Undefined> undefined(std::uint64_t address, std::uint64_t bytes) const;

  /// For many accesses in a row: holds the lock during its lifetime.
  class Locked;

private:
  struct Free {
    void operator()(std::uint64_t *words) const { std::free(words); }
  };
  struct Tracked {
    std::uint64_t bytes;
    std::unique_ptr<std::uint64_t[], Free> written; ///< one bit per byte
  };
  /// The tracked memory that contains the address, and the address's offset in it.
  std::pair<const Tracked *, std::uint64_t> find(std::uint64_t address) const;

  mutable std::mutex mutex_;
  std::map<std::uint64_t, Tracked> by_begin_;
  UndefinedBytes undefined_; ///< their origins are indices into sources_
  std::vector<Source> sources_;
};

class InitialisedMemory::Locked {
public:
  explicit Locked(InitialisedMemory &memory) : memory_(memory), lock_(memory.mutex_) {}
  void mark(std::uint64_t address, std::uint64_t bytes);
  /// True if no byte has been written.
  bool is_unwritten(std::uint64_t address, std::uint64_t bytes);
  /// True if no byte is unwritten or undefined.
  bool is_defined(std::uint64_t address, std::uint64_t bytes);
  /// Two masks for at most 32 bytes: those never written, and those written with an undefined value.
  struct Missing {
    std::uint32_t unwritten = 0, undefined = 0;
  };
  Missing missing(std::uint64_t address, unsigned bytes);
  void set_undefined(std::uint64_t address, unsigned bytes, std::uint32_t mask, std::uint32_t source) {
    memory_.undefined_.set(address, bytes, mask, source);
  }

private:
  /// Calls f(word, mask of its bits) for the tracked bytes; stops once it returns false.
  template <typename F> bool for_words(std::uint64_t address, std::uint64_t bytes, F f);

  InitialisedMemory &memory_;
  std::lock_guard<std::mutex> lock_;
  const Tracked *tracked_ = nullptr; ///< the last range found
  std::uint64_t begin_ = 0;          ///< its start
};

} // namespace ladder::sanitizer
