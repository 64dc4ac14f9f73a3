// Tensor maps, and the runtime's lookup of driver functions.
#include "instructions/tensor_map.h"
#include "runtime/api/driver_api.h"

#include <optional>
#include <string>
#include <string_view>

using namespace ladder;
using namespace ladder::runtime;
using instructions::TensorMap;

namespace {

cudaError_t find_entry_point(const char *symbol, void **function, cudaDriverEntryPointQueryResult *result,
                             const char *call = __builtin_FUNCTION()) {
  return query(
      [&] {
        require(symbol && function);
        *function = find_driver_function(symbol);
        if (result)
          *result = *function ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
        if (!*function) {
          Device::instance().complain("cudaGetDriverEntryPoint: the emulator has no driver function " +
                                      std::string(symbol));
          // Without `result`, the caller has only the return code.
          require(result, cudaErrorSymbolNotFound);
        }
      },
      call);
}

CUresult refuse(const std::string &function, const std::string &why) {
  Device::instance().complain(function + ": " + why);
  return CUDA_ERROR_INVALID_VALUE;
}

constexpr std::uintptr_t kMapAlignment = 64;

/// What is wrong with a tensor map's address; empty if it is valid.
std::string check_place(const CUtensorMap *map) {
  if (!map)
    return "tensorMap is null";
  if (reinterpret_cast<std::uintptr_t>(map) % kMapAlignment)
    return "tensorMap is not aligned to 64 bytes (alignas(64) CUtensorMap map;)";
  return {};
}

} // namespace

cudaError_t cudaGetDriverEntryPoint(const char *symbol, void **function, unsigned long long,
                                    cudaDriverEntryPointQueryResult *result) {
  return find_entry_point(symbol, function, result);
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned,
                                             unsigned long long, cudaDriverEntryPointQueryResult *result) {
  return find_entry_point(symbol, function, result);
}

CUresult cuTensorMapEncodeTiled(CUtensorMap *tensor_map, CUtensorMapDataType type, cuuint32_t rank,
                                void *global_address, const cuuint64_t *global_dim,
                                const cuuint64_t *global_strides, const cuuint32_t *box_dim,
                                const cuuint32_t *element_strides, CUtensorMapInterleave interleave,
                                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2_promotion,
                                CUtensorMapFloatOOBfill fill) {
  constexpr char kName[] = "cuTensorMapEncodeTiled";
  if (Device::instance().gpu().major < 9)
    return refuse(kName, "tensor maps need sm_90 or newer, and the virtual GPU is " +
                             std::string(Device::instance().gpu().arch) + " (--arch sm_90a)");
  if (const std::string why = check_place(tensor_map); !why.empty())
    return refuse(kName, why);
  if (rank < 1 || rank > instructions::kMostDimensions)
    return refuse(kName, "tensorRank is " + std::to_string(rank) + "; 1 to 5 are allowed");
  if (!global_dim || !box_dim || !element_strides || (rank > 1 && !global_strides))
    return refuse(kName, "an array of sizes is null");
  TensorMap map;
  if (unsigned(type) >= TensorMap::kTypes)
    return refuse(kName, "the data type " + std::to_string(unsigned(type)) + " does not exist on sm_90");
  map.type = TensorMap::Type(type);
  map.rank = rank;
  map.base = reinterpret_cast<std::uint64_t>(global_address);
  map.stride[0] = map.element_bytes();
  for (unsigned d = 0; d < rank; ++d) {
    map.size[d] = global_dim[d];
    map.box[d] = box_dim[d];
    map.element_stride[d] = element_strides[d];
    if (d > 0)
      map.stride[d] = global_strides[d - 1];
  }
  map.interleave = std::uint8_t(interleave);
  static_assert(unsigned(CU_TENSOR_MAP_SWIZZLE_128B) == unsigned(machine::Swizzle::b128));
  if (unsigned(swizzle) > unsigned(CU_TENSOR_MAP_SWIZZLE_128B))
    return refuse(kName, "the swizzle " + std::to_string(unsigned(swizzle)) + " does not exist on sm_90");
  map.swizzle = machine::Swizzle(swizzle);
  if (unsigned(l2_promotion) > unsigned(CU_TENSOR_MAP_L2_PROMOTION_L2_256B))
    return refuse(kName, "the L2 promotion " + std::to_string(unsigned(l2_promotion)) + " does not exist");
  map.l2_promotion = std::uint8_t(l2_promotion);
  if (unsigned(fill) > unsigned(CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA))
    return refuse(kName, "the fill " + std::to_string(unsigned(fill)) + " does not exist");
  map.fill = TensorMap::Fill(fill);
  if (const auto why = map.broken_rule())
    return refuse(kName, *why);
  map.store(reinterpret_cast<std::uint8_t *>(tensor_map));
  return CUDA_SUCCESS;
}

CUresult cuTensorMapReplaceAddress(CUtensorMap *tensor_map, void *global_address) {
  constexpr char kName[] = "cuTensorMapReplaceAddress";
  if (const std::string why = check_place(tensor_map); !why.empty())
    return refuse(kName, why);
  auto *const bytes = reinterpret_cast<std::uint8_t *>(tensor_map);
  std::optional<TensorMap> map = TensorMap::load(bytes);
  if (!map)
    return refuse(kName, "tensorMap is not a tensor map: cuTensorMapEncodeTiled did not make it");
  map->base = reinterpret_cast<std::uint64_t>(global_address);
  if (const auto why = map->broken_rule())
    return refuse(kName, *why);
  map->store(bytes);
  return CUDA_SUCCESS;
}
