// The program's bookkeeping: the expected results of calls, and the memory it owns.
#include "host_program.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace fuzz {

namespace {
constexpr std::size_t kBufferBytes = 4096;
constexpr std::size_t kMostBlocks = 8;
constexpr std::size_t kSmall = 10000; ///< the limit of arguments that are not hostile
} // namespace

HostProgram::HostProgram(std::uint64_t seed, const Rules &rules, Device &device, Exchange &exchange)
    : random_(seed), rules_(rules), device_(device), exchange_(exchange), source_(kBufferBytes),
      sink_(kBufferBytes), sink_mirror_(kBufferBytes) {
  blocks_.reserve(kMostBlocks); // places point to them
  for (unsigned char &byte : source_)
    byte = static_cast<unsigned char>(random_.next());
}

void HostProgram::prepare() {
  permit_shared();
  if (rules_.is_alone)
    clear_variables();
}

void HostProgram::run(std::size_t calls) {
  static constexpr void (HostProgram::*actions[])() = {
      &HostProgram::allocate,   &HostProgram::allocate,      &HostProgram::allocate_pitched,
      &HostProgram::release,    &HostProgram::release_wrong, &HostProgram::register_host,
      &HostProgram::ask_memory, &HostProgram::pools,         &HostProgram::copy,
      &HostProgram::copy,       &HostProgram::copy_pitched,  &HostProgram::copy_pitched,
      &HostProgram::set,        &HostProgram::set_pitched,   &HostProgram::copy_symbol,
      &HostProgram::launch,     &HostProgram::launch,        &HostProgram::attributes,
      &HostProgram::occupancy,  &HostProgram::host_function, &HostProgram::streams,
      &HostProgram::events,     &HostProgram::exchange,      &HostProgram::ask,
      &HostProgram::limits,     &HostProgram::errors};
  for (; calls > 0; --calls) {
    if (random_.one_in(150))
      own_binary();
    else
      (this->*random_.one_of(actions))();
    if (rules_.may_break && random_.one_in(is_broken_ ? 4 : 400))
      reset();
  }
}

void HostProgram::finish() {
  if (is_broken_)
    reset();
  if (is_exact())
    for (const Block &block : blocks_)
      verify(block);
  if (is_exact() && sink_ != sink_mirror_)
    fail("a host buffer holds something else");
  if (rules_.is_alone)
    verify_variables();
  while (!blocks_.empty()) {
    Block &block = blocks_.back();
    const cudaError_t code = block.kind == Kind::registered ? cudaHostUnregister(block.pointer)
                             : block.kind == Kind::pinned   ? cudaFreeHost(block.pointer)
                                                            : cudaFree(block.pointer);
    if (is_exact())
      expect("the last free", code, true);
    blocks_.pop_back();
  }
  for (const cudaStream_t stream : streams_)
    call("cudaStreamDestroy", cudaStreamDestroy(stream), is_exact(), true);
  for (const cudaEvent_t event : events_)
    call("cudaEventDestroy", cudaEventDestroy(event), is_exact(), true);
}

// --- verdicts ----------------------------------------------------------------------------------------------

void HostProgram::fail(const std::string &what) const {
  std::fprintf(stderr, "%s\n", what.c_str());
  std::abort(); // the handler names the input
}

void HostProgram::call(const char *name, cudaError_t code, bool is_known, bool must_succeed) {
  const std::string text = std::string(name) + " gives " + cudaGetErrorName(code);
  if (text.ends_with("unrecognized error code"))
    fail(text + " " + std::to_string(int(code)));
  if (!is_exact())
    return;
  if (is_broken_) {
    if (is_known && code == cudaSuccess)
      fail(text + " on a broken device");
    return;
  }
  if (is_known && must_succeed != (code == cudaSuccess))
    fail(text + (must_succeed ? ", and nothing was wrong" : ", and something was wrong"));
  // An error persists until it is read once.
  if (code == cudaSuccess)
    return;
  if (cudaPeekAtLastError() != code || cudaGetLastError() != code)
    fail(text + ", which is not the last error");
  const cudaError_t left = cudaGetLastError();
  is_broken_ = left != cudaSuccess;
  if (is_broken_ && (left != code || !rules_.may_break))
    fail(text + ", which is still the last error after it was read");
}

