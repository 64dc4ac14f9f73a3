// Allocation.
#include "runtime/observe/checking.h"
#include "runtime/work/allocations.h"
#include "runtime/work/entry.h"
#include "runtime/work/graph_memory.h"
#include "runtime/work/graph_nodes.h"
#include "runtime/work/streams.h"

#include <algorithm>
#include <sys/mman.h>
#include <unistd.h>

using namespace ladder::runtime;

namespace {

constexpr std::size_t kPitch = 512;

/// The only memory pool; it has no state.
cudaMemPool_t const kPool = reinterpret_cast<cudaMemPool_t>(0x1);

/// a * b. Throws CudaError(cudaErrorMemoryAllocation) on overflow.
std::size_t product(std::size_t a, std::size_t b) {
  std::size_t all;
  require(!__builtin_mul_overflow(a, b, &all), cudaErrorMemoryAllocation);
  return all;
}

std::size_t pitch_of(std::size_t width) { return product(width / kPitch + (width % kPitch != 0), kPitch); }

void allocate(void **pointer, std::size_t bytes, MemoryKind kind, const char *name, unsigned flags = 0) {
  require(pointer);
  *pointer = Allocations::instance().allocate(bytes, kind, name, flags);
}

/// True if all these pages are mapped and the host could hold them.
bool is_mapped(const void *pointer, std::size_t bytes) {
  const auto page = std::uint64_t(sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<std::uint64_t>(pointer), begin = address / page * page;
  std::uint64_t end;
  // MS_ASYNC has no effect on mapped memory.
  return bytes / page <= std::uint64_t(sysconf(_SC_PHYS_PAGES)) &&
         !__builtin_add_overflow(address, bytes, &end) &&
         msync(reinterpret_cast<void *>(begin), end - begin, MS_ASYNC) == 0;
}

void free_device(void *pointer) {
  if (const auto memory = GraphMemory::find(pointer))
    memory->free();
  else if (pointer)
    require(Allocations::instance().free(pointer, {MemoryKind::device, MemoryKind::managed}),
            cudaErrorInvalidValue,
            "cudaFree of a pointer that cudaMalloc did not return, or that is already freed",
            ladder::sanitizer::Kind::bad_free);
}

/// Records work that concerns a whole allocation.
void note_whole(const char *name, const void *pointer) {
  Checking *const checking = Checking::active();
  const auto allocation = checking ? Allocations::instance().find(pointer) : std::nullopt;
  if (allocation)
    checking->worked(name, {{allocation->begin, allocation->begin + allocation->bytes, true}});
}

} // namespace

cudaError_t cudaMalloc(void **pointer, size_t bytes) {
  return on_device([&] {
    refuse_unsafe_call();
    allocate(pointer, bytes, MemoryKind::device, "cudaMalloc");
  });
}

cudaError_t cudaMallocPitch(void **pointer, size_t *pitch, size_t width, size_t height) {
  return on_device([&] {
    set(pitch, pitch_of(width));
    allocate(pointer, product(*pitch, height), MemoryKind::device, "cudaMallocPitch");
  });
}

cudaError_t cudaMalloc3D(cudaPitchedPtr *pitched, cudaExtent extent) {
  return on_device([&] {
    require(pitched);
    pitched->pitch = pitch_of(extent.width);
    pitched->xsize = extent.width;
    pitched->ysize = extent.height;
    allocate(&pitched->ptr, product(product(pitched->pitch, extent.height), extent.depth), MemoryKind::device,
             "cudaMalloc3D");
  });
}

cudaError_t cudaMallocManaged(void **pointer, size_t bytes, unsigned flags) {
  return on_device([&] {
    require(bytes > 0 && (flags == cudaMemAttachGlobal || flags == cudaMemAttachHost));
    allocate(pointer, bytes, MemoryKind::managed, "cudaMallocManaged");
  });
}

cudaError_t cudaMallocAsync(void **pointer, size_t bytes, cudaStream_t stream) {
  return on_stream(
      stream,
      [&] {
        allocate(pointer, bytes, MemoryKind::device, "cudaMallocAsync");
        note_whole("cudaMallocAsync", *pointer);
      },
      [&] {
        require(pointer);
        AllocateWork work{GraphMemory::make(bytes), {}};
        work.what.bytesize = bytes;
        *pointer = work.what.dptr = work.memory->pointer();
        return work;
      });
}

cudaError_t cudaHostAlloc(void **pointer, size_t bytes, unsigned flags) {
  return on_device([&] { allocate(pointer, bytes, MemoryKind::host, "cudaHostAlloc", flags); });
}

cudaError_t cudaMallocHost(void **pointer, size_t bytes) {
  return on_device([&] { allocate(pointer, bytes, MemoryKind::host, "cudaMallocHost"); });
}

cudaError_t cudaFree(void *pointer) {
  return on_device([&] {
    refuse_unsafe_call();
    PendingWork::instance().wait_for_all();
    free_device(pointer);
    if (Checking *const checking = Checking::active())
      checking->streams().host_waits_for_all();
  });
}

cudaError_t cudaFreeAsync(void *pointer, cudaStream_t stream) {
  return on_stream(
      stream,
      [&] {
        note_whole("cudaFreeAsync", pointer);
        free_device(pointer);
      },
      [&] { return free_of(pointer); });
}

cudaError_t cudaFreeHost(void *pointer) {
  return on_device([&] {
    PendingWork::instance().wait_for_all();
    if (pointer)
      require(Allocations::instance().free(pointer, {MemoryKind::host}), cudaErrorInvalidValue,
              "cudaFreeHost of a pointer that cudaMallocHost did not return, or that is already freed",
              ladder::sanitizer::Kind::bad_free);
  });
}

cudaError_t cudaHostRegister(void *pointer, size_t bytes, unsigned flags) {
  return on_device([&] {
    require(pointer && bytes > 0 && is_mapped(pointer, bytes));
    require(Allocations::instance().add_registered(pointer, bytes, flags),
            cudaErrorHostMemoryAlreadyRegistered);
  });
}

cudaError_t cudaHostUnregister(void *pointer) {
  return on_device([&] {
    PendingWork::instance().wait_for_all();
    require(Allocations::instance().remove_registered(pointer), cudaErrorHostMemoryNotRegistered);
  });
}

cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned flags) {
  return on_device([&] {
    require(device && flags == 0);
    const auto allocation = Allocations::instance().find(host);
    require(allocation &&
            (allocation->kind == MemoryKind::host || allocation->kind == MemoryKind::registered));
    *device = host;
  });
}

