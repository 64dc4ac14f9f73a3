#include "runtime/shared_access.h"

#include <bit>
#include <stdexcept>
#include <string>

namespace ladder::runtime {

namespace {

constexpr int kRowBytes = 16; // row of an 8x8 tile of 16-bit elements

[[noreturn]] void refuse(std::string_view op, const std::string &why) {
  throw std::invalid_argument(std::string(op) + ": " + why);
}

void require_width(std::string_view op, unsigned width, bool holds, const char *allowed) {
  if (!holds)
    refuse(op, std::to_string(width) + " is none of " + allowed);
}

void require_aligned(std::string_view op, const machine::LaneAddresses &addresses, std::uint32_t lanes,
                     unsigned bytes) {
  for (int lane = 0; lane < 32; ++lane)
    if ((lanes >> lane & 1) && addresses[std::size_t(lane)] % bytes != 0)
      refuse(op, "lane " + std::to_string(lane) + "'s address " +
                     std::to_string(addresses[std::size_t(lane)]) + " is no multiple of " +
                     std::to_string(bytes));
}

} // namespace

machine::SharedCost shared_access(std::string_view op, unsigned width,
                                  const machine::LaneAddresses &addresses, std::uint32_t active) {
  if (op == "ld" || op == "st") {
    require_width(op, width, std::has_single_bit(width) && width <= 16, "1, 2, 4, 8, 16 bytes");
    require_aligned(op, addresses, active, width);
    return op == "ld" ? machine::shared_load(addresses, active, width)
                      : machine::shared_store(addresses, active, width);
  }
  if (op == "ldmatrix" || op == "stmatrix") {
    require_width(op, width, width == 1 || width == 2 || width == 4, "1, 2, 4 tiles");
    const std::uint32_t rows = width == 4 ? ~0u : (1u << (8 * width)) - 1;
    if ((active & rows) != rows)
      refuse(op, "the first " + std::to_string(8 * width) +
                     " lanes give the rows' addresses; one of them has none");
    require_aligned(op, addresses, rows, kRowBytes);
    return machine::shared_matrix(addresses, width);
  }
  if (op == "atom.add" || op == "atom.cas") {
    require_width(op, width, width == 4, "4 bytes, the width that was measured");
    require_aligned(op, addresses, active, width);
    return op == "atom.add" ? machine::shared_atomic(addresses, active)
                            : machine::shared_compare_and_swap(addresses, active);
  }
  if (op == "cp.async") {
    if (width == 4 || width == 8)
      refuse(op,
             "copies of 4 and 8 bytes are not modelled: what they cost depends on more than these addresses");
    require_width(op, width, width == 16, "16 bytes");
    require_aligned(op, addresses, active, width);
    return machine::shared_async_copy16(addresses, active);
  }
  throw std::invalid_argument("'" + std::string(op) +
                              "' is none of ld, st, ldmatrix, stmatrix, atom.add, atom.cas, cp.async");
}

std::vector<machine::SharedPass> shared_passes(std::string_view op, unsigned width,
                                               const machine::LaneAddresses &addresses,
                                               std::uint32_t active) {
  using Op = machine::SharedCostCache::Op;
  shared_access(op, width, addresses, active); // rejects an invalid access
  if (op == "cp.async")
    return {};
  const Op kind = op == "ld"         ? Op::load
                  : op == "st"       ? Op::store
                  : op == "atom.add" ? Op::atomic
                  : op == "atom.cas" ? Op::compare_and_swap
                                     : Op::matrix;
  return machine::shared_passes(kind, addresses, active, width);
}

} // namespace ladder::runtime
