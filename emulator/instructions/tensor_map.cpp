#include "instructions/tensor_map.h"

#include <cstring>
#include <limits>

namespace ladder::instructions {

namespace {

constexpr std::uint64_t kMostStride = std::uint64_t(1) << 40;
constexpr std::uint64_t kMostSize = std::uint64_t(1) << 32;
constexpr std::uint32_t kMostBox = 256, kMostElementStride = 8;
constexpr std::uint64_t kMagic = 0x70614d726f736e54; // "TnsorMap"

/// The 128-byte in-memory form.
struct Image {
  std::uint64_t magic;
  std::uint8_t type, rank;
  /// CUTLASS and Triton clear bit 21 of the second 64-bit word if a tensor has less than 128 KiB and the
  /// driver is 13.1 or older.
  std::uint8_t cleared_by_programs;
  std::uint8_t interleave, swizzle, l2_promotion, fill, unused;
  std::uint64_t base;
  std::uint64_t stride[kMostDimensions - 1], size[kMostDimensions];
  std::uint16_t box[kMostDimensions];
  std::uint8_t element_stride[kMostDimensions];
  std::uint8_t also_unused[9];
  std::uint64_t check;
};
static_assert(sizeof(Image) == kTensorMapBytes);
static_assert(offsetof(Image, cleared_by_programs) == 8 + 21 / 8);

/// The value clamped to the field's type; a clamped value breaks the rule of the field, too.
template <typename Field> Field fitted(std::uint64_t value) {
  return Field(std::min<std::uint64_t>(value, std::numeric_limits<Field>::max()));
}

std::uint64_t check_of(Image image) {
  image.cleared_by_programs = 0;
  std::uint64_t hash = 0xcbf29ce484222325; // FNV-1a
  const auto *const bytes = reinterpret_cast<const std::uint8_t *>(&image);
  for (std::size_t i = 0; i < offsetof(Image, check); ++i)
    hash = (hash ^ bytes[i]) * 0x100000001b3;
  return hash;
}

std::string text(std::uint64_t value) { return std::to_string(value); }

} // namespace

unsigned TensorMap::element_bytes() const {
  constexpr std::uint8_t kBytes[kTypes] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
  return kBytes[unsigned(type)];
}

std::uint32_t TensorMap::box_elements(unsigned dimension) const {
  // Without interleave, the innermost dimension ignores its element stride.
  const std::uint32_t step = dimension == 0 ? 1 : element_stride[dimension];
  return (box[dimension] + step - 1) / step;
}

std::uint32_t TensorMap::box_bytes() const {
  std::uint32_t bytes = element_bytes();
  for (unsigned d = 0; d < rank; ++d)
    bytes *= box_elements(d);
  return bytes;
}

std::optional<std::string> TensorMap::broken_rule() const {
  if (unsigned(type) >= kTypes)
    return "the data type " + text(unsigned(type)) + " does not exist on sm_90";
  if (rank < 1 || rank > kMostDimensions)
    return "a tensor of " + text(rank) + " dimensions; 1 to 5 are allowed";
  if (interleave > 2)
    return "the interleave " + text(interleave) + " does not exist";
  if (interleave != 0 && rank < 3)
    return "an interleaved tensor has at least 3 dimensions, and this one has " + text(rank);
  if (interleave == 2 && swizzle != Swizzle::b32)
    return "CU_TENSOR_MAP_INTERLEAVE_32B needs CU_TENSOR_MAP_SWIZZLE_32B";
  const unsigned alignment = interleave == 2 ? 32 : 16;
  if (base == 0)
    return "the global address is null";
  if (base % alignment)
    return "the global address is not a multiple of " + text(alignment);
  for (unsigned d = 0; d < rank; ++d)
    if (size[d] == 0 || size[d] > kMostSize)
      return "globalDim[" + text(d) + "] is " + text(size[d]) + "; 1 to 2^32 are allowed";
  for (unsigned d = 1; d < rank; ++d) {
    const std::string name =
        "globalStrides[" + text(d - 1) + "] is " + text(stride[d]) + " bytes; it must be ";
    if (stride[d] % alignment)
      return name + "a multiple of " + text(alignment);
    if (stride[d] >= kMostStride)
      return name + "less than 2^40";
  }
  for (unsigned d = 0; d < rank; ++d) {
    if (box[d] == 0 || box[d] > kMostBox)
      return "boxDim[" + text(d) + "] is " + text(box[d]) + "; 1 to 256 are allowed";
    if (element_stride[d] == 0 || element_stride[d] > kMostElementStride)
      return "elementStrides[" + text(d) + "] is " + text(element_stride[d]) + "; 1 to 8 are allowed";
  }
  const std::uint32_t inner = box[0] * element_bytes();
  if (interleave == 0 && inner % 16)
    return "boxDim[0] makes " + text(inner) +
           " bytes of the innermost dimension; it must be a multiple of 16";
  if (interleave == 0 && swizzle != Swizzle::none && inner > swizzle_span(swizzle))
    return "boxDim[0] makes the box " + text(inner) + " bytes wide, more than the swizzle span of " +
           text(swizzle_span(swizzle)) + " bytes";
  if (fill == Fill::nan && type < Type::f16)
    return "a fill with NaN needs a floating-point type";
  if (interleave != 0)
    return "interleaved tensors are not supported by the emulator";
  return std::nullopt;
}

void TensorMap::store(std::uint8_t *bytes) const {
  Image image{};
  image.magic = kMagic;
  image.base = base;
  for (unsigned d = 0; d < kMostDimensions; ++d) {
    if (d > 0)
      image.stride[d - 1] = stride[d];
    image.size[d] = size[d];
    image.box[d] = fitted<std::uint16_t>(box[d]);
    image.element_stride[d] = fitted<std::uint8_t>(element_stride[d]);
  }
  image.type = std::uint8_t(type);
  image.rank = std::uint8_t(rank);
  image.interleave = interleave;
  image.swizzle = std::uint8_t(swizzle);
  image.l2_promotion = l2_promotion;
  image.fill = std::uint8_t(fill);
  image.check = check_of(image);
  std::memcpy(bytes, &image, sizeof image);
}

std::optional<TensorMap> TensorMap::load(const std::uint8_t *bytes) {
  Image image;
  std::memcpy(&image, bytes, sizeof image);
  if (image.magic != kMagic || image.check != check_of(image) || image.rank < 1 ||
      image.rank > kMostDimensions || image.type >= kTypes || image.swizzle > std::uint8_t(Swizzle::b128))
    return std::nullopt;
  TensorMap map;
  map.base = image.base;
  map.rank = image.rank;
  map.type = Type(image.type);
  map.interleave = image.interleave;
  map.swizzle = Swizzle(image.swizzle);
  map.l2_promotion = image.l2_promotion;
  map.fill = Fill(image.fill);
  map.stride[0] = map.element_bytes();
  for (unsigned d = 0; d < kMostDimensions; ++d) {
    if (d > 0)
      map.stride[d] = image.stride[d - 1];
    map.size[d] = image.size[d];
    map.box[d] = image.box[d];
    map.element_stride[d] = image.element_stride[d];
  }
  return map;
}

std::optional<TensorMap> TensorMap::load_to_replace(const std::uint8_t *bytes) {
  return std::all_of(bytes, bytes + kTensorMapBytes, [](std::uint8_t byte) { return byte == 0; })
             ? TensorMap()
             : load(bytes);
}

machine::SharedPlace box_place(const TensorMap &map, std::uint32_t address) {
  machine::SharedPlace place;
  place.address = address;
  if (map.swizzle != Swizzle::none) {
    place.swizzle = map.swizzle;
    place.line_bytes = map.box_elements(0) * map.element_bytes();
    place.pitch = swizzle_span(map.swizzle);
  }
  return place;
}

} // namespace ladder::instructions
