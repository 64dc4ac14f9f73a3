#include "machine/textures.h"

#include <mutex>

namespace ladder::machine {

namespace {

template <typename Map> auto look_up(const Map &map, std::uint64_t handle) {
  const auto found = map.find(handle);
  return found == map.end() ? nullptr : found->second;
}

} // namespace

Textures &Textures::instance() {
  static Textures *const textures = new Textures;
  return *textures;
}

std::uint64_t Textures::add(const Texture &texture) {
  const std::unique_lock lock(mutex_);
  textures_[next_] = std::make_shared<const Texture>(texture);
  return next_++;
}

std::uint64_t Textures::add_surface(const Image &image) {
  const std::unique_lock lock(mutex_);
  surfaces_[next_] = std::make_shared<const Image>(image);
  return next_++;
}

bool Textures::remove(std::uint64_t handle) {
  const std::unique_lock lock(mutex_);
  return textures_.erase(handle) != 0;
}

bool Textures::remove_surface(std::uint64_t handle) {
  const std::unique_lock lock(mutex_);
  return surfaces_.erase(handle) != 0;
}

std::shared_ptr<const Texture> Textures::find(std::uint64_t handle) const {
  const std::shared_lock lock(mutex_);
  return look_up(textures_, handle);
}

std::shared_ptr<const Image> Textures::find_surface(std::uint64_t handle) const {
  const std::shared_lock lock(mutex_);
  return look_up(surfaces_, handle);
}

} // namespace ladder::machine
