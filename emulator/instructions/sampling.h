// What a texture returns for coordinates. CUDA C++ Programming Guide, "Texture Fetching".
#pragma once

#include "machine/textures.h"

#include <array>
#include <cstdint>
#include <functional>
#include <optional>

namespace ladder::instructions {

/// Four registers: integers, or the bits of floats. Channels that the image lacks are 0.
using Texel = std::array<std::uint32_t, 4>;
/// Checks that the bytes at an address may be read, and throws if not.
using CheckRead = std::function<void(std::uint64_t address, std::uint64_t bytes)>;

/// Coordinates of a fetch: texels, or parts of the image's size.
struct Coordinates {
  std::array<float, 3> at{};
  std::uint64_t layer = 0;
};

/// Point or linear filtering, as the texture says.
Texel sample(const machine::Texture &texture, const Coordinates &coordinates, const CheckRead &check);
/// The texel at whole coordinates, without filtering; outside the image 0 or the nearest, by address mode.
Texel fetch(const machine::Texture &texture, const std::array<std::int64_t, 3> &at, std::uint64_t layer,
            const CheckRead &check);
/// One channel of the four texels that linear filtering in two dimensions would use.
Texel gather(const machine::Texture &texture, const Coordinates &coordinates, unsigned channel,
             const CheckRead &check);

} // namespace ladder::instructions
