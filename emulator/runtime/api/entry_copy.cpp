// Copies and fills.
#include "runtime/observe/checking.h"
#include "runtime/observe/host_watch.h"
#include "runtime/work/allocations.h"
#include "runtime/work/arrays.h"
#include "runtime/work/copies.h"
#include "runtime/work/entry.h"
#include "runtime/work/streams.h"

#include <cstring>
#include <vector>

using namespace ladder::runtime;

namespace {

using ladder::sanitizer::Kind;

enum class Side { host, device, either };

struct Direction {
  Side source, destination;
};

Direction direction_of(cudaMemcpyKind kind) {
  switch (kind) {
  case cudaMemcpyHostToHost:
    return {Side::host, Side::host};
  case cudaMemcpyHostToDevice:
    return {Side::host, Side::device};
  case cudaMemcpyDeviceToHost:
    return {Side::device, Side::host};
  case cudaMemcpyDeviceToDevice:
    return {Side::device, Side::device};
  case cudaMemcpyDefault:
    return {Side::either, Side::either};
  }
  throw CudaError(cudaErrorInvalidMemcpyDirection);
}

/// Throws unless device memory is known and large enough. Also checks known memory that is passed as host
/// memory.
void check_range(const void *pointer, std::size_t bytes, Side side) {
  require(pointer);
  const auto address = reinterpret_cast<std::uint64_t>(pointer);
  const ladder::machine::GlobalMemory &memory = Device::instance().memory();
  if (side != Side::device && !memory.find(address, 1))
    return;
  const Checking *const checking = Checking::active();
  const bool was_freed = checking && checking->was_freed(address);
  require(memory.find(address, bytes), cudaErrorInvalidValue,
          was_freed              ? "a copy or fill of device memory that is already freed"
          : side == Side::device ? "a copy or fill of device memory that is not allocated, or is too small"
                                 : "a copy or fill that goes beyond the end of an allocation",
          was_freed ? Kind::use_after_free : Kind::bad_copy);
}

/// Checks that both sides of a copy match its kind.
void check_sides(const Direction &direction, const void *destination, const void *source) {
  Checking *const checking = Checking::active();
  if (!checking)
    return;
  const auto is_device = [](const void *pointer) {
    const auto allocation = Allocations::instance().find(pointer);
    return allocation && allocation->kind == MemoryKind::device;
  };
  if (direction.source == Side::host && is_device(source))
    checking->note_call(Kind::bad_copy, "the source is device memory, but the kind of the copy says host");
  if (direction.destination == Side::host && is_device(destination))
    checking->note_call(Kind::bad_copy,
                        "the destination is device memory, but the kind of the copy says host");
}

/// Tells the sanitizer what a copy or fill writes.
void note_write(const void *destination, std::size_t bytes) {
  if (Checking *const checking = Checking::active())
    checking->initialised().mark(reinterpret_cast<std::uint64_t>(destination), bytes);
}

void note_copy_by_host(const void *destination, const void *source) {
  if (HostWatch *const watch = HostWatch::active())
    watch->copied(destination, source);
}

void note_read(const void *source, std::size_t bytes, const Direction &direction) {
  if (Checking *const checking = Checking::active(); checking && direction.destination != Side::device)
    checking->copied_back(reinterpret_cast<std::uint64_t>(source), bytes);
}

/// Copying unwritten memory leaves the destination unwritten.
void note_copy(const void *destination, const void *source, std::size_t bytes) {
  if (Checking *const checking = Checking::active())
    checking->initialised().copy(reinterpret_cast<std::uint64_t>(destination),
                                 reinterpret_cast<std::uint64_t>(source), bytes);
}

/// Records a copy or a fill (which has no source). The host waits for calls without a stream and for copies
/// of unpinned memory.
void note_work(const char *name, const void *destination, const void *source, std::size_t bytes) {
  Checking *const checking = Checking::active();
  if (!checking || !checking->watches_host())
    return;
  std::vector<MemoryUse> uses;
  bool waits = OnStream::current() == 0;
  const auto add = [&](const void *pointer, bool writes) {
    const auto begin = reinterpret_cast<std::uint64_t>(pointer);
    uses.push_back({begin, begin + bytes, writes});
    waits = waits || !Allocations::instance().find(pointer);
  };
  add(destination, true);
  if (source)
    add(source, false);
  checking->worked(name, std::move(uses));
  if (waits)
    checking->streams().host_waits(OnStream::current() ? OnStream::current() : kLegacyStream);
}

/// Calls without a stream are work of the legacy stream that the host waits for.
void wait_without_stream() {
  if (OnStream::current() != 0)
    return;
  PendingWork::instance().wait_for(cudaStreamLegacy);
  if (HostWatch *const watch = HostWatch::active())
    watch->worked_on(kLegacyStream);
}

/// A box of rows: `width` bytes, `height` rows, `depth` slices.
struct Box {
  std::size_t width, height, depth;
  bool empty() const { return width == 0 || height == 0 || depth == 0; }
};

/// Pitched rows at `pointer`; a copy takes a box starting at (x, y, z).
struct Pitched {
  char *pointer;
  std::size_t pitch, rows = 0; ///< bytes per row, rows per slice
  std::size_t x = 0, y = 0, z = 0;

