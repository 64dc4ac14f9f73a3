#include "runtime/observe/chunk_places.h"

#include "instructions/matrix_descriptor.h"
#include "instructions/tensor_map.h"

#include <stdexcept>
#include <string>

namespace ladder::runtime {

namespace {

constexpr std::uint32_t kChunkBytes = 16, kBoxAlignment = 128;

instructions::TensorMap::Type type_of(unsigned element_bytes) {
  using Type = instructions::TensorMap::Type;
  switch (element_bytes) {
  case 1:
    return Type::u8;
  case 2:
    return Type::u16;
  case 4:
    return Type::u32;
  case 8:
    return Type::u64;
  default:
    throw std::invalid_argument("a tensor has elements of 1, 2, 4 or 8 bytes, not of " +
                                std::to_string(element_bytes));
  }
}

/// A map of a tensor that is one box large.
instructions::TensorMap map_of(const std::vector<std::uint32_t> &elements, unsigned element_bytes,
                               machine::Swizzle swizzle) {
  instructions::TensorMap map;
  map.type = type_of(element_bytes);
  map.rank = unsigned(elements.size());
  map.base = kBoxAlignment;
  map.swizzle = swizzle;
  for (unsigned d = 0; d < map.rank && d < instructions::kMostDimensions; ++d) {
    map.size[d] = map.box[d] = elements[d];
    map.element_stride[d] = 1;
    map.stride[d] = d ? kChunkBytes : element_bytes;
  }
  return map;
}

} // namespace

std::vector<ChunkPlace> operand_chunks(std::uint64_t descriptor, bool mn_major, std::uint32_t groups) {
  const instructions::OperandPlaces places(descriptor, mn_major);
  std::vector<ChunkPlace> chunks;
  for (std::uint32_t group = 0; group < groups; ++group)
    for (std::uint32_t c = 0; c < 2; ++c)
      for (std::uint32_t row = 0; row < 8; ++row)
        chunks.push_back({places.plain_chunk(group, row, c), places.chunk(group, row, c)});
  return chunks;
}

machine::Swizzle swizzle_of(unsigned bytes) {
  using machine::Swizzle;
  if (bytes == 0)
    return Swizzle::none;
  for (const Swizzle mode : {Swizzle::b32, Swizzle::b64, Swizzle::b128})
    if (machine::swizzle_span(mode) == bytes)
      return mode;
  throw std::invalid_argument("there is no swizzle of " + std::to_string(bytes) +
                              " bytes: it is one of 32, 64 and 128, or none");
}

std::vector<ChunkPlace> box_chunks(std::uint32_t address, const std::vector<std::uint32_t> &elements,
                                   unsigned element_bytes, machine::Swizzle swizzle) {
  const instructions::TensorMap map = map_of(elements, element_bytes, swizzle);
  if (const auto why = map.broken_rule())
    throw std::invalid_argument(*why);
  if (address % kBoxAlignment)
    throw std::invalid_argument("a box begins at a multiple of 128 bytes of shared memory, not at " +
                                std::to_string(address));
  machine::SharedPlace place = instructions::box_place(map, address), plain = place;
  plain.swizzle = machine::Swizzle::none;
  std::vector<ChunkPlace> chunks;
  for (std::uint32_t byte = 0; byte < map.box_bytes(); byte += kChunkBytes)
    chunks.push_back({plain.of(byte), place.of(byte)});
  return chunks;
}

} // namespace ladder::runtime