cudaError_t cudaHostGetFlags(unsigned *flags, void *host) {
  return on_device([&] {
    const auto allocation = Allocations::instance().find(host);
    require(flags && allocation && allocation->kind == MemoryKind::host);
    *flags = allocation->flags | cudaHostAllocMapped;
  });
}

cudaError_t cudaMemGetInfo(size_t *free, size_t *total) {
  return on_device([&] {
    require(free && total);
    *total = Device::instance().gpu().global_bytes;
    const std::uint64_t unused = *total - std::min<std::uint64_t>(*total, Allocations::instance().used());
    // At most what the host has, since it backs the memory.
    *free = std::min<std::uint64_t>(unused, std::uint64_t(sysconf(_SC_AVPHYS_PAGES)) *
                                                std::uint64_t(sysconf(_SC_PAGESIZE)));
  });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *attributes, const void *pointer) {
  return on_device([&] {
    require(attributes);
    *attributes = {};
    void *const address = const_cast<void *>(pointer);
    const auto allocation = Allocations::instance().find(pointer);
    if (!allocation) {
      // A module's variable or a registered tensor is device memory; anything else is the host's.
      const bool known =
          Device::instance().memory().find(reinterpret_cast<std::uint64_t>(pointer), 1) != nullptr;
      attributes->type = known ? cudaMemoryTypeDevice : cudaMemoryTypeUnregistered;
      attributes->device = known ? 0 : cudaInvalidDeviceId;
      attributes->devicePointer = known ? address : nullptr;
      attributes->hostPointer = known ? nullptr : address;
      return;
    }
    const bool on_host = allocation->kind == MemoryKind::host || allocation->kind == MemoryKind::registered;
    attributes->type = on_host                                   ? cudaMemoryTypeHost
                       : allocation->kind == MemoryKind::managed ? cudaMemoryTypeManaged
                                                                 : cudaMemoryTypeDevice;
    attributes->device = 0;
    attributes->devicePointer = address;
    attributes->hostPointer = allocation->kind == MemoryKind::device ? nullptr : address;
  });
}

