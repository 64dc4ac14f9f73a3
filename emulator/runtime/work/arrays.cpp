#include "runtime/work/arrays.h"

#include "runtime/observe/checking.h"
#include "runtime/work/allocations.h"
#include "runtime/work/entry.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>

namespace ladder::runtime {

namespace {

struct Arrays {
  std::mutex mutex;
  std::map<cudaArray_const_t, std::unique_ptr<Array>> live;
};
// Never destroyed, as streams are.
auto &arrays = *new Arrays;

machine::Image::Channel channel_of(cudaChannelFormatKind kind) {
  using Channel = machine::Image::Channel;
  switch (kind) {
  case cudaChannelFormatKindSigned:
    return Channel::signed_integer;
  case cudaChannelFormatKindUnsigned:
    return Channel::unsigned_integer;
  case cudaChannelFormatKindFloat:
    return Channel::floating;
  default:
    throw CudaError(cudaErrorNotSupported, "only channels of integers and floats are emulated");
  }
}

std::size_t product(std::size_t a, std::size_t b) {
  std::size_t all;
  require(!__builtin_mul_overflow(a, b, &all), cudaErrorMemoryAllocation);
  return all;
}

} // namespace

machine::Image image_of(const cudaChannelFormatDesc &format) {
  const int bits[] = {format.x, format.y, format.z, format.w};
  unsigned channels = 0;
  while (channels < 4 && bits[channels])
    ++channels;
  require(channels == 1 || channels == 2 || channels == 4, cudaErrorInvalidChannelDescriptor,
          "a format has 1, 2 or 4 channels");
  for (unsigned c = 0; c < 4; ++c)
    require(bits[c] == (c < channels ? format.x : 0), cudaErrorInvalidChannelDescriptor,
            "all channels of a format have the same width");
  require(format.x == 8 || format.x == 16 || format.x == 32, cudaErrorInvalidChannelDescriptor);
  machine::Image image;
  image.channels = channels;
  image.channel_bytes = unsigned(format.x) / 8;
  image.channel = channel_of(format.f);
  require(image.channel != machine::Image::Channel::floating || format.x != 8,
          cudaErrorInvalidChannelDescriptor);
  return image;
}

cudaArray_t make_array(const cudaChannelFormatDesc &format, cudaExtent extent, unsigned flags) {
  constexpr unsigned kKnown = cudaArrayLayered | cudaArraySurfaceLoadStore | cudaArrayTextureGather;
  require((flags & ~kKnown) == 0, cudaErrorNotSupported,
          "only layered arrays, and those for surfaces and gathers, are emulated: no cubemaps");
  const bool is_layered = flags & cudaArrayLayered;
  require(extent.width > 0 && (is_layered ? extent.depth > 0 : extent.height > 0 || extent.depth == 0));
  auto array = std::make_unique<Array>(Array{format, extent, flags, image_of(format)});
  machine::Image &image = array->image;
  image.dimensions = extent.height == 0 ? 1 : is_layered || extent.depth == 0 ? 2 : 3;
  image.size = {extent.width, std::max<std::size_t>(extent.height, 1),
                is_layered ? 1 : std::max<std::size_t>(extent.depth, 1)};
  image.layers = is_layered ? extent.depth : 0;
  image.pitch = product(extent.width, image.texel_bytes());
  image.slice = product(image.pitch, array->rows());
  const std::size_t bytes = product(image.slice, array->slices());
  image.base = reinterpret_cast<std::uint64_t>(
      Allocations::instance().allocate(bytes, MemoryKind::device, "cudaMallocArray"));
  // The sanitizer does not follow what surfaces write.
  if (Checking *const checking = Checking::active())
    checking->mark_written(image.base, bytes);
  const std::lock_guard lock(arrays.mutex);
  const auto handle = reinterpret_cast<cudaArray_t>(array.get());
  arrays.live[handle] = std::move(array);
  return handle;
}

const Array &find_array(cudaArray_const_t handle) {
  const std::lock_guard lock(arrays.mutex);
  const auto found = arrays.live.find(handle);
  require(found != arrays.live.end(), cudaErrorInvalidResourceHandle, "there is no such array");
  return *found->second;
}

void free_array(cudaArray_t handle) {
  Allocations::instance().free(reinterpret_cast<void *>(find_array(handle).image.base), {MemoryKind::device});
  const std::lock_guard lock(arrays.mutex);
  arrays.live.erase(handle);
}

} // namespace ladder::runtime
