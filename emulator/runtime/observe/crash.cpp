#include "runtime/observe/crash.h"

#include <csignal>
#include <cstddef>
#include <sys/mman.h>
#include <unistd.h>

namespace ladder::runtime {

namespace {

constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
constexpr unsigned kMostSeconds = 5;
constexpr std::size_t kStackBytes = 256 * 1024;

void (*words)() = nullptr;

void handle(int number) {
  // From here on these signals end the process, this one included once it is raised again.
  for (const int other : kSignals)
    signal(other, SIG_DFL);
  // The crash may have left a lock held that last_words needs.
  signal(SIGALRM, SIG_DFL);
  sigset_t alarm_only;
  sigemptyset(&alarm_only);
  sigaddset(&alarm_only, SIGALRM);
  pthread_sigmask(SIG_UNBLOCK, &alarm_only, nullptr);
  alarm(kMostSeconds);
  words();
  alarm(0);
  raise(number);
}

} // namespace

void before_a_crash(void (*last_words)()) {
  words = last_words;
  // A separate stack, in case recursion exhausted the thread's.
  stack_t stack{};
  if (sigaltstack(nullptr, &stack) == 0 && stack.ss_flags & SS_DISABLE) {
    void *const memory = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    stack = {.ss_sp = memory, .ss_flags = 0, .ss_size = kStackBytes};
    if (memory != MAP_FAILED)
      sigaltstack(&stack, nullptr);
  }
  for (const int number : kSignals) {
    struct sigaction present{};
    if (sigaction(number, nullptr, &present) != 0 || present.sa_handler != SIG_DFL)
      continue;
    struct sigaction action{};
    action.sa_handler = handle;
    action.sa_flags = SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    sigaction(number, &action, nullptr);
  }
}

} // namespace ladder::runtime
