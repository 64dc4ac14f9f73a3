// Fuzzes the CUDA runtime with programs of random valid and invalid calls, in one thread and in several.
//
//     fuzz_runtime device|host COUNT SEED FILE
//
// FILE is the PTX that the programs launch. With "device", the sanitizer checks the launches of every other
// program; with "host", it also checks all calls and the host's own accesses, for the whole life of the
// process. Input i of a run is input 0 of a run with SEED + i, and failures name their seed.
#include "binary_image.h"
#include "host_program.h"
#include "runtime/observe/checking.h"
#include "runtime/observe/launch_log.h"
#include "runtime/work/device.h"
#include "runtime/work/registration.h"

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <sanitizer/common_interface_defs.h>
#include <thread>
#include <unistd.h>

extern "C" const char *__asan_default_options() {
  // The emulator itself must handle failing allocations; abort() must show its place.
  return "allocator_may_return_null=1:handle_abort=1:detect_stack_use_after_return=0";
}

namespace {

constexpr std::uint64_t kMostInstructions = 300; // per warp, since one of the kernels loops
constexpr unsigned kMostSeconds = 120;           // per input

volatile unsigned long long current_seed;

void name_seed() {
  char text[64];
  const int length = std::snprintf(text, sizeof text, "the input's seed is %llu\n", current_seed);
  if (write(2, text, std::size_t(length)) < 0)
    return;
}

void hang(int) {
  name_seed();
  const char text[] = "which takes too long\n";
  if (write(2, text, sizeof text - 1) > 0)
    std::_Exit(3);
}

void leave_nothing(fuzz::Exchange &exchange, bool is_exact) {
  for (void *const memory : exchange.memory)
    cudaFree(memory);
  for (const cudaStream_t stream : exchange.streams)
    cudaStreamDestroy(stream);
  for (const cudaEvent_t event : exchange.events)
    cudaEventDestroy(event);
  if (!is_exact)
    cudaDeviceReset();
  cudaGetLastError();
  cudaMemPool_t pool = nullptr;
  std::uint64_t used = 1;
  if (cudaDeviceGetDefaultMemPool(&pool, 0) != cudaSuccess ||
      cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used) != cudaSuccess || used != 0) {
    std::fprintf(stderr, "%llu bytes of device memory are still in use\n",
                 static_cast<unsigned long long>(used));
    std::abort();
  }
}

void run_input(std::uint64_t seed, bool is_checked, fuzz::Device &device) {
  fuzz::Arguments random(seed);
  const std::size_t threads = random.one_in(16) ? 2 + random.below(3) : 1;
  const std::size_t calls = random.one_in(1000) ? 2000 : 1 + random.below(24);
  fuzz::Rules rules;
  rules.is_alone = threads == 1;
  rules.may_break = random.one_in(2);
  rules.is_checked = is_checked;
  fuzz::Exchange exchange;
  std::vector<std::unique_ptr<fuzz::HostProgram>> programs;
  for (std::size_t i = 0; i < threads; ++i)
    programs.push_back(std::make_unique<fuzz::HostProgram>(random.next(), rules, device, exchange));
  const auto all = [&](const std::function<void(fuzz::HostProgram &)> &body) {
    std::vector<std::jthread> others;
    for (std::size_t i = 1; i < threads; ++i)
      others.emplace_back([&, i] { body(*programs[i]); });
    body(*programs[0]);
  };
  programs[0]->prepare();
  all([&](fuzz::HostProgram &program) { program.run(calls); });
  all([](fuzz::HostProgram &program) { program.finish(); });
  leave_nothing(exchange, rules.is_alone || !rules.may_break);
}

} // namespace

int main(int count, char **words) {
  if (count != 5) {
    std::fprintf(stderr, "fuzz_runtime device|host COUNT SEED FILE\n");
    return 2;
  }
  using namespace ladder::runtime;
  const bool watches_host = std::string(words[1]) == "host";
  const unsigned long long inputs = std::strtoull(words[2], nullptr, 10);
  const unsigned long long seed = std::strtoull(words[3], nullptr, 10);
  const std::string ptx = fuzz::read_file(words[4]);
  __sanitizer_set_death_callback(name_seed);
  std::signal(SIGALRM, hang);

  const std::unique_ptr<Checking> whole(watches_host ? new Checking(true) : nullptr);
  ladder::runtime::Device &machine = ladder::runtime::Device::instance();
  machine.set_warp_instruction_limit(kMostInstructions);
  fuzz::Device device;
  device.ptx = &ptx;
  fuzz::BinaryImage image(ptx);
  void **const handle = __cudaRegisterFatBinary(image.wrapper());
  for (int i = 0; i < fuzz::Device::kernels; ++i)
    __cudaRegisterFunction(handle, &device.functions[i], nullptr, fuzz::Device::kKernelNames[i], -1, nullptr,
                           nullptr, nullptr, nullptr, nullptr);
  __cudaRegisterVar(handle, &device.words, nullptr, "words", 0, 256, 0, 0);
  __cudaRegisterVar(handle, &device.table, nullptr, "table", 0, 64, 1, 0);
  __cudaRegisterVar(handle, &device.missing_variable, nullptr, "missing", 0, 4, 0, 0);
  __cudaRegisterManagedVar(handle, &device.shared_by_both, nullptr, "shared_by_both", 0, 32, 0, 0);
  __cudaRegisterFatBinaryEnd(handle);
  if (!__cudaInitModule(handle) || !device.shared_by_both) {
    std::fprintf(stderr, "the PTX cannot be used\n");
    return 1;
  }
  for (unsigned long long i = 0; i < inputs; ++i) {
    current_seed = seed + i;
    alarm(kMostSeconds);
    const auto log = std::make_shared<LaunchLog>(); // also keeps the device from printing
    machine.open_log(log);
    machine.set_threads(current_seed % 8 == 0 ? 2 : 1);
    {
      const std::unique_ptr<Checking> checking(!watches_host && current_seed % 2 ? new Checking : nullptr);
      run_input(current_seed, watches_host || checking, device);
      if (checking)
        checking->to_json();
    }
    machine.close_log(log);
  }
  alarm(0);
  __cudaUnregisterFatBinary(handle);
  std::printf("%llu inputs\n", inputs);
  return 0;
}
