// The CUDA driver: memory, streams and events, as the runtime has them.
#include "runtime/api/driver_api.h"
#include "runtime/work/allocations.h"

#include <vector>

using namespace ladder::runtime;

namespace {

void *at(CUdeviceptr address) { return reinterpret_cast<void *>(address); }

/// Fills with a value of several bytes: once, then by copies of what is there.
template <typename T> CUresult fill(CUdeviceptr address, T value, std::size_t count, CUstream stream) {
  if (count == 0)
    return CUDA_SUCCESS;
  const std::vector<T> values(count, value);
  return driver_error(
      cudaMemcpyAsync(at(address), values.data(), count * sizeof(T), cudaMemcpyHostToDevice, stream));
}

} // namespace

CUresult cuMemGetInfo(size_t *free, size_t *total) { return driver_error(cudaMemGetInfo(free, total)); }

CUresult cuMemAlloc(CUdeviceptr *address, size_t bytes) {
  if (!address || bytes == 0)
    return CUDA_ERROR_INVALID_VALUE;
  return driver_error(cudaMalloc(reinterpret_cast<void **>(address), bytes));
}

CUresult cuMemAllocPitch(CUdeviceptr *address, size_t *pitch, size_t width, size_t height, unsigned) {
  return driver_error(cudaMallocPitch(reinterpret_cast<void **>(address), pitch, width, height));
}

CUresult cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned flags) {
  return driver_error(cudaMallocManaged(reinterpret_cast<void **>(address), bytes, flags));
}

CUresult cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream stream) {
  return driver_error(cudaMallocAsync(reinterpret_cast<void **>(address), bytes, stream));
}

CUresult cuMemFree(CUdeviceptr address) { return driver_error(cudaFree(at(address))); }

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
  return driver_error(cudaFreeAsync(at(address), stream));
}

CUresult cuMemAllocHost(void **pointer, size_t bytes) { return driver_error(cudaMallocHost(pointer, bytes)); }

CUresult cuMemHostAlloc(void **pointer, size_t bytes, unsigned flags) {
  return driver_error(cudaHostAlloc(pointer, bytes, flags));
}

CUresult cuMemFreeHost(void *pointer) { return driver_error(cudaFreeHost(pointer)); }

CUresult cuMemHostRegister(void *pointer, size_t bytes, unsigned flags) {
  return driver_error(cudaHostRegister(pointer, bytes, flags));
}

CUresult cuMemHostUnregister(void *pointer) { return driver_error(cudaHostUnregister(pointer)); }

CUresult cuMemHostGetDevicePointer(CUdeviceptr *address, void *pointer, unsigned flags) {
  return driver_error(cudaHostGetDevicePointer(reinterpret_cast<void **>(address), pointer, flags));
}

CUresult cuMemGetAddressRange(CUdeviceptr *begin, size_t *bytes, CUdeviceptr address) {
  return on_driver([&] {
    const auto allocation = Allocations::instance().find(at(address));
    require(allocation.has_value(), cudaError_t(CUDA_ERROR_NOT_FOUND));
    if (begin)
      *begin = allocation->begin;
    if (bytes)
      *bytes = allocation->bytes;
  });
}

CUresult cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t bytes) {
  return driver_error(cudaMemcpy(at(to), from, bytes, cudaMemcpyHostToDevice));
}

CUresult cuMemcpyDtoH(void *to, CUdeviceptr from, size_t bytes) {
  return driver_error(cudaMemcpy(to, at(from), bytes, cudaMemcpyDeviceToHost));
}

CUresult cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return driver_error(cudaMemcpy(at(to), at(from), bytes, cudaMemcpyDeviceToDevice));
}

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return driver_error(cudaMemcpy(at(to), at(from), bytes, cudaMemcpyDefault));
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t bytes, CUstream stream) {
  return driver_error(cudaMemcpyAsync(at(to), from, bytes, cudaMemcpyHostToDevice, stream));
}

CUresult cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return driver_error(cudaMemcpyAsync(to, at(from), bytes, cudaMemcpyDeviceToHost, stream));
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return driver_error(cudaMemcpyAsync(at(to), at(from), bytes, cudaMemcpyDeviceToDevice, stream));
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return driver_error(cudaMemcpyAsync(at(to), at(from), bytes, cudaMemcpyDefault, stream));
}

CUresult cuMemsetD8(CUdeviceptr address, unsigned char value, size_t count) {
  return driver_error(cudaMemset(at(address), value, count));
}

CUresult cuMemsetD16(CUdeviceptr address, unsigned short value, size_t count) {
  return fill(address, value, count, nullptr);
}

CUresult cuMemsetD32(CUdeviceptr address, unsigned value, size_t count) {
  return fill(address, value, count, nullptr);
}

CUresult cuMemsetD8Async(CUdeviceptr address, unsigned char value, size_t count, CUstream stream) {
  return driver_error(cudaMemsetAsync(at(address), value, count, stream));
}

CUresult cuMemsetD32Async(CUdeviceptr address, unsigned value, size_t count, CUstream stream) {
  return fill(address, value, count, stream);
}

CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
  return driver_error(cudaStreamCreateWithFlags(stream, flags));
}

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority) {
  return driver_error(cudaStreamCreateWithPriority(stream, flags, priority));
}

CUresult cuStreamDestroy(CUstream stream) { return driver_error(cudaStreamDestroy(stream)); }

CUresult cuStreamSynchronize(CUstream stream) { return driver_error(cudaStreamSynchronize(stream)); }

CUresult cuStreamQuery(CUstream stream) { return driver_error(cudaStreamQuery(stream)); }

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
  return driver_error(cudaStreamWaitEvent(stream, event, flags));
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void *data) {
  return driver_error(cudaLaunchHostFunc(stream, function, data));
}

CUresult cuEventCreate(CUevent *event, unsigned flags) {
  return driver_error(cudaEventCreateWithFlags(event, flags));
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
  return driver_error(cudaEventRecord(event, stream));
}

CUresult cuEventQuery(CUevent event) { return driver_error(cudaEventQuery(event)); }

CUresult cuEventSynchronize(CUevent event) { return driver_error(cudaEventSynchronize(event)); }

CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
  return driver_error(cudaEventElapsedTime(milliseconds, start, end));
}

CUresult cuEventDestroy(CUevent event) { return driver_error(cudaEventDestroy(event)); }
