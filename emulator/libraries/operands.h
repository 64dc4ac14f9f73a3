// A call of a library: its operands are checked before it computes. The work is the host's and is not
// counted.
#pragma once

#include "libraries/elements.h"
#include "runtime/observe/stream_order.h"

#include <functional>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

namespace ladder::libraries {

/// A call that the library refuses with a status of its own; the message is for the user.
class Refusal : public std::runtime_error {
public:
  Refusal(int status, const std::string &message) : std::runtime_error(message), status(status) {}
  int status;
};

class Operands {
public:
  explicit Operands(const char *name) : name_(name) {}

  enum class Access { read, write, read_write };
  /// Checks that `columns` of `rows` elements each, `ld` apart, are device memory.
  void matrix(const char *operand, cudaDataType type, const void *data, std::int64_t rows,
              std::int64_t columns, std::int64_t ld, Access access);
  /// The operands are complete: tells the sanitizer.
  void begin();

private:
  std::string name_;
  std::vector<runtime::MemoryUse> uses_;
  std::set<std::string> unwritten_; ///< operands that the sanitizer has reported
};

/// How a call ended: with the status of a refusal, or an error of the runtime.
struct Outcome {
  int refused = 0;
  cudaError_t error = cudaSuccess;
};

/// Runs the body of a library's function. A refusal is printed, and is no error of the CUDA runtime.
Outcome guarded(const char *name, const std::function<void()> &body);

/// Within `guarded`: runs the body as work on a stream, which is named as not counted.
void run_on(const char *name, cudaStream_t stream, const std::function<void()> &body);

/// Live handles of a library. Never destroyed: programs destroy handles in static destructors of their own.
template <typename Object> class Handles {
public:
  void add(Object *object) {
    const std::lock_guard lock(mutex_);
    live_.insert(object);
  }
  bool has(Object *object) {
    const std::lock_guard lock(mutex_);
    return live_.contains(object);
  }
  void remove(Object *object) {
    const std::lock_guard lock(mutex_);
    live_.erase(object);
    delete object;
  }

private:
  std::mutex mutex_;
  std::set<Object *> live_;
};

} // namespace ladder::libraries
