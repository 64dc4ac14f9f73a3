// CUDA arrays.
#include "runtime/observe/checking.h"
#include "runtime/work/arrays.h"
#include "runtime/work/copies.h"
#include "runtime/work/entry.h"
#include "runtime/work/streams.h"

using namespace ladder::runtime;

namespace {

/// Offsets and widths of these functions are in bytes, those of cudaMemcpy3D in elements.
CopyWork array_copy(cudaArray_const_t source, std::size_t source_x, std::size_t source_y,
                    cudaArray_t destination, std::size_t x, std::size_t y, std::size_t width,
                    std::size_t height, cudaMemcpyKind kind) {
  const Array &array = find_array(source ? source : destination);
  const std::size_t texel = array.image.texel_bytes();
  for (const std::size_t bytes : {source ? source_x : x, destination ? x : source_x, width})
    require(bytes % texel == 0, cudaErrorInvalidValue, "not a multiple of the array's elements");
  CopyWork work{};
  work.what.srcArray = const_cast<cudaArray_t>(source);
  work.what.srcPos = {source ? source_x / texel : 0, source_y, 0};
  work.what.dstArray = destination;
  work.what.dstPos = {destination ? x / texel : 0, y, 0};
  work.what.extent = {width / texel, height, 1};
  work.what.kind = kind;
  return work;
}

CopyWork to_array(cudaArray_t destination, std::size_t x, std::size_t y, const void *source,
                  std::size_t pitch, std::size_t width, std::size_t height, cudaMemcpyKind kind) {
  CopyWork work = array_copy(nullptr, 0, 0, destination, x, y, width, height, kind);
  work.what.srcPtr = {const_cast<void *>(source), pitch, width, height};
  return work;
}

CopyWork from_array(void *destination, std::size_t pitch, cudaArray_const_t source, std::size_t x,
                    std::size_t y, std::size_t width, std::size_t height, cudaMemcpyKind kind) {
  CopyWork work = array_copy(source, x, y, nullptr, 0, 0, width, height, kind);
  work.what.dstPtr = {destination, pitch, width, height};
  return work;
}

/// Bytes that may fill several rows: whole ones, from the start of a row.
std::size_t rows_of(cudaArray_const_t handle, std::size_t x, std::size_t bytes) {
  const std::size_t pitch = find_array(handle).image.pitch;
  if (x + bytes <= pitch)
    return 1;
  require(x == 0 && bytes % pitch == 0, cudaErrorNotSupported,
          "a copy of several rows of an array is emulated for whole rows only");
  return bytes / pitch;
}

} // namespace

cudaError_t cudaMallocArray(cudaArray_t *array, const cudaChannelFormatDesc *format, size_t width,
                            size_t height, unsigned flags) {
  return on_device([&] {
    require(array && format);
    require(!(flags & cudaArrayLayered), cudaErrorInvalidValue, "layered arrays: cudaMalloc3DArray");
    *array = make_array(*format, {width, height, 0}, flags);
  });
}

cudaError_t cudaMalloc3DArray(cudaArray_t *array, const cudaChannelFormatDesc *format, cudaExtent extent,
                              unsigned flags) {
  return on_device([&] {
    require(array && format);
    *array = make_array(*format, extent, flags);
  });
}

cudaError_t cudaFreeArray(cudaArray_t array) {
  return on_device([&] {
    PendingWork::instance().wait_for_all();
    if (array)
      free_array(array);
    if (Checking *const checking = Checking::active())
      checking->streams().host_waits_for_all();
  });
}

cudaError_t cudaArrayGetInfo(cudaChannelFormatDesc *format, cudaExtent *extent, unsigned *flags,
                             cudaArray_t array) {
  return on_device([&] {
    const Array &found = find_array(array);
    if (format)
      *format = found.format;
    if (extent)
      *extent = found.extent;
    if (flags)
      *flags = found.flags;
  });
}

cudaError_t cudaGetChannelDesc(cudaChannelFormatDesc *format, cudaArray_const_t array) {
  return on_device([&] { set(format, find_array(array).format); });
}

cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w, cudaChannelFormatKind kind) {
  return {x, y, z, w, kind};
}

cudaError_t cudaMemcpy2DToArray(cudaArray_t destination, size_t x, size_t y, const void *source, size_t pitch,
                                size_t width, size_t height, cudaMemcpyKind kind) {
  return on_device([&] { copy(to_array(destination, x, y, source, pitch, width, height, kind).what); });
}

cudaError_t cudaMemcpy2DToArrayAsync(cudaArray_t destination, size_t x, size_t y, const void *source,
                                     size_t pitch, size_t width, size_t height, cudaMemcpyKind kind,
                                     cudaStream_t stream) {
  const auto work = [&] { return to_array(destination, x, y, source, pitch, width, height, kind); };
  return on_stream(stream, [&] { copy(work().what); }, work);
}

cudaError_t cudaMemcpy2DFromArray(void *destination, size_t pitch, cudaArray_const_t source, size_t x,
                                  size_t y, size_t width, size_t height, cudaMemcpyKind kind) {
  return on_device([&] { copy(from_array(destination, pitch, source, x, y, width, height, kind).what); });
}

cudaError_t cudaMemcpy2DFromArrayAsync(void *destination, size_t pitch, cudaArray_const_t source, size_t x,
                                       size_t y, size_t width, size_t height, cudaMemcpyKind kind,
                                       cudaStream_t stream) {
  const auto work = [&] { return from_array(destination, pitch, source, x, y, width, height, kind); };
  return on_stream(stream, [&] { copy(work().what); }, work);
}

cudaError_t cudaMemcpy2DArrayToArray(cudaArray_t destination, size_t x, size_t y, cudaArray_const_t source,
                                     size_t source_x, size_t source_y, size_t width, size_t height,
                                     cudaMemcpyKind kind) {
  return on_device(
      [&] { copy(array_copy(source, source_x, source_y, destination, x, y, width, height, kind).what); });
}

cudaError_t cudaMemcpyToArray(cudaArray_t destination, size_t x, size_t y, const void *source, size_t bytes,
                              cudaMemcpyKind kind) {
  return on_device([&] {
    const size_t rows = rows_of(destination, x, bytes);
    copy(to_array(destination, x, y, source, bytes / rows, bytes / rows, rows, kind).what);
  });
}

cudaError_t cudaMemcpyFromArray(void *destination, cudaArray_const_t source, size_t x, size_t y, size_t bytes,
                                cudaMemcpyKind kind) {
  return on_device([&] {
    const size_t rows = rows_of(source, x, bytes);
    copy(from_array(destination, bytes / rows, source, x, y, bytes / rows, rows, kind).what);
  });
}
