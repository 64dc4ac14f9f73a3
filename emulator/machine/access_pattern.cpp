#include "machine/access_pattern.h"

#include <algorithm>
#include <type_traits>

namespace ladder::machine {

template <class Word>
void AccessPattern::remember(const Word *addresses, int lanes, unsigned bytes, Word period, Word *relative) {
  using Signed = std::make_signed_t<Word>;
  const Word base = addresses[0] & ~(period - 1);
  bool is_same = true, is_dense = true;
  for (int lane = 0; lane < lanes; ++lane) {
    relative[lane] = addresses[lane] - base;
    is_same = is_same && addresses[lane] == addresses[0];
    is_dense = is_dense && addresses[lane] == addresses[0] + Word(lane) * bytes;
  }
  const auto [lowest, highest] =
      std::minmax_element(relative, relative + lanes, [](Word a, Word b) { return Signed(a) < Signed(b); });
  lowest_ = Signed(*lowest);
  highest_ = std::int64_t(Signed(*highest)) + bytes;
  shape_ = is_same ? Shape::same : is_dense ? Shape::dense : Shape::scattered;
  is_known_ = true;
  hits_ = 1;
  accesses_per_hit = 1;
}

void AccessPattern::remember(const std::uint32_t *addresses, int lanes, unsigned bytes,
                             const SharedCost &cost) {
  remember(addresses, lanes, bytes, kBankPeriod, narrow_);
  cost_ = cost;
  sectors_ = 0;
}

void AccessPattern::remember(const std::uint64_t *addresses, unsigned bytes, unsigned sectors,
                             const MemoryRange *range) {
  remember(addresses, 32, bytes, kSectorPeriod, wide_);
  cost_ = {};
  sectors_ = sectors;
  range_ = range;
}

void AccessPattern::settle(AccessCounters &counters) {
  counters.executed += hits_ * accesses_per_hit;
  counters.wavefronts += hits_ * cost_.wavefronts;
  counters.passes += hits_ * cost_.passes;
  counters.conflicts += hits_ * cost_.conflicts;
  counters.ideal += hits_ * cost_.ideal;
  counters.sectors += hits_ * sectors_;
  hits_ = 0;
}

} // namespace ladder::machine
