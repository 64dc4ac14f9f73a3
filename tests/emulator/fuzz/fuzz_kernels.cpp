// Fuzzes the machine: mutated PTX is loaded and its kernels run, every other time under the sanitizer. A
// kernel may do anything, and be refused or stopped for it; the emulator itself must not fail.
//
//     fuzz_kernels COUNT SEED FILE...
#include "mutate.h"
#include "program/program.h"
#include "ptx/lexer.h"
#include "runtime/observe/checking.h"
#include "runtime/observe/launch_log.h"
#include "runtime/work/device.h"
#include "runtime/work/loaded_module.h"
#include "runtime/work/lower_layers.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

using namespace ladder;
using runtime::Device;

/// The emulator itself must handle failing allocations.
extern "C" const char *__asan_default_options() { return "allocator_may_return_null=1"; }

namespace {

constexpr std::uint64_t kMostInstructions = 2000; // per warp, since mutants may loop
constexpr std::size_t kBufferBytes = 4096;

/// Runs a kernel on one block with pointers to a buffer for all its arguments.
void run_kernel(runtime::LoadedModule &module, const std::string &name, std::uint64_t buffer) {
  runtime::LaunchRequest request;
  request.code = module.kernel(name);
  request.block = {64, 1, 1};
  request.dynamic_shared_bytes = 1024;
  request.dynamic_shared_limit = 48 * 1024;
  request.params.resize(module.entry(name)->parameter_bytes);
  for (std::size_t i = 0; i + sizeof buffer <= request.params.size(); i += sizeof buffer)
    std::memcpy(request.params.data() + i, &buffer, sizeof buffer);
  Device::instance().launch(request);
}

/// Whether a kernel ran to its end.
bool try_kernels(const std::string &text, bool check, std::uint64_t buffer) {
  Device &device = Device::instance();
  device.reset();
  const auto log = std::make_shared<runtime::LaunchLog>(); // also keeps the device from printing
  device.open_log(log);
  const std::unique_ptr<runtime::Checking> checking(check ? new runtime::Checking : nullptr);
  bool ran = false;
  try {
    runtime::LoadedModule module(text, device.gpu(), device.memory());
    for (const std::string &name : module.kernels()) {
      try {
        run_kernel(module, name, buffer);
        ran = true;
      } catch (const machine::FaultError &) {
        device.reset();
      }
    }
    if (checking)
      checking->to_json();
  } catch (const ptx::SyntaxError &) {
  } catch (const program::LinkError &) {
  } catch (const machine::FaultError &) {
  } catch (const std::bad_alloc &) {
  }
  device.close_log(log);
  return ran;
}

} // namespace

int main(int count, char **words) {
  if (count < 4) {
    std::fprintf(stderr, "fuzz_kernels COUNT SEED FILE...\n");
    return 2;
  }
  const unsigned long long inputs = std::strtoull(words[1], nullptr, 10);
  fuzz::Random random(std::strtoull(words[2], nullptr, 10));
  std::vector<std::string> seeds;
  for (int i = 3; i < count; ++i)
    seeds.push_back(fuzz::read_file(words[i]));
  Device &device = Device::instance();
  device.set_threads(1);
  device.set_warp_instruction_limit(kMostInstructions);
  std::vector<std::uint64_t> buffer(kBufferBytes / 8);
  const auto address = reinterpret_cast<std::uint64_t>(buffer.data());
  device.add_memory({.begin = address, .end = address + kBufferBytes, .writable = true, .name = "buffer"});
  unsigned long long ran = 0;
  for (unsigned long long i = 0; i < inputs; ++i) {
    const std::string input = i % 4 ? fuzz::renumbered(seeds, random) : fuzz::mutated(seeds, random);
    ran += try_kernels(input, i % 2, address);
  }
  std::printf("%llu inputs, %llu ran\n", inputs, ran);
  return 0;
}
