// Texture and surface objects.
#include "runtime/work/arrays.h"
#include "runtime/work/device.h"
#include "runtime/work/entry.h"

#include <map>
#include <mutex>
#include <optional>

using namespace ladder::runtime;
using ladder::machine::Image;
using ladder::machine::Texture;
using ladder::machine::Textures;

namespace {

/// What objects were made of, for whoever asks.
struct Descriptions {
  struct One {
    cudaResourceDesc resource;
    cudaTextureDesc texture;
  };
  std::mutex mutex;
  std::map<unsigned long long, One> live;
};
// Never destroyed, as streams are.
auto &descriptions = *new Descriptions;

void describe(unsigned long long handle, const cudaResourceDesc &resource,
              const cudaTextureDesc &texture = {}) {
  const std::lock_guard lock(descriptions.mutex);
  descriptions.live[handle] = {resource, texture};
}

Descriptions::One description(unsigned long long handle) {
  const std::lock_guard lock(descriptions.mutex);
  const auto found = descriptions.live.find(handle);
  require(found != descriptions.live.end(), cudaErrorInvalidValue, "there is no such object");
  return found->second;
}

void forget(unsigned long long handle, bool existed) {
  require(existed, cudaErrorInvalidValue, "there is no such object");
  const std::lock_guard lock(descriptions.mutex);
  descriptions.live.erase(handle);
}

/// Each access is checked, so the image may be larger than the memory: the runtime accepts that.
Image place(Image image, const void *pointer, std::size_t bytes) {
  constexpr std::uint64_t kAlignment = 512, kPitchAlignment = 32; // as in the device's properties
  image.base = reinterpret_cast<std::uint64_t>(pointer);
  require(pointer && bytes > 0);
  require(image.base % kAlignment == 0, cudaErrorInvalidValue,
          "a texture's memory must be aligned to 512 bytes (textureAlignment)");
  require(image.dimensions == 1 || image.pitch % kPitchAlignment == 0, cudaErrorInvalidValue,
          "a texture's pitch must be a multiple of 32 bytes (texturePitchAlignment)");
  require(Device::instance().memory().find(image.base, 1), cudaErrorInvalidValue,
          "a texture of device memory that is not allocated");
  return image;
}

Image image_of_linear(const cudaResourceDesc &resource) {
  const auto &linear = resource.res.linear;
  Image image = image_of(linear.desc);
  image.is_linear = true;
  image.size[0] = linear.sizeInBytes / image.texel_bytes();
  return place(image, linear.devPtr, linear.sizeInBytes);
}

Image image_of_pitched(const cudaResourceDesc &resource) {
  const auto &pitched = resource.res.pitch2D;
  Image image = image_of(pitched.desc);
  image.dimensions = 2;
  image.size = {pitched.width, pitched.height, 1};
  image.pitch = pitched.pitchInBytes;
  require(pitched.width > 0 && pitched.height > 0 && pitched.width * image.texel_bytes() <= image.pitch);
  return place(image, pitched.devPtr,
               image.pitch * (pitched.height - 1) + pitched.width * image.texel_bytes());
}

Image image_of(const cudaResourceDesc &resource) {
  switch (resource.resType) {
  case cudaResourceTypeArray:
    return find_array(resource.res.array.array).image;
  case cudaResourceTypeLinear:
    return image_of_linear(resource);
  case cudaResourceTypePitch2D:
    return image_of_pitched(resource);
  default:
    throw CudaError(cudaErrorNotSupported, "mipmapped arrays are not emulated");
  }
}

Texture::Address address_of(cudaTextureAddressMode mode, bool is_normalized) {
  switch (mode) {
  case cudaAddressModeBorder:
    return Texture::Address::border;
  case cudaAddressModeWrap:
    return is_normalized ? Texture::Address::wrap : Texture::Address::clamp;
  case cudaAddressModeMirror:
    return is_normalized ? Texture::Address::mirror : Texture::Address::clamp;
  case cudaAddressModeClamp:
    return Texture::Address::clamp;
  }
  throw CudaError(cudaErrorInvalidValue);
}

void check(const Texture &texture) {
  const Image &image = texture.image;
  const bool is_integer = image.channel != Image::Channel::floating;
  require(!texture.reads_normalized || !is_integer || image.channel_bytes < 4, cudaErrorInvalidNormSetting,
          "integers of 32 bits cannot be read as normalized floats");
  require(!texture.is_linear_filter || !is_integer || texture.reads_normalized, cudaErrorInvalidFilterSetting,
          "linear filtering needs floats: cudaReadModeNormalizedFloat, or a format of floats");
  require(!image.is_linear || !texture.has_normalized_coordinates, cudaErrorInvalidValue,
          "a texture of linear memory cannot have normalized coordinates");
}

Texture texture_of(const cudaResourceDesc &resource, const cudaTextureDesc &settings) {
  require(!settings.sRGB, cudaErrorNotSupported, "textures of sRGB colors are not emulated");
  Texture texture;
  texture.image = image_of(resource);
  texture.has_normalized_coordinates = settings.normalizedCoords != 0;
  for (unsigned d = 0; d < std::max(texture.image.dimensions, 2u); ++d)
    texture.address[d] = address_of(settings.addressMode[d], texture.has_normalized_coordinates);
  // Linear memory is never filtered.
  texture.is_linear_filter = settings.filterMode == cudaFilterModeLinear && !texture.image.is_linear;
  texture.reads_normalized = settings.readMode == cudaReadModeNormalizedFloat;
  std::copy_n(settings.borderColor, 4, texture.border.begin());
  check(texture);
  return texture;
}

} // namespace

cudaError_t cudaCreateTextureObject(cudaTextureObject_t *object, const cudaResourceDesc *resource,
                                    const cudaTextureDesc *settings, const cudaResourceViewDesc *view) {
  return on_device([&] {
    require(object && resource && settings);
    require(!view, cudaErrorNotSupported, "views of another format or part of an array are not emulated");
    *object = Textures::instance().add(texture_of(*resource, *settings));
    describe(*object, *resource, *settings);
  });
}

cudaError_t cudaDestroyTextureObject(cudaTextureObject_t object) {
  return on_device([&] {
    if (object)
      forget(object, Textures::instance().remove(object));
  });
}

cudaError_t cudaGetTextureObjectResourceDesc(cudaResourceDesc *resource, cudaTextureObject_t object) {
  return on_device([&] { set(resource, description(object).resource); });
}

cudaError_t cudaGetTextureObjectTextureDesc(cudaTextureDesc *settings, cudaTextureObject_t object) {
  return on_device([&] { set(settings, description(object).texture); });
}

cudaError_t cudaCreateSurfaceObject(cudaSurfaceObject_t *object, const cudaResourceDesc *resource) {
  return on_device([&] {
    require(object && resource);
    require(resource->resType == cudaResourceTypeArray, cudaErrorInvalidChannelDescriptor,
            "a surface is made of an array");
    *object = Textures::instance().add_surface(find_array(resource->res.array.array).image);
    describe(*object, *resource);
  });
}

cudaError_t cudaDestroySurfaceObject(cudaSurfaceObject_t object) {
  return on_device([&] {
    if (object)
      forget(object, Textures::instance().remove_surface(object));
  });
}

cudaError_t cudaGetSurfaceObjectResourceDesc(cudaResourceDesc *resource, cudaSurfaceObject_t object) {
  return on_device([&] { set(resource, description(object).resource); });
}