void HostProgram::verify(const Block &block) {
  if (is_broken_)
    return;
  std::vector<unsigned char> now(block.bytes());
  expect("cudaMemcpy", cudaMemcpy(now.data(), block.pointer, now.size(), cudaMemcpyDefault), true);
  if (now != block.contents)
    fail("memory does not hold what was written to it");
}

void HostProgram::refresh(Block &block) {
  if (!is_broken_)
    expect("cudaMemcpy", cudaMemcpy(block.contents.data(), block.pointer, block.bytes(), cudaMemcpyDefault),
           true);
}

// --- memory ------------------------------------------------------------------------------------------------

void HostProgram::keep(Kind kind, void *pointer, std::size_t bytes) {
  if (!pointer)
    return;
  char *const begin = static_cast<char *>(pointer);
  std::erase_if(freed_, [&](void *old) { return old >= begin && old < begin + bytes; });
  blocks_.push_back({kind, begin, std::vector<unsigned char>(bytes), {}});
}

void HostProgram::forget(std::size_t index) {
  freed_.push_back(blocks_[index].pointer);
  if (&blocks_[index] != &blocks_.back())
    blocks_[index] = std::move(blocks_.back());
  blocks_.pop_back();
}

void HostProgram::allocate() {
  if (blocks_.size() == kMostBlocks)
    return;
  const std::size_t bytes = random_.one_in(500) ? (2 << 20) + random_.below(5000)
                            : random_.one_in(6) ? random_.hostile_size()
                                                : random_.below(3000);
  const bool fits = bytes < std::size_t(1) << 32;
  void *pointer = nullptr;
  void **const result = random_.one_in(20) ? nullptr : &pointer;
  // Other threads' resets would free memory that the host reads.
  const std::size_t ways = is_exact() ? 6 : 2;
  bool is_good = true;
  switch (random_.below(ways)) {
  case 0:
    expect("cudaMalloc", cudaMalloc(result, bytes), fits && result);
    keep(Kind::device, pointer, bytes);
    break;
  case 1: {
    const cudaStream_t on = stream(&is_good);
    expect("cudaMallocAsync", cudaMallocAsync(result, bytes, on), fits && result && is_good);
    keep(Kind::device, pointer, bytes);
    break;
  }
  case 2: {
    const unsigned flags = random_.one_in(5) ? unsigned(random_.integer()) : 1 + unsigned(random_.below(2));
    const bool are_flags = flags == cudaMemAttachGlobal || flags == cudaMemAttachHost;
    expect("cudaMallocManaged", cudaMallocManaged(result, bytes, flags),
           fits && result && bytes && are_flags);
    keep(Kind::managed, pointer, bytes);
    if (pointer) // the sanitizer fills it with a pattern
      blocks_.back().contents.assign(blocks_.back().pointer, blocks_.back().pointer + bytes);
    break;
  }
  case 3:
    expect("cudaMallocHost", cudaMallocHost(result, bytes), fits && result);
    keep(Kind::pinned, pointer, bytes);
    break;
  case 4:
    call("cudaHostAlloc", cudaHostAlloc(result, bytes, unsigned(random_.integer())));
    keep(Kind::pinned, pointer, bytes);
    break;
  default:
    expect("cudaMalloc", cudaMalloc(result, bytes), fits && result);
    keep(Kind::device, pointer, bytes);
  }
}

