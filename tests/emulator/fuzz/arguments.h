// Arguments for CUDA runtime calls: mostly valid ones, and some that a hostile program would pass.
#pragma once

#include "mutate.h"

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>

namespace fuzz {

class Arguments : public Random {
public:
  using Random::Random;

  /// True once in n times.
  bool one_in(std::size_t n) { return below(n) == 0; }

  template <typename T, std::size_t n> T one_of(const T (&values)[n]) { return values[below(n)]; }

  std::size_t hostile_size() {
    constexpr std::size_t kMost = std::numeric_limits<std::size_t>::max();
    static constexpr std::size_t sizes[] = {kMost,
                                            kMost - 1,
                                            kMost - 511,
                                            kMost / 2,
                                            kMost / 2 + 1,
                                            kMost / 512,
                                            kMost / 512 + 1,
                                            std::size_t(1) << 44,
                                            std::size_t(1) << 40,
                                            std::size_t(1) << 47};
    return one_of(sizes);
  }

  /// A size around the available `room`; a hostile one only if `hostile`.
  std::size_t size(std::size_t room, bool hostile = true) {
    switch (below(hostile ? 8 : 5)) {
    case 0:
      return 0;
    case 1:
      return room ? 1 : 0;
    case 2:
    case 3:
      return below(room + 1);
    case 4:
      return room;
    case 5:
      return room - 1;
    case 6:
      return room + 1;
    default:
      return hostile_size();
    }
  }

  int integer() {
    static constexpr int numbers[] = {0,
                                      1,
                                      2,
                                      3,
                                      7,
                                      31,
                                      32,
                                      33,
                                      100,
                                      1023,
                                      1024,
                                      65536,
                                      -1,
                                      -2,
                                      64,
                                      128,
                                      std::numeric_limits<int>::max(),
                                      std::numeric_limits<int>::min()};
    return one_of(numbers);
  }

  /// A value of a C enumeration with `count` values, sometimes an invalid one.
  template <typename Enum> Enum enumerator(std::size_t count) {
    return static_cast<Enum>(one_in(8) ? integer() : int(below(count)));
  }

  /// An address at which this process has nothing mapped.
  void *wild_pointer() {
    static constexpr std::uintptr_t addresses[] = {0x1,
                                                   0x8,
                                                   0xdead0000,
                                                   0x7ffffffff000,
                                                   0x0100000000000000, // where shared memory may be mapped
                                                   0x0200000000000000,
                                                   0x8000000000000000,
                                                   0xffffffffffffff00,
                                                   0xffffffffffffffff};
    return reinterpret_cast<void *>(one_of(addresses));
  }
};

} // namespace fuzz
