// The bank model as a page calls it: one access of a warp, counted. docs/live/banks.js is the other side.
#include "runtime/observe/shared_access.h"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <string>
#include <vector>

using namespace ladder;

namespace {

std::string message;
std::vector<std::uint32_t> values;

} // namespace

extern "C" {

/// `op`, `width` and `active` as in shared_access.h; `addresses` of 32 lanes. Returns the wavefronts, the
/// conflicts, the ideal wavefronts and the number of passes, then the lanes and the wavefronts of each pass.
/// nullptr: the access is refused, and bank_message() says why.
const std::uint32_t *bank_access(const char *op, std::uint32_t width, const std::uint32_t *addresses,
                                 std::uint32_t active) {
  try {
    machine::LaneAddresses lanes;
    std::copy_n(addresses, lanes.size(), lanes.begin());
    const machine::SharedCost cost = runtime::shared_access(op, width, lanes, active);
    const std::vector<machine::SharedPass> passes = runtime::shared_passes(op, width, lanes, active);
    values = {cost.wavefronts, cost.conflicts, cost.ideal, std::uint32_t(passes.size())};
    for (const machine::SharedPass &pass : passes)
      values.insert(values.end(), {pass.lanes, pass.wavefronts});
    return values.data();
  } catch (const std::exception &error) {
    message = error.what();
    return nullptr;
  }
}

const char *bank_message() { return message.c_str(); }
}