void HostProgram::allocate_pitched() {
  if (blocks_.size() == kMostBlocks)
    return;
  const std::size_t width = random_.size(600), height = random_.size(6), depth = random_.size(3);
  void *pointer = nullptr;
  std::size_t pitch = 0;
  if (random_.one_in(2)) {
    const cudaError_t code = cudaMallocPitch(&pointer, &pitch, width, height);
    const bool is_empty = width == 0 || height == 0, is_small = width < kSmall && height < kSmall;
    call("cudaMallocPitch", code, is_small || !is_empty, is_small);
    if (code == cudaSuccess && !is_empty && pitch < width)
      fail("cudaMallocPitch gives rows that are too short");
    keep(Kind::device, pointer, pitch * height);
  } else {
    cudaPitchedPtr pitched{};
    const cudaError_t code = cudaMalloc3D(&pitched, {width, height, depth});
    const bool is_empty = width == 0 || height == 0 || depth == 0;
    const bool is_small = width < kSmall && height < kSmall && depth < kSmall;
    call("cudaMalloc3D", code, is_small || !is_empty, is_small);
    if (code == cudaSuccess)
      keep(Kind::device, pitched.ptr, pitched.pitch * height * depth);
  }
}

void HostProgram::release() {
  if (blocks_.empty())
    return;
  const std::size_t index = random_.below(blocks_.size());
  Block &block = blocks_[index];
  if (is_exact())
    verify(block);
  if (is_broken_)
    return;
  if (!is_exact() && random_.one_in(3)) {
    const std::lock_guard lock(exchange_.mutex);
    exchange_.memory.push_back(block.pointer);
    return forget(index);
  }
  switch (block.kind) {
  case Kind::device:
  case Kind::managed:
    if (random_.one_in(2))
      expect("cudaFree", cudaFree(block.pointer), true);
    else
      expect("cudaFreeAsync", cudaFreeAsync(block.pointer, nullptr), true);
    break;
  case Kind::pinned:
    expect("cudaFreeHost", cudaFreeHost(block.pointer), true);
    break;
  case Kind::registered:
    expect("cudaHostUnregister", cudaHostUnregister(block.pointer), true);
    break;
  }
  forget(index);
}

/// Frees pointers that the function must refuse.
void HostProgram::release_wrong() {
  void *pointer = random_.wild_pointer();
  if (!freed_.empty() && rules_.is_alone && random_.one_in(2))
    pointer = random_.one_in(2) ? freed_.back() : freed_[random_.below(freed_.size())];
  else if (!blocks_.empty() && random_.one_in(2)) {
    const Block &block = blocks_[random_.below(blocks_.size())];
    pointer = block.pointer + 1 + random_.below(block.bytes());
  }
  switch (random_.below(5)) {
  case 0:
    expect("cudaFree", cudaFree(pointer), false);
    break;
  case 1:
    expect("cudaFreeHost", cudaFreeHost(pointer), false);
    break;
  case 2:
    expect("cudaHostUnregister", cudaHostUnregister(pointer), false);
    break;
  case 3:
    expect("cudaFreeAsync", cudaFreeAsync(pointer, nullptr), false);
    break;
  default:
    expect("cudaFree", cudaFree(nullptr), true);
  }
}

void HostProgram::register_host() {
  if (blocks_.size() == kMostBlocks || !is_exact())
    return;
  const std::size_t room = 1 + random_.below(2000);
  std::unique_ptr<char[]> memory(new char[room]());
  const std::size_t bytes = random_.one_in(4) ? 0 : random_.one_in(4) ? random_.hostile_size() : room;
  char *const pointer = random_.one_in(10) ? nullptr : memory.get();
  const bool is_good = pointer && bytes == room;
  const cudaError_t code = cudaHostRegister(pointer, bytes, unsigned(random_.below(4)));
  expect("cudaHostRegister", code, is_good);
  if (code != cudaSuccess)
    return;
  if (random_.one_in(4))
    expect("cudaHostRegister", cudaHostRegister(pointer, bytes, 0), false); // a second time
  keep(Kind::registered, pointer, bytes);
  blocks_.back().own = std::move(memory);
}

