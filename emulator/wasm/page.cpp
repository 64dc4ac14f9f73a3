// The emulator as a page calls it: a session with buffers, launches with their arguments, the counts and
// findings as JSON, and the stops of one warp. Plain values in and out; docs/live/worker.js is the other
// side.
#include "instructions/tensor_map.h"
#include "runtime/observe/checking.h"
#include "runtime/observe/launch_log.h"
#include "runtime/observe/stepper.h"
#include "runtime/work/device.h"
#include "runtime/work/loaded_module.h"

#include <emscripten.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

using namespace ladder;
using runtime::Device;
using runtime::Stepper;

/// Returns 0 to end the launch.
EM_JS(int, live_stopped, (int why), { return Module.stopped(why); });

namespace {

constexpr std::size_t kAlignment = 256; // as of cudaMalloc

/// Thrown through a launch whose steps have all been seen.
struct Seen {};

class Session {
public:
  Session(const machine::VirtualGpu &gpu, bool check)
      : gpu_(gpu), checking_(check ? std::make_unique<runtime::Checking>() : nullptr),
        log_(std::make_shared<runtime::LaunchLog>()) {
    Device &device = Device::instance();
    device.set_gpu(gpu);
    device.set_threads(1);
    device.reset();
    device.open_log(log_);
  }
  ~Session() {
    Device &device = Device::instance();
    device.set_stepper(nullptr);
    device.close_log(log_);
    modules_.clear();
    for (const Buffer &buffer : buffers_) {
      device.remove_memory(buffer.begin);
      std::free(buffer.memory);
    }
  }
  Session(const Session &) = delete;

  enum Use { input, output, allocation };
  /// Memory at this distance from an aligned address, filled with 0xff: NaN in all formats.
  std::uint8_t *add_buffer(const char *name, std::size_t bytes, std::size_t distance, Use use) {
    void *const memory =
        std::aligned_alloc(kAlignment, (bytes + distance + kAlignment - 1) / kAlignment * kAlignment);
    if (!memory)
      throw std::bad_alloc();
    auto *const begin = static_cast<std::uint8_t *>(memory) + distance;
    const auto address = std::uint64_t(reinterpret_cast<std::uintptr_t>(begin));
    std::memset(begin, 0xff, bytes);
    buffers_.push_back({memory, address});
    Device::instance().add_memory({address, address + bytes, use != input, name});
    if (checking_ && use == output)
      checking_->track_output(address, bytes, name);
    if (checking_ && use == allocation)
      checking_->allocated(address, bytes, name);
    return begin;
  }

  void load(const char *ptx) {
    modules_.push_back(std::make_unique<runtime::LoadedModule>(ptx, gpu_, Device::instance().memory()));
  }

  struct Moved {
    std::uint32_t offset, address;
  };
  /// `moved`: the words of the arguments that are addresses, and what they are here.
  void launch(const char *kernel, const std::uint32_t *shape, std::vector<std::uint8_t> arguments,
              std::span<const Moved> moved) {
    for (const Moved &word : moved)
      move(arguments, word);
    runtime::LaunchRequest request;
    request.code = modules_.back()->kernel(kernel);
    request.grid = {shape[0], shape[1], shape[2]};
    request.block = {shape[3], shape[4], shape[5]};
    if (const machine::Dim3 cluster{shape[6], shape[7], shape[8]}; cluster.count() > 1)
      request.cluster = cluster;
    request.dynamic_shared_bytes = request.dynamic_shared_limit = shape[9];
    request.allows_large_clusters = true;
    request.params = std::move(arguments);
    Device::instance().launch(request);
  }

  /// Ends the checks; then all findings are known.
  void finish() {
    if (checking_)
      checking_->finish();
  }

  std::string json() const {
    return runtime::to_json(*log_, std::string(gpu_.arch), Device::instance().last_fault(), {},
                            checking_ ? checking_->to_json() : "[]", std::nullopt);
  }

private:
  static void move(std::vector<std::uint8_t> &arguments, const Moved &word) {
    using instructions::kTensorMapBytes;
    using instructions::TensorMap;
    constexpr std::size_t kMapAlignment = 64;
    const std::size_t begin = word.offset / kMapAlignment * kMapAlignment;
    if (begin + kTensorMapBytes <= arguments.size())
      // It contains a check of its contents, so it is made again.
      if (std::optional<TensorMap> map = TensorMap::load(&arguments[begin])) {
        map->base = word.address;
        return map->store(&arguments[begin]);
      }
    const std::uint64_t address = word.address;
    std::memcpy(&arguments.at(word.offset), &address, sizeof address);
  }