  std::size_t offset_of(std::size_t row, std::size_t slice) const {
    return ((z + slice) * rows + y + row) * pitch + x;
  }
  char *row(std::size_t row, std::size_t slice) const { return pointer + offset_of(row, slice); }
};

/// a * b + c. Throws CudaError(cudaErrorInvalidValue) on overflow.
std::size_t multiply_add(std::size_t a, std::size_t b, std::size_t c) {
  std::size_t all;
  require(!__builtin_mul_overflow(a, b, &all) && !__builtin_add_overflow(all, c, &all));
  return all;
}

/// Checks that a nonempty box lies within its rows and slices, and within memory.
void check_box(const Pitched &place, const Box &box, Side side) {
  require(place.x <= place.pitch && box.width <= place.pitch - place.x, cudaErrorInvalidPitchValue);
  require(box.depth == 1 || (place.y <= place.rows && box.height <= place.rows - place.y));
  const std::size_t last_slice = multiply_add(1, place.z, box.depth - 1);
  const std::size_t last_row = multiply_add(last_slice, place.rows, multiply_add(1, place.y, box.height - 1));
  check_range(place.pointer, multiply_add(last_row, place.pitch, place.x + box.width), side);
}

void copy_box(const Pitched &destination, const Pitched &source, const Box &box, cudaMemcpyKind kind) {
  const Direction direction = direction_of(kind);
  if (box.empty())
    return;
  wait_without_stream();
  const auto used = Device::instance().use_memory();
  check_box(source, box, direction.source);
  check_box(destination, box, direction.destination);
  check_sides(direction, destination.pointer, source.pointer);
  note_copy_by_host(destination.pointer, source.pointer);
  for (std::size_t z = 0; z < box.depth; ++z)
    for (std::size_t y = 0; y < box.height; ++y) {
      note_read(source.row(y, z), box.width, direction);
      note_copy(destination.row(y, z), source.row(y, z), box.width);
      note_work("a copy", destination.row(y, z), source.row(y, z), box.width);
      std::memmove(destination.row(y, z), source.row(y, z), box.width);
    }
}

void fill_box(const Pitched &destination, int value, const Box &box) {
  if (box.empty())
    return;
  wait_without_stream();
  const auto used = Device::instance().use_memory();
  check_box(destination, box, Side::device);
  for (std::size_t z = 0; z < box.depth; ++z)
    for (std::size_t y = 0; y < box.height; ++y) {
      note_write(destination.row(y, z), box.width);
      note_work("a fill", destination.row(y, z), nullptr, box.width);
      if (value != 0 || !Allocations::instance().make_fresh(destination.row(y, z), box.width))
        std::memset(destination.row(y, z), value, box.width);
    }
}

Pitched pitched(void *pointer, std::size_t pitch) { return {static_cast<char *>(pointer), pitch}; }

Pitched pitched(const cudaPitchedPtr &pointer, const cudaPos &place) {
  return {static_cast<char *>(pointer.ptr), pointer.pitch, pointer.ysize, place.x, place.y, place.z};
}

} // namespace

void ladder::runtime::copy(void *destination, const void *source, std::size_t bytes, cudaMemcpyKind kind) {
  const Direction direction = direction_of(kind);
  if (bytes == 0)
    return;
  wait_without_stream();
  const auto used = Device::instance().use_memory();
  check_range(source, bytes, direction.source);
  check_range(destination, bytes, direction.destination);
  check_sides(direction, destination, source);
  note_copy_by_host(destination, source);
  note_read(source, bytes, direction);
  note_copy(destination, source, bytes);
  note_work("a copy", destination, source, bytes);
  std::memmove(destination, source, bytes);
}

void ladder::runtime::copy(const cudaMemcpy3DParms &what) {
  // With an array, the extent and the array's own offset are in elements.
  Box box{what.extent.width, what.extent.height, what.extent.depth};
  const auto place = [&](cudaArray_t handle, const cudaPitchedPtr &pointer, const cudaPos &at) {
    if (!handle)
      return pitched(pointer, at);
    require(!pointer.ptr, cudaErrorInvalidValue, "a copy has an array or a pointer, not both");
    const Array &array = find_array(handle);
    const std::size_t texel = array.image.texel_bytes();
    const auto fits = [](std::size_t at, std::size_t n, std::size_t size) {
      return n <= size && at <= size - n;
    };
    require(fits(at.x, box.width, array.image.size[0]) && fits(at.y, box.height, array.rows()) &&
                fits(at.z, box.depth, array.slices()),
            cudaErrorInvalidValue, "a copy beyond the end of an array", Kind::bad_copy);
    return Pitched{reinterpret_cast<char *>(array.image.base),
                   array.image.pitch,
                   array.rows(),
                   at.x * texel,
                   at.y,
                   at.z};
  };
  const Pitched source = place(what.srcArray, what.srcPtr, what.srcPos);
  const Pitched destination = place(what.dstArray, what.dstPtr, what.dstPos);
  if (const cudaArray_t array = what.srcArray ? what.srcArray : what.dstArray)
    box.width = multiply_add(box.width, find_array(array).image.texel_bytes(), 0);
  copy_box(destination, source, box, what.kind);
}

