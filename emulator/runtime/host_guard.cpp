#include "runtime/host_guard.h"

#include "runtime/checking.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <execinfo.h>
#include <mutex>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

namespace ladder::runtime {

namespace {

// The handler may run at any time, so what it reads are atomics in tables of fixed size. What does not fit is
// not guarded.
struct Guarded {
  std::atomic<std::uint64_t> begin{0}, end{0};
};
constexpr std::size_t kMostGuarded = 1 << 16;
std::array<Guarded, kMostGuarded> guarded;
std::atomic<std::size_t> guarded_count{0};
std::atomic<bool> has_opened{false}; ///< the handler has, since all was closed

struct Hit {
  std::uint64_t address;
  void *frames[kMostFrames];
  int count;
};
constexpr std::size_t kMostHits = 256;
std::array<Hit, kMostHits> hits;
std::atomic<std::size_t> hit_count{0};

struct sigaction previous;
std::mutex mutex; // guards what follows
int open_calls = 0;
std::vector<std::size_t> live; // numbers of what is not retired

void protect(const Guarded &memory, int protection) {
  mprotect(reinterpret_cast<void *>(memory.begin.load()), memory.end - memory.begin, protection);
}

void *instruction_of(void *context) {
#if defined(__x86_64__)
  return reinterpret_cast<void *>(static_cast<ucontext_t *>(context)->uc_mcontext.gregs[REG_RIP] + 1);
#elif defined(__aarch64__)
  return reinterpret_cast<void *>(static_cast<ucontext_t *>(context)->uc_mcontext.pc + 1);
#else
  return nullptr;
#endif
}

void handle(int, siginfo_t *info, void *context) {
  const auto address = reinterpret_cast<std::uint64_t>(info->si_addr);
  for (std::size_t i = 0; i < guarded_count.load(); ++i) {
    const Guarded &memory = guarded[i];
    if (address < memory.begin || address >= memory.end)
      continue;
    if (const std::size_t number = hit_count.fetch_add(1); number < kMostHits) {
      Hit &hit = hits[number];
      hit.address = address;
      hit.count = backtrace(hit.frames, kMostFrames);
      // The handler's own frames come first; the place that touched is the one interrupted.
      hit.frames[0] = instruction_of(context);
    }
    has_opened = true;
    protect(memory, PROT_READ | PROT_WRITE);
    return;
  }
  // Not ours: the same instruction meets whoever was in charge before.
  sigaction(SIGSEGV, &previous, nullptr);
}

} // namespace

HostGuard &HostGuard::instance() {
  static HostGuard *const guard = new HostGuard;
  return *guard;
}

HostGuard::HostGuard() {
  void *frame;
  backtrace(&frame, 1); // loads what it needs now, not in the handler
  struct sigaction action{};
  action.sa_sigaction = handle;
  action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  sigaction(SIGSEGV, &action, &previous);
}

void *HostGuard::allocate(std::uint64_t bytes) {
  const auto page = std::uint64_t(sysconf(_SC_PAGESIZE));
  const std::uint64_t room = (bytes + page - 1) / page * page;
  const std::lock_guard lock(mutex);
  // The page after it stays closed, so that two allocations never touch.
  void *const memory =
      mmap(nullptr, room + page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    return nullptr;
  mprotect(memory, room, PROT_READ | PROT_WRITE);
  if (const std::size_t number = guarded_count.load(); number < kMostGuarded) {
    guarded[number].begin = reinterpret_cast<std::uint64_t>(memory);
    guarded[number].end = reinterpret_cast<std::uint64_t>(memory) + room;
    guarded_count = number + 1;
    live.push_back(number);
  }
  return memory;
}

void HostGuard::retire(void *memory) {
  const std::lock_guard lock(mutex);
  const auto found = std::find_if(live.begin(), live.end(), [&](std::size_t number) {
    return guarded[number].begin == reinterpret_cast<std::uint64_t>(memory);
  });
  if (found == live.end())
    return;
  protect(guarded[*found], PROT_NONE);
  madvise(memory, guarded[*found].end - guarded[*found].begin, MADV_DONTNEED);
  live.erase(found);
}

void HostGuard::open() {
  const std::lock_guard lock(mutex);
  if (open_calls++ > 0)
    return;
  for (const std::size_t number : live)
    protect(guarded[number], PROT_READ | PROT_WRITE);
}

void HostGuard::close() {
  const std::lock_guard lock(mutex);
  if (--open_calls > 0)
    return;
  if (has_opened.exchange(false)) { // what was retired, too
    for (std::size_t i = 0; i < guarded_count.load(); ++i)
      protect(guarded[i], PROT_NONE);
  } else {
    for (const std::size_t number : live)
      protect(guarded[number], PROT_NONE);
  }
}

std::vector<HostGuard::Touch> HostGuard::touches() const {
  std::vector<Touch> all;
  for (std::size_t i = 0; i < std::min(hit_count.load(), kMostHits); ++i)
    all.push_back({hits[i].address, place_of(hits[i].frames, hits[i].count)});
  return all;
}

OpenDeviceMemory::OpenDeviceMemory() : is_on_(Checking::active() && Checking::active()->watches_host()) {
  if (is_on_)
    HostGuard::instance().open();
}

OpenDeviceMemory::~OpenDeviceMemory() {
  if (is_on_)
    HostGuard::instance().close();
}

} // namespace ladder::runtime
