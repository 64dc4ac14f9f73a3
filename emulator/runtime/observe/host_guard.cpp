#include "runtime/observe/host_guard.h"

#include "runtime/observe/checking.h"
#include "runtime/observe/host_watch.h"

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

// The handler may run at any time, so it reads only atomics in fixed-size tables. Allocations beyond their
// size are not guarded.
struct Guarded {
  std::atomic<std::uint64_t> begin{0}, end{0};
  std::atomic<bool> is_shared{false};
};
constexpr std::size_t kMostGuarded = 1 << 16;
std::array<Guarded, kMostGuarded> guarded;
std::atomic<std::size_t> guarded_count{0};
std::atomic<bool> has_opened{false}; ///< the handler opened something since the last close

/// Memory shared with the host that unfinished work uses.
constexpr std::size_t kMostPending = 1024;
std::array<MemoryUse, kMostPending> pending;
std::atomic<std::size_t> pending_count{0};

struct Hit {
  std::uint64_t address;
  bool is_early;
  void *frames[kMostFrames];
  int count;
};
constexpr std::size_t kMostHits = 256;
std::array<Hit, kMostHits> hits;
std::atomic<std::size_t> hit_count{0};

struct sigaction previous;
std::mutex mutex; // guards what follows
int open_calls = 0;
std::vector<std::size_t> live;   // indices of allocations not retired
std::vector<std::size_t> unused; // indices of released memory

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

#if defined(__x86_64__)
constexpr std::uint8_t kLock = 0xf0;

/// Whether the instruction there is atomic: it has a lock prefix, or is xchg.
bool is_atomic(const std::uint8_t *code) {
  const auto is_prefix = [](std::uint8_t byte) {
    return byte == 0x66 || byte == 0xf2 || byte == 0xf3 || byte >> 4 == 4; // 0x4.: REX
  };
  while (is_prefix(*code))
    ++code;
  return *code == kLock || *code == 0x86 || *code == 0x87;
}

/// Whether a compare-and-swap follows soon: then a plain load is its first guess.
bool is_guess(const std::uint8_t *code) {
  constexpr int kSoon = 96;
  for (int i = 0; i < kSoon; ++i)
    if (code[i] == kLock) {
      const std::uint8_t *const opcode = code + i + 1 + (code[i + 1] >> 4 == 4);
      if (opcode[0] == 0x0f && (opcode[1] == 0xb0 || opcode[1] == 0xb1))
        return true;
    }
  return false;
}
#endif

/// True if the host's access conflicts with unfinished work. A C++ atomic load or store is a plain
/// instruction, so it may meet a flag. Only x86-64 reveals whether it is a write, and
/// whether it is atomic.
bool is_early(std::uint64_t address, const void *context) {
  bool writes = false, swaps = false;
#if defined(__x86_64__)
  constexpr long long kWriteFault = 2;
  const auto &registers = static_cast<const ucontext_t *>(context)->uc_mcontext.gregs;
  const auto *const code = reinterpret_cast<const std::uint8_t *>(registers[REG_RIP]);
  writes = registers[REG_ERR] & kWriteFault;
  swaps = is_atomic(code) || (!writes && is_guess(code));
#endif
  for (std::size_t i = 0; i < pending_count.load(); ++i)
    if (address >= pending[i].begin && address < pending[i].end && (pending[i].writes || writes) &&
        !(pending[i].is_atomic && swaps) && !pending[i].is_flag)
      return true;
  return false;
}

/// Closes the pages that unfinished work uses; pages that it only reads stay readable.
void close_pending(const Guarded &memory) {
  const auto page = std::uint64_t(sysconf(_SC_PAGESIZE));
  for (const bool written : {false, true})
    for (std::size_t i = 0; i < pending_count.load(); ++i) {
      const std::uint64_t begin = std::max(pending[i].begin, memory.begin.load()) / page * page,
                          end = std::min(pending[i].end, memory.end.load());
      if (begin < end && pending[i].writes == written)
        mprotect(reinterpret_cast<void *>(begin), end - begin, written ? PROT_NONE : PROT_READ);
    }
}

void handle(int, siginfo_t *info, void *context) {
  const auto address = reinterpret_cast<std::uint64_t>(info->si_addr);
  for (std::size_t i = 0; i < guarded_count.load(); ++i) {
    const Guarded &memory = guarded[i];
    if (address < memory.begin || address >= memory.end)
      continue;
    if (memory.is_shared && !is_early(address, context)) {
      const auto page = std::uint64_t(sysconf(_SC_PAGESIZE));
      mprotect(reinterpret_cast<void *>(address / page * page), page, PROT_READ | PROT_WRITE);
      return;
    }
    if (const std::size_t number = hit_count.fetch_add(1); number < kMostHits) {
      Hit &hit = hits[number];
      hit.address = address;
      hit.is_early = memory.is_shared;
      hit.count = backtrace(hit.frames, kMostFrames);
      // The handler's own frames come first; replace them by the interrupted instruction.
      hit.frames[0] = instruction_of(context);
    }
    has_opened = true;
    protect(memory, PROT_READ | PROT_WRITE);
    return;
  }
  // Not ours: rerun the instruction under the previous handler.
  sigaction(SIGSEGV, &previous, nullptr);
}

} // namespace

