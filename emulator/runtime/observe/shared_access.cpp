#include "runtime/observe/shared_access.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <string>

namespace ladder::runtime {

namespace {

using Op = machine::SharedCostCache::Op;

/// An access that the model covers: its name, and the widths that it can have.
struct Model {
  std::string_view name;
  std::optional<Op> op; ///< nullopt: cp.async
  unsigned widths;      ///< the sum of the allowed ones, which are powers of two
  const char *allowed;
};
constexpr Model kModels[] = {
    {"ld", Op::load, 31, "1, 2, 4, 8, 16 bytes"},
    {"st", Op::store, 31, "1, 2, 4, 8, 16 bytes"},
    {"ldmatrix", Op::matrix, 7, "1, 2, 4 tiles"},
    {"stmatrix", Op::matrix, 7, "1, 2, 4 tiles"},
    {"atom.add", Op::atomic, 4, "4 bytes, the width that was measured"},
    {"atom.cas", Op::compare_and_swap, 4, "4 bytes, the width that was measured"},
    {"cp.async", std::nullopt, 16,
     "16 bytes; copies of 4 and 8 bytes are not modelled: their cost depends on more than these addresses"},
};
constexpr unsigned kRowBytes = 16; // row of an 8x8 tile of 16-bit elements

[[noreturn]] void refuse(std::string_view op, const std::string &why) {
  throw std::invalid_argument(std::string(op) + ": " + why);
}

/// Throws std::invalid_argument unless the access is valid.
const Model &model_of(std::string_view op, unsigned width, const machine::LaneAddresses &addresses,
                      std::uint32_t active) {
  const auto model = std::ranges::find(kModels, op, &Model::name);
  if (model == std::end(kModels)) {
    std::string names;
    for (const Model &each : kModels)
      names += (names.empty() ? "" : ", ") + std::string(each.name);
    throw std::invalid_argument("'" + std::string(op) + "' is none of " + names);
  }
  if (!std::has_single_bit(width) || !(width & model->widths))
    refuse(op, std::to_string(width) + " is none of " + model->allowed);
  const bool has_rows = model->op == Op::matrix;
  const std::uint32_t lanes = !has_rows ? active : width == 4 ? ~0u : (1u << (8 * width)) - 1;
  if ((active & lanes) != lanes)
    refuse(op, "the first " + std::to_string(8 * width) +
                   " lanes must give the addresses of rows; one of them has none");
  const unsigned alignment = has_rows ? kRowBytes : width;
  for (std::size_t lane = 0; lane < 32; ++lane)
    if ((lanes >> lane & 1) && addresses[lane] % alignment != 0)
      refuse(op, "lane " + std::to_string(lane) + "'s address " + std::to_string(addresses[lane]) +
                     " is not a multiple of " + std::to_string(alignment));
  return *model;
}

} // namespace

machine::SharedCost shared_access(std::string_view op, unsigned width,
                                  const machine::LaneAddresses &addresses, std::uint32_t active) {
  const Model &model = model_of(op, width, addresses, active);
  return model.op ? machine::SharedCostCache::compute(*model.op, addresses, active, width)
                  : machine::shared_async_copy16(addresses, active);
}

std::vector<machine::SharedPass> shared_passes(std::string_view op, unsigned width,
                                               const machine::LaneAddresses &addresses,
                                               std::uint32_t active) {
  const Model &model = model_of(op, width, addresses, active);
  return model.op ? machine::shared_passes(*model.op, addresses, active, width)
                  : std::vector<machine::SharedPass>();
}

} // namespace ladder::runtime
