// Memory for extensions that allocate it themselves. Nothing is cached.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/cuda/CUDAStream.h>

namespace c10::cuda::CUDACachingAllocator {

inline Allocator *get() { return GetAllocator(DeviceType::CUDA); }
inline void *raw_alloc(size_t bytes) { return get()->raw_allocate(bytes); }
inline void *raw_alloc_with_stream(size_t bytes, cudaStream_t) { return raw_alloc(bytes); }
inline void raw_delete(void *memory) { get()->raw_deallocate(memory); }
/// Work is complete when a call returns, so memory is never freed too early.
inline void recordStream(const DataPtr &, CUDAStream) {}
inline void emptyCache() {}

} // namespace c10::cuda::CUDACachingAllocator
