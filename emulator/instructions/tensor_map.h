// Tensor maps, as cuTensorMapEncodeTiled makes and TMA instructions read them. CUDA Driver API, "Tensor Map
// Object Management"; PTX ISA, "Tensors".
#pragma once

#include "machine/bulk.h"
#include "machine/swizzle.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace ladder::instructions {

using machine::Swizzle;
using machine::swizzle_span;

inline constexpr unsigned kMostDimensions = 5;
inline constexpr std::size_t kTensorMapBytes = 128;

/// A tiled tensor map. Dimension 0 is the innermost.
struct TensorMap {
  /// Numbered as in CUtensorMapDataType.
  enum class Type : std::uint8_t {
    u8,
    u16,
    u32,
    s32,
    u64,
    s64,
    f16,
    f32,
    f64,
    bf16,
    f32_ftz,
    tf32,
    tf32_ftz
  };
  static constexpr unsigned kTypes = 13;
  enum class Fill : std::uint8_t { zeros, nan };

  Type type = Type::u8;
  unsigned rank = 1;
  std::uint64_t base = 0;                                      ///< global address
  std::array<std::uint64_t, kMostDimensions> size{};           ///< elements
  std::array<std::uint64_t, kMostDimensions> stride{};         ///< bytes; [0] is the element size
  std::array<std::uint32_t, kMostDimensions> box{};            ///< elements
  std::array<std::uint32_t, kMostDimensions> element_stride{}; ///< in elements
  std::uint8_t interleave = 0;                                 ///< CUtensorMapInterleave
  Swizzle swizzle = Swizzle::none;
  std::uint8_t l2_promotion = 0;
  Fill fill = Fill::zeros;

  bool operator==(const TensorMap &) const = default;

  unsigned element_bytes() const;
  /// Number of elements that a box transfers along a dimension.
  std::uint32_t box_elements(unsigned dimension) const;
  std::uint32_t box_bytes() const;

  /// Describes a rule of the manual that the map breaks; nullopt if it is valid.
  std::optional<std::string> broken_rule() const;

  /// Writes the in-memory form; its bit layout is private to the emulator.
  void store(std::uint8_t *bytes) const;
  /// nullopt if the bytes do not come from `store`. Even so the map may break rules: tensormap.replace sets
  /// fields one by one.
  static std::optional<TensorMap> load(const std::uint8_t *bytes);
  /// For tensormap.replace, which may also fill in 128 zero bytes, as Triton does: a map without any size.
  static std::optional<TensorMap> load_to_replace(const std::uint8_t *bytes);
};

/// Where a box lies in shared memory. With a swizzle, its lines are the swizzle's width apart.
machine::SharedPlace box_place(const TensorMap &map, std::uint32_t address);

/// A run of a box: contiguous bytes in shared memory that come from one line of the tensor.
struct BoxRun {
  std::uint32_t offset; ///< within the box, before swizzling
  std::uint32_t bytes;
  std::uint64_t address; ///< in global memory; 0: the run is outside the tensor
};

/// Calls visit(run) for each run of the box at `coordinates`, in order of offsets in the box. Parts outside
/// the tensor are runs of their own.
template <typename Visit>
void visit_box(const TensorMap &map, const std::array<std::int32_t, kMostDimensions> &coordinates,
               Visit visit) {
  const unsigned bytes = map.element_bytes();
  std::array<std::uint32_t, kMostDimensions> count{};
  for (unsigned d = 0; d < map.rank; ++d)
    count[d] = map.box_elements(d);
  std::array<std::uint32_t, kMostDimensions> at{};
  std::uint32_t offset = 0;
  for (;;) {
    bool inside = true;
    std::uint64_t address = map.base;
    for (unsigned d = 1; d < map.rank; ++d) {
      const std::int64_t place = coordinates[d] + std::int64_t(at[d]) * map.element_stride[d];
      inside = inside && place >= 0 && std::uint64_t(place) < map.size[d];
      address += std::uint64_t(place) * map.stride[d];
    }
    const std::int64_t begin = coordinates[0], end = begin + count[0];
    const std::int64_t first = std::min(std::max<std::int64_t>(begin, 0), end);
    const std::int64_t last =
        inside ? std::max(first, std::min<std::int64_t>(end, std::int64_t(map.size[0]))) : first;
    const auto run = [&](std::int64_t from, std::int64_t to, bool is_inside) {
      if (to > from)
        visit(BoxRun{offset + std::uint32_t(from - begin) * bytes, std::uint32_t(to - from) * bytes,
                     is_inside ? address + std::uint64_t(from) * bytes : 0});
    };
    run(begin, first, false);
    run(first, last, true);
    run(last, end, false);
    offset += count[0] * bytes;
    unsigned d = 1;
    for (; d < map.rank; ++d) {
      if (++at[d] < count[d])
        break;
      at[d] = 0;
    }
    if (d >= map.rank)
      return;
  }
}

} // namespace ladder::instructions
