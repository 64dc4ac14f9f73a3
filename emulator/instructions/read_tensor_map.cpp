// The tensor map that an instruction names by its address.
#include "instructions/bulk_copy.h"

#include "machine/address_space.h"
#include "machine/block.h"

#include <string>

namespace ladder::instructions {

using machine::FaultError;
using machine::FaultKind;
using machine::Warp;

TensorMap read_tensor_map(Warp &warp, std::uint64_t address, int lane) {
  constexpr std::uint64_t kMapAlignment = 64;
  if (address % kMapAlignment)
    throw FaultError(FaultKind::misaligned, "a tensor map at an address that is not a multiple of 64", lane)
        .at(address);
  const std::uint64_t window = address & machine::kWindowMask, offset = address - window;
  const std::uint8_t *bytes = nullptr;
  if (window == machine::kParamWindow) {
    const std::vector<std::uint8_t> &params = warp.block().launch().params;
    if (offset > params.size() || params.size() - offset < kTensorMapBytes)
      throw FaultError(FaultKind::out_of_bounds, "a tensor map outside the kernel's parameters", lane)
          .at(address);
    bytes = params.data() + offset;
  } else if (window == 0) {
    warp.global_range(address, kTensorMapBytes, false, lane);
    bytes = reinterpret_cast<const std::uint8_t *>(address);
  } else if (window == machine::kLocalWindow) {
    throw FaultError(FaultKind::bad_operand,
                     "a tensor map in local memory: the kernel's parameter must be "
                     "`const __grid_constant__ CUtensorMap`, or the compiler copies it there",
                     lane)
        .at(address);
  } else {
    throw FaultError(FaultKind::bad_operand,
                     "a tensor map must be a parameter of the kernel or lie in global or constant memory",
                     lane)
        .at(address);
  }
  const std::optional<TensorMap> map = TensorMap::load(bytes);
  if (!map)
    throw FaultError(FaultKind::bad_operand,
                     "the 128 bytes at this address are not a tensor map made by cuTensorMapEncodeTiled",
                     lane)
        .at(address);
  if (const auto why = map->broken_rule())
    throw FaultError(FaultKind::bad_operand, "a tensor map that breaks a rule: " + *why, lane).at(address);
  return *map;
}

void require_tensor_in_memory(Warp &warp, const TensorMap &map, int lane) {
  const machine::GlobalMemory &memory = *warp.block().launch().memory;
  if (!memory.find(map.base, 1))
    throw FaultError(FaultKind::out_of_bounds,
                     "a tensor map whose global address is in no allocation, so that every box faults: " +
                         memory.describe(map.base),
                     lane)
        .at(map.base);
}

} // namespace ladder::instructions