void HostProgram::reset() {
  is_broken_ = false;
  call("cudaDeviceReset", cudaDeviceReset(), true, true);
  if (is_exact() && cudaGetLastError() != cudaSuccess)
    fail("an error is left after a reset");
  while (!blocks_.empty())
    forget(blocks_.size() - 1);
  for (const cudaStream_t stream : std::exchange(streams_, {}))
    dead_streams_.push_back(stream);
  for (const cudaEvent_t event : std::exchange(events_, {}))
    dead_events_.push_back(event);
}

void HostProgram::ask_memory() {
  const Place where = place(random_.one_in(2) ? Side::device : Side::either, source_, source_);
  switch (random_.below(6)) {
  case 0: {
    cudaPointerAttributes attributes{};
    const cudaError_t code = cudaPointerGetAttributes(&attributes, where.pointer);
    call("cudaPointerGetAttributes", code, true, true);
    if (code == cudaSuccess && is_exact() && where.block) {
      const cudaMemoryType wanted = where.block->is_hosts()              ? cudaMemoryTypeHost
                                    : where.block->kind == Kind::managed ? cudaMemoryTypeManaged
                                                                         : cudaMemoryTypeDevice;
      if (attributes.type != wanted)
        fail("cudaPointerGetAttributes takes memory for another kind");
    }
    break;
  }
  case 1: {
    std::size_t free = 0, total = 0;
    expect("cudaMemGetInfo", cudaMemGetInfo(&free, &total), true);
    if (free > total)
      fail("more memory is free than there is");
    call("cudaMemGetInfo", cudaMemGetInfo(nullptr, &total), true, false);
    break;
  }
  case 2: {
    void *device = nullptr;
    expect("cudaHostGetDevicePointer", cudaHostGetDevicePointer(&device, where.pointer, 0),
           where.block && where.block->is_hosts());
    break;
  }
  case 3: {
    unsigned flags = 0;
    expect("cudaHostGetFlags", cudaHostGetFlags(&flags, where.pointer),
           where.block && where.block->kind == Kind::pinned);
    break;
  }
  case 4:
    call("cudaMemAdvise",
         cudaMemAdvise(where.pointer, random_.size(where.room), random_.enumerator<cudaMemoryAdvise>(7),
                       {random_.enumerator<cudaMemLocationType>(5), random_.integer()}));
    break;
  default: {
    bool is_good = true;
    const cudaStream_t on = stream(&is_good);
    call("cudaMemPrefetchAsync",
         cudaMemPrefetchAsync(where.pointer, random_.size(where.room),
                              {random_.enumerator<cudaMemLocationType>(5), random_.integer()},
                              unsigned(random_.integer()), on),
         !is_good, false);
  }
  }
}

void HostProgram::pools() {
  cudaMemPool_t pool = nullptr;
  const int device = random_.one_in(3) ? random_.integer() : 0;
  expect("cudaDeviceGetDefaultMemPool", cudaDeviceGetDefaultMemPool(&pool, device), device == 0);
  call("cudaDeviceGetMemPool", cudaDeviceGetMemPool(random_.one_in(4) ? nullptr : &pool, 0));
  if (random_.one_in(4))
    pool = static_cast<cudaMemPool_t>(random_.wild_pointer());
  std::uint64_t value[2] = {};
  const auto attribute = random_.enumerator<cudaMemPoolAttr>(9);
  call("cudaMemPoolGetAttribute", cudaMemPoolGetAttribute(pool, attribute, value));
  call("cudaMemPoolSetAttribute", cudaMemPoolSetAttribute(pool, attribute, value));
  call("cudaMemPoolTrimTo", cudaMemPoolTrimTo(pool, random_.hostile_size()));
}

} // namespace fuzz
