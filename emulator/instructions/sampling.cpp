#include "instructions/sampling.h"

#include "instructions/half_type.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>

namespace ladder::instructions {

namespace {

using machine::Image;
using machine::Texture;

/// Weights have 8 fractional bits.
constexpr std::int64_t kOne = 256;
constexpr int kLargestSigned = 32767, kLargestUnsigned = 65535;
/// Coordinates beyond this are as good as infinite.
constexpr float kFarthest = 1 << 30;

std::int64_t modulo(std::int64_t a, std::int64_t n) { return (a % n + n) % n; }

/// The index that an address mode makes of one outside the image; nullopt: the border's color.
std::optional<std::uint64_t> index_of(Texture::Address mode, std::int64_t i, std::int64_t n) {
  switch (mode) {
  case Texture::Address::wrap:
    return std::uint64_t(modulo(i, n));
  case Texture::Address::mirror: {
    const std::int64_t place = modulo(i, 2 * n);
    return std::uint64_t(place < n ? place : 2 * n - 1 - place);
  }
  case Texture::Address::border:
    return i >= 0 && i < n ? std::optional(std::uint64_t(i)) : std::nullopt;
  case Texture::Address::clamp:
    break;
  }
  return std::uint64_t(std::clamp<std::int64_t>(i, 0, n - 1));
}

/// In texels. NaN becomes 0.
float place_of(const Texture &texture, unsigned d, float coordinate) {
  if (texture.has_normalized_coordinates)
    coordinate *= float(texture.image.size[d]);
  return coordinate == coordinate ? std::clamp(coordinate, -kFarthest, kFarthest) : 0;
}

std::uint32_t raw_channel(const Image &image, const std::uint8_t *bytes) {
  if (image.channel_bytes == 1)
    return image.channel == Image::Channel::signed_integer ? std::uint32_t(std::int8_t(*bytes)) : *bytes;
  if (image.channel_bytes == 2) {
    std::uint16_t value;
    std::memcpy(&value, bytes, sizeof value);
    if (image.channel == Image::Channel::floating)
      return std::bit_cast<std::uint32_t>(Half::to_float(value));
    return image.channel == Image::Channel::signed_integer ? std::uint32_t(std::int16_t(value)) : value;
  }
  std::uint32_t value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

/// Integers of 8 and 16 bits as 0 to 1, or -1 to 1.
float normalized(const Image &image, std::uint32_t value) {
  const unsigned bits = image.channel_bytes * 8;
  if (image.channel == Image::Channel::signed_integer)
    return std::max(-1.0f, float(std::int32_t(value)) / float((1 << (bits - 1)) - 1));
  return float(value) / float((1u << bits) - 1);
}

/// A channel as texture instructions return it.
std::uint32_t returned(const Texture &texture, std::uint32_t raw) {
  const Image &image = texture.image;
  return texture.reads_normalized && image.channel != Image::Channel::floating
             ? std::bit_cast<std::uint32_t>(normalized(image, raw))
             : raw;
}

/// The texel's address; nullopt: the border's color, or 0 outside linear memory. `dimensions` may be one more
/// than the image has.
std::optional<std::uint64_t> locate(const Texture &texture, const std::array<std::int64_t, 3> &at,
                                    unsigned dimensions, std::uint64_t layer, const CheckRead &check) {
  const Image &image = texture.image;
  std::array<std::uint64_t, 3> place{};
  for (unsigned d = 0; d < dimensions; ++d) {
    const auto mode = image.is_linear ? Texture::Address::border : texture.address[d];
    const auto index = index_of(mode, at[d], std::int64_t(image.size[d]));
    if (!index)
      return std::nullopt;
    place[d] = *index;
  }
  if (image.layers)
    place[2] = std::min(layer, image.layers - 1);
  const std::uint64_t address = image.address(place[0], place[1], place[2]);
  check(address, image.texel_bytes());
  return address;
}

std::uint32_t raw_channel(const Image &image, std::uint64_t address, unsigned channel) {
  return raw_channel(image, reinterpret_cast<const std::uint8_t *>(address) + channel * image.channel_bytes);
}

/// The two texels beside a coordinate, and the weight of the second, in 256ths.
struct Between {
  std::int64_t first = 0, weight = 0;
};

Between between(float place) {
  const auto fixed = std::int64_t(std::floor(double(place) * kOne - kOne / 2 + 0.5));
  const std::int64_t weight = modulo(fixed, kOne);
  return {(fixed - weight) / kOne, weight};
}

std::int64_t rounded(std::int64_t product) { return (product + kOne / 2) / kOne; }

/// The weights of the eight corners, in 256ths, by z, y and x as bits 2, 1 and 0. Products of weights are
/// rounded to 256ths again, in this order and with these ties: so an H100 does, in every bit of its results.
std::array<std::int64_t, 8> corner_weights(const std::array<Between, 3> &sides) {
  std::array<std::int64_t, 8> weights{};
  const auto [x, y, z] = std::array{sides[0].weight, sides[1].weight, sides[2].weight};
  for (const unsigned back : {0u, 1u}) {
    const std::int64_t slice = back ? z : kOne - z, right = rounded(slice * x), left = slice - right;
    weights[back * 4 + 3] = rounded(right * y);
    weights[back * 4 + 1] = right - weights[back * 4 + 3];
    weights[back * 4] = rounded(left * (kOne - y));
    weights[back * 4 + 2] = left - weights[back * 4];
  }
  return weights;
}

/// An integer as one of 16 bits: the bits of a byte are repeated.
std::int64_t widened(const Image &image, std::uint32_t raw) {
  const std::int64_t value = std::int32_t(raw);
  if (image.channel == Image::Channel::unsigned_integer)
    return image.channel_bytes == 1 ? value * 257 : value;
  if (image.channel_bytes == 2)
    return std::max<std::int64_t>(value, -kLargestSigned);
  const std::int64_t magnitude = std::min<std::int64_t>(std::abs(value), 127);
  const std::int64_t wide = magnitude << 8 | magnitude << 1 | magnitude >> 6;
  return value < 0 ? -wide : wide;
}

/// To half precision; ties go up.
double as_half(double value) {
  constexpr int kBits = 11, kSmallest = -13;
  int exponent;
  std::frexp(value, &exponent);
  const double unit = std::ldexp(1.0, std::max(exponent, kSmallest) - kBits);
  return std::floor(value / unit + 0.5) * unit;
}

/// The weighted sum of a channel, rounded as on an H100: of integers to 16 bits, of half floats to these.
class Sum {
public:
  explicit Sum(const Texture &texture)
      : texture_(texture), is_integer_(texture.image.channel != Image::Channel::floating) {}

  void add(std::int64_t weight, std::uint32_t raw) {
    if (is_integer_)
      integer_ += weight * widened(texture_.image, raw);
    else
      number_ += double(weight) * double(std::bit_cast<float>(raw));
  }
  std::uint32_t result() const {
    const Image &image = texture_.image;
    if (!is_integer_)
      return std::bit_cast<std::uint32_t>(
          float(image.channel_bytes == 2 ? as_half(number_ / kOne) : number_ / kOne));
    const std::int64_t sum = (integer_ + kOne / 2 - modulo(integer_ + kOne / 2, kOne)) / kOne;
    const bool is_signed = image.channel == Image::Channel::signed_integer;
    return std::bit_cast<std::uint32_t>(float(sum) / float(is_signed ? kLargestSigned : kLargestUnsigned));
  }

private:
  const Texture &texture_;
  const bool is_integer_;
  std::int64_t integer_ = 0;
  double number_ = 0;
};

/// The border's color in the format of the texels, rounded towards 0. Integers that are returned as such have
/// a border of zeros.
std::uint32_t border_channel(const Texture &texture, unsigned channel) {
  const Image &image = texture.image;
  const float color = texture.border[channel];
  if (image.channel == Image::Channel::floating)
    return std::bit_cast<std::uint32_t>(color) & (image.channel_bytes == 2 ? ~0x1fffu : ~0u);
  if (!texture.reads_normalized)
    return 0;
  const bool is_signed = image.channel == Image::Channel::signed_integer;
  const int largest = (1 << (image.channel_bytes * 8 - is_signed)) - 1;
  return std::uint32_t(int(std::clamp(color, is_signed ? -1.0f : 0.0f, 1.0f) * float(largest)));
}

} // namespace

Texel fetch(const Texture &texture, const std::array<std::int64_t, 3> &at, std::uint64_t layer,
            const CheckRead &check) {
  const Image &image = texture.image;
  const auto address = locate(texture, at, image.dimensions, layer, check);
  Texel texel{};
  for (unsigned c = 0; c < image.channels; ++c)
    if (address)
      texel[c] = returned(texture, raw_channel(image, *address, c));
    else if (!image.is_linear)
      texel[c] = returned(texture, border_channel(texture, c));
  return texel;
}

Texel sample(const Texture &texture, const Coordinates &coordinates, const CheckRead &check) {
  const Image &image = texture.image;
  if (!texture.is_linear_filter) {
    std::array<std::int64_t, 3> at{};
    for (unsigned d = 0; d < image.dimensions; ++d)
      at[d] = std::int64_t(std::floor(place_of(texture, d, coordinates.at[d])));
    return fetch(texture, at, coordinates.layer, check);
  }
  // A GPU filters one dimension as two, at the edge of the only row: a border counts half there.
  const unsigned dimensions = std::max(image.dimensions, 2u);
  std::array<Between, 3> sides{};
  for (unsigned d = 0; d < dimensions; ++d)
    sides[d] =
        between(texture.address[d] == Texture::Address::clamp
                    ? std::clamp(place_of(texture, d, coordinates.at[d]), 0.5f, float(image.size[d]) - 0.5f)
                    : place_of(texture, d, coordinates.at[d]));
  const std::array<std::int64_t, 8> weights = corner_weights(sides);
  std::array<Sum, 4> sums{Sum(texture), Sum(texture), Sum(texture), Sum(texture)};
  for (unsigned corner = 0; corner < weights.size(); ++corner) {
    if (!weights[corner])
      continue;
    std::array<std::int64_t, 3> at{};
    for (unsigned d = 0; d < dimensions; ++d)
      at[d] = sides[d].first + (corner >> d & 1);
    const auto address = locate(texture, at, dimensions, coordinates.layer, check);
    for (unsigned c = 0; c < image.channels; ++c)
      sums[c].add(weights[corner], address ? raw_channel(image, *address, c) : border_channel(texture, c));
  }
  Texel texel{};
  for (unsigned c = 0; c < image.channels; ++c)
    texel[c] = sums[c].result();
  return texel;
}

/// Counterclockwise from the lower left, where the second coordinate is the larger one.
Texel gather(const Texture &texture, const Coordinates &coordinates, unsigned channel,
             const CheckRead &check) {
  const Between x = between(place_of(texture, 0, coordinates.at[0]));
  const Between y = between(place_of(texture, 1, coordinates.at[1]));
  const auto corner = [&](int right, int down) {
    return fetch(texture, {x.first + right, y.first + down, 0}, 0, check)[channel];
  };
  return {corner(0, 1), corner(1, 1), corner(1, 0), corner(0, 0)};
}

} // namespace ladder::instructions