cudaError_t cudaMemAdvise(const void *pointer, size_t bytes, cudaMemoryAdvise, cudaMemLocation) {
  return on_device([&] { require(pointer && bytes > 0); });
}

cudaError_t cudaMemPrefetchAsync(const void *pointer, size_t bytes, cudaMemLocation, unsigned,
                                 cudaStream_t stream) {
  return on_device([&] {
    require(pointer && bytes > 0);
    require_stream(stream);
  });
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device) {
  return on_device([&] {
    require(pool);
    require(device == 0, cudaErrorInvalidDevice);
    *pool = kPool;
  });
}

cudaError_t cudaDeviceGetMemPool(cudaMemPool_t *pool, int device) {
  return cudaDeviceGetDefaultMemPool(pool, device);
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr, void *value) {
  return on_device([&] { require(pool == kPool && value); });
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void *value) {
  return on_device([&] {
    require(pool == kPool && value);
    switch (attribute) {
    case cudaMemPoolAttrUsedMemCurrent:
    case cudaMemPoolAttrReservedMemCurrent:
      *static_cast<std::uint64_t *>(value) = Allocations::instance().used();
      return;
    case cudaMemPoolAttrReleaseThreshold:
      *static_cast<std::uint64_t *>(value) = 0;
      return;
    default:
      throw CudaError(cudaErrorNotSupported, "cudaMemPoolGetAttribute of this attribute");
    }
  });
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t) {
  return on_device([&] { require(pool == kPool); });
}

cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t pool) {
  return on_device([&] {
    require(device == 0, cudaErrorInvalidDevice);
    require(pool == kPool);
  });
}

// Every pool is the one that there is: pools differ only in when they return memory to the system.
cudaError_t cudaMemPoolCreate(cudaMemPool_t *pool, const cudaMemPoolProps *properties) {
  return on_device([&] {
    require(properties);
    require(properties->location.type == cudaMemLocationTypeDevice && properties->location.id == 0,
            cudaErrorNotSupported, "cudaMemPoolCreate: only pools on device 0 are emulated");
    set(pool, kPool);
  });
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  return on_device([&] { require(pool == kPool); });
}

cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const cudaMemAccessDesc *list, size_t count) {
  return on_device([&] {
    require(pool == kPool && (list || count == 0));
    for (std::size_t i = 0; i < count; ++i)
      require(list[i].location.type != cudaMemLocationTypeDevice || list[i].location.id == 0,
              cudaErrorInvalidDevice);
  });
}

cudaError_t cudaMemPoolGetAccess(cudaMemAccessFlags *flags, cudaMemPool_t pool, cudaMemLocation *location) {
  return on_device([&] {
    require(pool == kPool && location);
    set(flags, cudaMemAccessFlagsProtReadWrite);
  });
}

cudaError_t cudaMallocFromPoolAsync(void **pointer, size_t bytes, cudaMemPool_t pool, cudaStream_t stream) {
  if (pool != kPool)
    return on_device([] { throw CudaError(cudaErrorInvalidValue); });
  return cudaMallocAsync(pointer, bytes, stream);
}