void ladder::runtime::fill(const cudaMemsetParams &what) {
  const Box box{what.width * what.elementSize, what.height, 1};
  const Pitched place = pitched(what.dst, what.height == 1 ? box.width : what.pitch);
  fill_box(place, int(what.value), box);
  if (what.elementSize == 1)
    return;
  for (std::size_t y = 0; y < what.height; ++y)
    for (std::size_t at = 0; at < box.width; at += what.elementSize)
      std::memcpy(place.row(y, 0) + at, &what.value, what.elementSize);
}

cudaError_t cudaMemcpy(void *destination, const void *source, size_t bytes, cudaMemcpyKind kind) {
  return on_device([&] {
    refuse_legacy_stream();
    copy(destination, source, bytes, kind);
  });
}

cudaError_t cudaMemcpyAsync(void *destination, const void *source, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return on_stream(
      stream, [&] { copy(destination, source, bytes, kind); },
      [&] { return copy_work(destination, source, bytes, kind); });
}

cudaError_t cudaMemcpyPeer(void *destination, int destination_device, const void *source, int source_device,
                           size_t bytes) {
  return on_device([&] {
    require(destination_device == 0 && source_device == 0, cudaErrorInvalidDevice);
    copy(destination, source, bytes, cudaMemcpyDeviceToDevice);
  });
}

cudaError_t cudaMemcpyPeerAsync(void *destination, int destination_device, const void *source,
                                int source_device, size_t bytes, cudaStream_t stream) {
  return on_stream(stream, [&] {
    require(destination_device == 0 && source_device == 0, cudaErrorInvalidDevice);
    copy(destination, source, bytes, cudaMemcpyDeviceToDevice);
  });
}

cudaError_t cudaMemcpy2D(void *destination, size_t destination_pitch, const void *source, size_t source_pitch,
                         size_t width, size_t height, cudaMemcpyKind kind) {
  return on_device([&] {
    copy_box(pitched(destination, destination_pitch), pitched(const_cast<void *>(source), source_pitch),
             {width, height, 1}, kind);
  });
}

cudaError_t cudaMemcpy2DAsync(void *destination, size_t destination_pitch, const void *source,
                              size_t source_pitch, size_t width, size_t height, cudaMemcpyKind kind,
                              cudaStream_t stream) {
  const CopyWork work = copy_work(destination, destination_pitch, source, source_pitch, width, height, kind);
  return on_stream(stream, [&] { copy(work.what); }, [&] { return work; });
}

cudaError_t cudaMemcpy3D(const cudaMemcpy3DParms *parameters) {
  return on_device([&] {
    require(parameters);
    copy(*parameters);
  });
}

cudaError_t cudaMemcpy3DAsync(const cudaMemcpy3DParms *parameters, cudaStream_t stream) {
  if (!parameters)
    return on_device([] { throw CudaError(cudaErrorInvalidValue); });
  return on_stream(stream, [&] { copy(*parameters); }, [&] { return CopyWork{*parameters}; });
}

cudaError_t cudaMemset(void *destination, int value, size_t bytes) {
  return on_device([&] {
    refuse_legacy_stream();
    fill_box(pitched(destination, bytes), value, {bytes, 1, 1});
  });
}

cudaError_t cudaMemsetAsync(void *destination, int value, size_t bytes, cudaStream_t stream) {
  return on_stream(
      stream, [&] { fill_box(pitched(destination, bytes), value, {bytes, 1, 1}); },
      [&] { return fill_work(destination, bytes, value, bytes, 1); });
}

cudaError_t cudaMemset2D(void *destination, size_t pitch, int value, size_t width, size_t height) {
  return on_device([&] { fill_box(pitched(destination, pitch), value, {width, height, 1}); });
}

cudaError_t cudaMemset2DAsync(void *destination, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream) {
  return on_stream(
      stream, [&] { fill_box(pitched(destination, pitch), value, {width, height, 1}); },
      [&] { return fill_work(destination, pitch, value, width, height); });
}

cudaError_t cudaMemset3D(cudaPitchedPtr destination, int value, cudaExtent extent) {
  return on_device(
      [&] { fill_box(pitched(destination, {}), value, {extent.width, extent.height, extent.depth}); });
}

cudaError_t cudaMemset3DAsync(cudaPitchedPtr destination, int value, cudaExtent extent, cudaStream_t stream) {
  return on_stream(stream, [&] {
    fill_box(pitched(destination, {}), value, {extent.width, extent.height, extent.depth});
  });
}