  struct Buffer {
    void *memory;
    std::uint64_t begin;
  };
  const machine::VirtualGpu &gpu_;
  std::unique_ptr<runtime::Checking> checking_;
  std::shared_ptr<runtime::LaunchLog> log_;
  std::vector<Buffer> buffers_;
  std::vector<std::unique_ptr<runtime::LoadedModule>> modules_;
};

std::unique_ptr<Session> session;
std::unique_ptr<Stepper> stepper;
std::string message, text;
std::vector<std::uint64_t> values;

enum Outcome { done, ended_by_page, no_memory, failed };

template <typename Work> Outcome tried(Work work) {
  try {
    work();
    return done;
  } catch (const Seen &) {
    return ended_by_page;
  } catch (const std::bad_alloc &) {
    return no_memory;
  } catch (const std::exception &error) { // a fault, or PTX that the emulator refuses
    message = error.what();
    return failed;
  }
}

const std::uint64_t *kept(std::vector<std::uint64_t> all) {
  values = std::move(all);
  return values.data();
}

} // namespace

extern "C" {

int live_open(const char *arch, int check) {
  return tried([&] {
    session.reset();
    stepper.reset();
    const machine::VirtualGpu *const gpu = machine::find_gpu(arch);
    if (!gpu)
      throw std::invalid_argument(std::string("there is no virtual GPU ") + arch);
    session = std::make_unique<Session>(*gpu, check != 0);
  });
}

/// The buffer's address; 0 if there is no memory for it.
std::uint8_t *live_buffer(const char *name, std::uint32_t bytes, std::uint32_t distance, int use) {
  std::uint8_t *begin = nullptr;
  tried([&] { begin = session->add_buffer(name, bytes, distance, Session::Use(use)); });
  return begin;
}

int live_load(const char *ptx) {
  return tried([&] { session->load(ptx); });
}

/// `shape`: grid, block and cluster, 3 each, and the bytes of dynamic shared memory. `moved`: offsets of
/// addresses in the arguments, each with the address.
int live_launch(const char *kernel, const std::uint32_t *shape, const std::uint8_t *arguments,
                std::uint32_t bytes, const std::uint32_t *moved, std::uint32_t count) {
  return tried([&] {
    std::vector<Session::Moved> words;
    for (std::uint32_t i = 0; i < count; ++i)
      words.push_back({moved[2 * i], moved[2 * i + 1]});
    session->launch(kernel, shape, {arguments, arguments + bytes}, words);
  });
}

int live_finish() {
  return tried([] { session->finish(); });
}

/// What the session has counted and found, see launch_log.h.
const char *live_json() { return (text = session->json()).c_str(); }

/// Why the last call failed.
const char *live_message() { return message.c_str(); }

// --- stops, for launches to come

void live_follow() {
  stepper = std::make_unique<Stepper>([](Stepper::Why why) {
    if (!live_stopped(int(why)))
      throw Seen();
  });
  Device::instance().set_stepper(stepper.get());
}

void live_step(int step, std::uint32_t block, int warp, int lane) {
  stepper->set_step(Stepper::Step(step), {block, warp, lane});
}

void live_breakpoints(const std::uint32_t *instructions, std::uint32_t count) {
  stepper->set_breakpoints({instructions, instructions + count});
}

void live_stop_at_findings() { stepper->set_stops_at_findings(true); }

/// Block, its rank in the cluster, warp, path, lanes, instruction, number of the instruction; nullptr at the
/// beginning and the end of a launch.
const std::uint64_t *live_here() {
  machine::Warp *const warp = stepper->warp();
  if (!warp)
    return nullptr;
  return kept({warp->block().linear_index(), warp->block().cluster_rank(), std::uint64_t(warp->index()),
               warp->path_mask(), stepper->lanes(), warp->pc(), stepper->number()});
}

/// The paths of a warp: their number, then lanes and instruction of each.
const std::uint64_t *live_paths(std::uint32_t rank, int warp) {
  std::vector<std::uint64_t> all{0};
  for (const Stepper::WarpAt &one : stepper->warps())
    if (one.rank == rank && one.warp == warp)
      for (const machine::LanesAt &at : one.lanes) {
        all.insert(all.end(), {at.lanes, at.pc});
        ++all[0];
      }
  return kept(std::move(all));
}

/// By lane; nullptr if no instruction uses the register.
const std::uint64_t *live_register(std::uint32_t rank, int warp, int lane, const char *name) {
  std::vector<std::uint64_t> all = stepper->register_values({rank, warp, lane, 0}, name);
  return all.empty() ? nullptr : kept(std::move(all));
}

/// Bytes of a lane's local memory or, if `is_parameter`, of a parameter. nullptr: there are none.
const char *live_memory(int is_parameter, std::uint32_t rank, int warp, int lane, const char *symbol,
                        std::uint32_t offset, std::uint32_t bytes) {
  const Stepper::Call call{rank, warp, lane, 0};
  const std::optional<std::string> found = is_parameter ? stepper->parameter(call, symbol, offset, bytes)
                                                        : stepper->local(call, symbol, offset, bytes);
  return found ? (text = *found).data() : nullptr;
}

const char *live_fault() { return (text = stepper->fault()).c_str(); }

/// What the sanitizer has found so far, as JSON.
const char *live_findings() {
  const runtime::Checking *const checking = runtime::Checking::active();
  return (text = checking ? checking->to_json() : "[]").c_str();
}
}
