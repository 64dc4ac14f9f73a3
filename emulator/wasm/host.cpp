// What the emulator asks of the process that it runs in. A page has no signals, no call stacks and no memory
// of its own that kernels could reach.
#include "runtime/observe/crash.h"
#include "runtime/observe/host_guard.h"
#include "runtime/observe/host_place.h"
#include "runtime/work/device.h"

#include <sys/types.h>

struct iovec;

namespace ladder::runtime {

HostPlace calling_place() { return {}; }
void before_a_crash(void (*)()) {}
void forget_last_error() {}
std::string after_failed_call() { return {}; }

HostGuard::HostGuard() = default;
HostGuard &HostGuard::instance() {
  static HostGuard guard;
  return guard;
}
std::vector<HostGuard::Touch> HostGuard::touches() const { return {}; }

} // namespace ladder::runtime

/// The emulator asks whether an address that no kernel may use is host memory: here it never is.
extern "C" ssize_t process_vm_readv(pid_t, const iovec *, unsigned long, const iovec *, unsigned long,
                                    unsigned long) {
  return -1;
}
