#include "machine/local_memory.h"

#include "machine/fault.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

namespace ladder::machine {

std::uint8_t *LocalMemory::at(int lane, std::uint64_t address, std::uint64_t bytes, std::uint64_t top) {
  if (address + bytes > top || address + bytes < address)
    throw FaultError(FaultKind::out_of_bounds,
                     "an access of " + std::to_string(bytes) + " bytes outside the thread's " +
                         std::to_string(top) + " bytes of local memory",
                     lane)
        .at(address);
  if (top > capacity_) {
    const std::uint64_t capacity = std::max<std::uint64_t>((top + 15) & ~std::uint64_t(15), 2 * capacity_);
    std::vector<std::uint8_t> grown(capacity * 32);
    for (std::uint64_t i = 0; capacity_ && i < 32; ++i)
      std::memcpy(grown.data() + i * capacity, bytes_.data() + i * capacity_, capacity_);
    bytes_ = std::move(grown);
    capacity_ = capacity;
  }
  return bytes_.data() + std::uint64_t(lane) * capacity_ + address;
}

} // namespace ladder::machine