HostGuard &HostGuard::instance() {
  static HostGuard *const guard = new HostGuard;
  return *guard;
}

HostGuard::HostGuard() {
  void *frame;
  backtrace(&frame, 1); // loads its dependencies now instead of in the handler
  struct sigaction action{};
  action.sa_sigaction = handle;
  action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  sigaction(SIGSEGV, &action, &previous);
}

void *HostGuard::allocate(std::uint64_t bytes, bool is_shared) {
  const auto page = std::uint64_t(sysconf(_SC_PAGESIZE));
  const std::uint64_t room = (bytes + page - 1) / page * page;
  const std::lock_guard lock(mutex);
  // The page after it stays closed, so that allocations are never adjacent.
  void *const memory =
      mmap(nullptr, room + page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    return nullptr;
  mprotect(memory, room, PROT_READ | PROT_WRITE);
  const auto begin = reinterpret_cast<std::uint64_t>(memory);
  add(begin, begin + room, is_shared);
  return memory;
}

bool HostGuard::add(std::uint64_t begin, std::uint64_t end, bool is_shared) {
  std::size_t number = guarded_count.load();
  if (!unused.empty()) {
    number = unused.back();
    unused.pop_back();
  } else if (number == kMostGuarded)
    return false;
  guarded[number].begin = begin;
  guarded[number].end = end;
  guarded[number].is_shared = is_shared;
  guarded_count = std::max(guarded_count.load(), number + 1);
  live.push_back(number);
  return true;
}

void HostGuard::adopt(std::uint64_t begin, std::uint64_t end, bool is_shared) {
  const std::lock_guard lock(mutex);
  if (add(begin, end, is_shared) && open_calls == 0 && !is_shared)
    mprotect(reinterpret_cast<void *>(begin), end - begin, PROT_NONE);
}

void HostGuard::release(std::uint64_t begin) {
  const std::lock_guard lock(mutex);
  std::erase_if(live, [&](std::size_t number) {
    Guarded &memory = guarded[number];
    if (memory.begin != begin)
      return false;
    protect(memory, PROT_READ | PROT_WRITE);
    memory.begin = memory.end = 0;
    unused.push_back(number);
    return true;
  });
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
  const bool has_shared = std::any_of(live.begin(), live.end(),
                                      [](std::size_t number) { return guarded[number].is_shared.load(); });
  std::vector<MemoryUse> uses;
  if (Checking *const checking = Checking::active(); checking && has_shared)
    uses = checking->streams().pending();
  pending_count = 0;
  std::copy_n(uses.begin(), std::min(uses.size(), kMostPending), pending.begin());
  pending_count = std::min(uses.size(), kMostPending);
  if (has_opened.exchange(false)) // retired memory included
    for (std::size_t i = 0; i < guarded_count.load(); ++i)
      if (!guarded[i].is_shared)
        protect(guarded[i], PROT_NONE);
  for (const std::size_t number : live)
    if (guarded[number].is_shared)
      close_pending(guarded[number]);
    else
      protect(guarded[number], PROT_NONE);
}

std::vector<HostGuard::Touch> HostGuard::touches() const {
  std::vector<Touch> all;
  for (std::size_t i = 0; i < std::min(hit_count.load(), kMostHits); ++i)
    all.push_back({hits[i].address, place_of(hits[i].frames, hits[i].count), hits[i].is_early});
  return all;
}

void HostGuard::forget_touches() { hit_count = 0; }

namespace {

bool guards() {
  const Checking *const checking = Checking::active();
  return HostWatch::active() || (checking && checking->watches_host());
}

} // namespace

OpenDeviceMemory::OpenDeviceMemory() : is_on_(guards()) {
  if (is_on_)
    HostGuard::instance().open();
}

OpenDeviceMemory::~OpenDeviceMemory() {
  if (is_on_)
    HostGuard::instance().close();
}

ClosedDeviceMemory::ClosedDeviceMemory() : is_on_(guards()) {
  if (is_on_)
    HostGuard::instance().close();
}

ClosedDeviceMemory::~ClosedDeviceMemory() {
  if (is_on_)
    HostGuard::instance().open();
}

} // namespace ladder::runtime
