#include "runtime/work/child_launches.h"

#include "machine/address_space.h"
#include "machine/grid.h"
#include "runtime/observe/launch_log.h"
#include "runtime/work/entry.h"
#include "runtime/work/error_names.h"
#include "runtime/work/stream_work.h"

#include <cstdlib>
#include <cstring>
#include <iterator>
#include <utility>

namespace ladder::runtime {

namespace {

// As in cuda_device_runtime_api.h, which only nvcc can read.
constexpr std::uint64_t kNullStream = 0, kTailLaunch = 3, kFireAndForget = 4;
/// Handles of streams and events are larger than those of CUDA's named streams.
constexpr std::uint64_t kFirstHandle = 0x1000;

void require_memory(std::uint64_t address, std::uint64_t bytes) {
  require(bytes == 0 || Device::instance().memory().find(address, bytes), cudaErrorInvalidValue,
          "memory that is not allocated on the device, or too small");
}

std::uint64_t address_of(const std::string &words) { return reinterpret_cast<std::uint64_t>(words.c_str()); }

} // namespace

void allow_children(LaunchRequest &request, KernelOfModule kernels) {
  request.device_work = [kernels = std::move(kernels)](const LaunchRequest &parent, std::size_t pending) {
    return std::make_unique<ChildLaunches>(parent, pending, kernels);
  };
}

void ChildLaunches::Free::operator()(void *memory) const { std::free(memory); }

ChildLaunches::ChildLaunches(const LaunchRequest &parent, std::size_t pending, KernelOfModule kernels)
    : parent_(parent.code), level_(parent.level), kernels_(std::move(kernels)),
      room_(Device::instance().pending_launch_limit() -
            std::min(Device::instance().pending_launch_limit(), pending)),
      last_handle_(kFirstHandle) {}

ChildLaunches::~ChildLaunches() {
  machine::GlobalMemory &memory = Device::instance().memory();
  if (buffers_)
    memory.remove(reinterpret_cast<std::uint64_t>(buffers_.get()));
  for (const auto &[error, words] : words_)
    memory.remove(address_of(words));
}

std::deque<DeviceWork::Piece> ChildLaunches::take() {
  std::deque<Piece> all;
  for (PiecesOfBlocks *const part : {&pieces_, &tail_}) {
    for (auto &[block, pieces] : *part)
      std::ranges::move(pieces, std::back_inserter(all));
    part->clear();
  }
  return all;
}

/// Runs the body under the lock. What it throws becomes the thread's last error; the user is told, since few
/// kernels ask for it.
std::uint32_t ChildLaunches::guarded(Thread thread, const char *what, const std::function<void()> &body) {
  const std::lock_guard lock(mutex_);
  cudaError_t error = cudaSuccess;
  std::string why;
  try {
    body();
  } catch (const CudaError &failed) {
    error = failed.code, why = failed.what();
  } catch (const LaunchRefusal &refused) {
    error = error_of(refused), why = refused.fault.message;
  } catch (const machine::FaultError &failed) {
    if (failed.fault.kind != machine::FaultKind::launch)
      throw;
    error = error_of(failed.fault), why = failed.fault.message;
  }
  if (error != cudaSuccess) {
    errors_[thread] = error;
    Device::instance().tell(std::string(what) + " by a thread of " + demangle(parent_->kernel) +
                            " failed with " + error_name(error) + ": " +
                            (why.empty() ? error_text(error) : why));
  }
  return error;
}

LaunchRequest ChildLaunches::request_of(const Configuration &configuration) const {
  const std::vector<program::Function> &functions = parent_->program->functions;
  const std::uint64_t index = (configuration.kernel - machine::kFunctionWindow) / 16;
  require((configuration.kernel & machine::kWindowMask) == machine::kFunctionWindow &&
              index < functions.size() && functions[index].is_entry,
          cudaErrorInvalidDeviceFunction);
  require(functions[index].parameter_bytes <= kArgumentBytes, cudaErrorInvalidValue,
          "more than 4096 bytes of arguments");
  LaunchRequest request = kernels_(functions[index].name);
  request.grid = configuration.grid;
  request.block = configuration.block;
  request.dynamic_shared_bytes = configuration.shared_bytes;
  request.params.resize(functions[index].parameter_bytes);
  request.level = level_ + 1;
  machine::check_size(*request.code, request.grid, request.block);
  Device::instance().check(request);
  return request;
}

std::uint64_t ChildLaunches::reserve_buffer() {
  require(prepared_.size() < room_, cudaErrorLaunchPendingCountExceeded,
          "too many launches wait for their parents' end (cudaDeviceSetLimit with "
          "cudaLimitDevRuntimePendingLaunchCount allows more)");
  if (!buffers_) {
    buffers_.reset(static_cast<std::uint8_t *>(std::calloc(room_, kArgumentBytes)));
    require(buffers_ != nullptr, cudaErrorMemoryAllocation);
    const auto begin = reinterpret_cast<std::uint64_t>(buffers_.get());
    Device::instance().memory().add({.begin = begin,
                                     .end = begin + room_ * kArgumentBytes,
                                     .writable = true,
                                     .name = "arguments of launches"});
  }
  return reinterpret_cast<std::uint64_t>(buffers_.get()) + prepared_.size() * kArgumentBytes;
}

std::uint32_t ChildLaunches::prepare(Thread thread, const Configuration &configuration,
                                     std::uint64_t &buffer) {
  return guarded(thread, "a launch", [&] {
    LaunchRequest request = request_of(configuration);
    buffer = reserve_buffer();
    prepared_.push_back(std::move(request));
  });
}

std::uint32_t ChildLaunches::launch(Thread thread, std::uint64_t buffer, std::uint64_t stream) {
  return guarded(thread, "a launch", [&] {
    const std::uint64_t offset = buffer - reinterpret_cast<std::uint64_t>(buffers_.get());
    const std::uint64_t number = offset / kArgumentBytes;
    require(buffers_ && offset % kArgumentBytes == 0 && number < prepared_.size() && prepared_[number].code,
            cudaErrorInvalidValue, "these arguments are not of a launch, or are already used");
    if (stream != kFireAndForget && stream != kTailLaunch)
      require_stream(stream);
    LaunchRequest request = std::exchange(prepared_[number], {});
    // A grid that follows another is no deeper.
    request.level -= stream == kTailLaunch;
    require(request.level <= kMostLevels, cudaErrorLaunchMaxDepthExceeded,
            "kernels launch kernels in more than 24 levels");
    std::memcpy(request.params.data(), reinterpret_cast<const void *>(buffer), request.params.size());
    add(thread, std::move(request), stream == kTailLaunch);
  });
}

void ChildLaunches::add(Thread thread, Piece piece, bool at_the_end) {
  (at_the_end ? tail_ : pieces_)[thread.block].push_back(std::move(piece));
}

std::uint32_t ChildLaunches::copy(Thread thread, std::uint64_t destination, std::uint64_t source,
                                  std::uint64_t bytes, std::uint64_t stream) {
  return guarded(thread, "a copy", [&] {
    require_stream(stream);
    require_memory(destination, bytes);
    require_memory(source, bytes);
    const CopyWork work = copy_work(reinterpret_cast<void *>(destination),
                                    reinterpret_cast<const void *>(source), bytes, cudaMemcpyDeviceToDevice);
    add(thread, [work] { perform(work, OnStream::current()); }, false);
  });
}

std::uint32_t ChildLaunches::fill(Thread thread, std::uint64_t destination, int value, std::uint64_t bytes,
                                  std::uint64_t stream) {
  return guarded(thread, "a fill", [&] {
    require_stream(stream);
    require_memory(destination, bytes);
    const FillWork work = fill_work(reinterpret_cast<void *>(destination), bytes, value, bytes, 1);
    add(thread, [work] { perform(work, OnStream::current()); }, false);
  });
}

void ChildLaunches::require_stream(std::uint64_t stream) const {
  require(stream == kNullStream || handles_.contains(stream), cudaErrorInvalidResourceHandle,
          "a stream that no thread of the grid has created");
}

std::uint32_t ChildLaunches::create_stream(Thread thread, std::uint32_t flags, std::uint64_t &stream) {
  return guarded(thread, "cudaStreamCreateWithFlags", [&] {
    require(flags == cudaStreamNonBlocking, cudaErrorInvalidValue, "kernels need cudaStreamNonBlocking");
    handles_.insert(stream = ++last_handle_);
  });
}

std::uint32_t ChildLaunches::create_event(Thread thread, std::uint32_t flags, std::uint64_t &event) {
  return guarded(thread, "cudaEventCreateWithFlags", [&] {
    require(flags == cudaEventDisableTiming, cudaErrorInvalidValue, "kernels need cudaEventDisableTiming");
    handles_.insert(event = ++last_handle_);
  });
}

std::uint32_t ChildLaunches::use(Thread thread, std::uint64_t event, std::uint64_t stream) {
  return guarded(thread, "a call with an event", [&] {
    require_stream(stream);
    require(handles_.contains(event), cudaErrorInvalidResourceHandle,
            "an event that no thread of the grid has created");
  });
}

std::uint32_t ChildLaunches::destroy(Thread thread, std::uint64_t event_or_stream) {
  return guarded(thread, "the end of a stream or event",
                 [&] { require(handles_.erase(event_or_stream) == 1, cudaErrorInvalidResourceHandle); });
}

std::uint32_t ChildLaunches::last_error(Thread thread, bool forget) {
  const std::lock_guard lock(mutex_);
  const auto found = errors_.find(thread);
  if (found == errors_.end())
    return cudaSuccess;
  const cudaError_t error = found->second;
  if (forget)
    errors_.erase(found);
  return error;
}

std::uint64_t ChildLaunches::error_words(std::uint32_t error, bool name) {
  const std::lock_guard lock(mutex_);
  const auto [place, is_new] = words_.try_emplace({error, name});
  std::string &words = place->second;
  if (is_new) {
    words = name ? error_name(cudaError_t(error)) : error_text(cudaError_t(error));
    Device::instance().memory().add({.begin = address_of(words),
                                     .end = address_of(words) + words.size() + 1,
                                     .writable = false,
                                     .name = "the text of an error"});
  }
  return address_of(words);
}

} // namespace ladder::runtime
