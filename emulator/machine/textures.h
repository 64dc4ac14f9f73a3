// Textures and surfaces: how kernels see images, by handles of 64 bits.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <shared_mutex>

namespace ladder::machine {

/// The elements of an image in memory.
struct Image {
  enum class Channel : std::uint8_t { unsigned_integer, signed_integer, floating };

  std::uint64_t base = 0;
  unsigned channels = 1;      ///< 1, 2 or 4
  unsigned channel_bytes = 4; ///< 1, 2 or 4
  Channel channel = Channel::floating;
  unsigned dimensions = 1;
  std::array<std::uint64_t, 3> size{1, 1, 1}; ///< texels
  std::uint64_t pitch = 0, slice = 0;         ///< bytes per row; per slice or layer
  std::uint64_t layers = 0;                   ///< 0: not layered
  bool is_linear = false;                     ///< memory without an array: only whole coordinates

  std::uint64_t texel_bytes() const { return std::uint64_t(channels) * channel_bytes; }
  std::uint64_t address(std::uint64_t x, std::uint64_t y, std::uint64_t z) const {
    return base + z * slice + y * pitch + x * texel_bytes();
  }
};

struct Texture {
  enum class Address : std::uint8_t { wrap, clamp, mirror, border };

  Image image;
  std::array<Address, 3> address{Address::clamp, Address::clamp, Address::clamp};
  bool is_linear_filter = false;
  bool reads_normalized = false; ///< integers as numbers up to 1
  bool has_normalized_coordinates = false;
  std::array<float, 4> border{};
};

/// Those of the process. Handles are never used again, so that a destroyed one stays an error.
class Textures {
public:
  static Textures &instance();

  std::uint64_t add(const Texture &texture);
  std::uint64_t add_surface(const Image &image);
  bool remove(std::uint64_t handle);
  bool remove_surface(std::uint64_t handle);
  /// nullptr if there is none.
  std::shared_ptr<const Texture> find(std::uint64_t handle) const;
  std::shared_ptr<const Image> find_surface(std::uint64_t handle) const;

private:
  mutable std::shared_mutex mutex_;
  std::map<std::uint64_t, std::shared_ptr<const Texture>> textures_;
  std::map<std::uint64_t, std::shared_ptr<const Image>> surfaces_;
  std::uint64_t next_ = 1;
};

} // namespace ladder::machine
