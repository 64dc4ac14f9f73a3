// The entry of a stage's library: one C function, ladder_launch, so that a build fits every version of
// Python. It is the same for all operations except for bind_launch in <operation>_binding.cpp.
// ladder/run/backends/extension.py calls it and has the same structs.
#include <algorithm>
#include <array>
#include <bitset>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <limits>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include "ladder/arguments.h"
#include "ladder/definitions.h"
#include "tiles/error.h"

namespace {

enum Kind : std::int32_t { kTensor, kBoolean, kInteger, kIntegers, kReal, kText };

/// An argument by name. `integers` holds one number, or three if `kind` is kIntegers; of a tensor, the place
/// of its address among those of the launch.
struct NamedValue {
  const char *name;
  const char *text;
  std::int64_t integers[3];
  double real;
  Kind kind;
};

/// Named values, each of which must be used once.
class NamedArguments final : public ladder::Arguments {
public:
  NamedArguments(std::span<const NamedValue> values, const std::uintptr_t *addresses)
      : values_(values), addresses_(addresses) {
    if (values.size() > taken_.size())
      throw std::invalid_argument("a launch has at most " + std::to_string(taken_.size()) + " arguments");
  }

  /// Throws std::invalid_argument if an argument was not used.
  void finish() const {
    for (std::size_t i = 0; i < values_.size(); ++i)
      if (!taken_[i])
        throw std::invalid_argument(std::string("there is no argument ") + values_[i].name);
  }

private:
  std::uintptr_t address(const char *name) override { return addresses_[take(name, kTensor).integers[0]]; }
  int integer(const char *name) override {
    const std::int64_t value = take(name, kInteger).integers[0];
    if (value < std::numeric_limits<int>::min() || value > std::numeric_limits<int>::max())
      refuse(name);
    return static_cast<int>(value);
  }
  std::array<std::int64_t, 3> integers(const char *name) override {
    const std::int64_t *three = take(name, kIntegers).integers;
    return {three[0], three[1], three[2]};
  }
  float real(const char *name) override {
    const NamedValue &value = take(name);
    if (value.kind == kInteger)
      return static_cast<float>(value.integers[0]);
    return static_cast<float>(of_kind(value, kReal).real);
  }
  bool boolean(const char *name) override { return take(name, kBoolean).integers[0] != 0; }
  std::string text(const char *name) override { return take(name, kText).text; }

  /// Searches from where the last one was: most come in the order of the struct's fields.
  const NamedValue &take(const char *name) {
    for (std::size_t step = 0; step < values_.size(); ++step, ++next_) {
      next_ %= values_.size();
      const NamedValue &value = values_[next_];
      if (std::string_view(value.name) != name)
        continue;
      taken_.set(next_++);
      return value;
    }
    throw std::invalid_argument(std::string("there is no ") + name);
  }

  const NamedValue &take(const char *name, Kind kind) { return of_kind(take(name), kind); }

  static const NamedValue &of_kind(const NamedValue &value, Kind kind) {
    if (value.kind != kind)
      refuse(value.name);
    return value;
  }

  [[noreturn]] static void refuse(const char *name) {
    throw std::invalid_argument(std::string(name) + " has a value that it cannot have");
  }

  std::span<const NamedValue> values_;
  const std::uintptr_t *addresses_;
  std::bitset<64> taken_;
  std::size_t next_ = 0;
};

enum Status { kLaunched, kUnsupported, kFailed };

/// Why this thread's last launch was not made.
thread_local std::string reason;

Status refused(Status status, const char *why) {
  reason = why;
  return status;
}

} // namespace

/// Enqueues the stage's work on `stream`. The arguments have the names of the problem struct's fields;
/// tensors are device pointers. A stage throws std::invalid_argument or tiles::Unsupported for a problem that
/// it does not support; any other exception is an error.
extern "C" __attribute__((visibility("default"))) int
ladder_launch(const NamedValue *values, int count, const std::uintptr_t *addresses, cudaStream_t stream) {
  try {
    NamedArguments arguments({values, static_cast<std::size_t>(count)}, addresses);
    const ladder::Launch launch = ladder::bind_launch(arguments);
    arguments.finish();
    launch(stream);
    return kLaunched;
  } catch (const std::invalid_argument &error) {
    return refused(kUnsupported, error.what());
  } catch (const tiles::Unsupported &error) {
    return refused(kUnsupported, error.what());
  } catch (const std::bad_alloc &) {
    return refused(kFailed, "its host code is out of memory (std::bad_alloc)");
  } catch (const std::exception &error) {
    return refused(kFailed, error.what());
  } catch (...) {
    return refused(kFailed, "its host code threw an exception that is no std::exception");
  }
}

extern "C" __attribute__((visibility("default"))) const char *ladder_reason() { return reason.c_str(); }
