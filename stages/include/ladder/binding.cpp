// The Python side of a stage: module ladder_stage with one function, launch. It is the same for all
// operations except for bind_launch in <operation>_binding.cpp.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <new>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ladder/arguments.h"

namespace {

/// Keyword arguments, each of which must be used once.
class KeywordArguments : public ladder::Arguments {
public:
  explicit KeywordArguments(const pybind11::kwargs &values) : values_(values) {}

  cudaStream_t stream() { return reinterpret_cast<cudaStream_t>(address("stream")); }

  /// Throws std::invalid_argument if an argument was not used.
  void finish() const {
    if (taken_.size() == values_.size())
      return;
    for (const auto &[name, value] : values_)
      if (const auto text = pybind11::cast<std::string>(name);
          std::ranges::find(taken_, text) == taken_.end())
        throw std::invalid_argument("there is no argument " + text);
  }

private:
  std::uintptr_t address(const char *name) override { return take<std::uintptr_t>(name); }
  int integer(const char *name) override { return take<int>(name); }
  std::array<std::int64_t, 3> integers(const char *name) override {
    return take<std::array<std::int64_t, 3>>(name);
  }
  float real(const char *name) override { return take<float>(name); }
  bool boolean(const char *name) override { return take<bool>(name); }
  std::string text(const char *name) override { return take<std::string>(name); }

  template <typename T> T take(const char *name) {
    const pybind11::handle value = PyDict_GetItemString(values_.ptr(), name);
    if (!value)
      throw std::invalid_argument(std::string("there is no ") + name);
    taken_.push_back(name);
    try {
      return pybind11::cast<T>(value);
    } catch (const pybind11::cast_error &) {
      throw std::invalid_argument(std::string(name) + " has a value that it cannot have");
    }
  }

  const pybind11::kwargs &values_;
  std::vector<std::string_view> taken_;
};

/// Keyword arguments but for the tensors, whose addresses come with each launch, in the order of `names`.
class PreparedArguments final : public KeywordArguments {
public:
  PreparedArguments(const pybind11::kwargs &values, const std::vector<std::string> &names,
                    const pybind11::args &addresses)
      : KeywordArguments(values), names_(names), addresses_(addresses) {}

private:
  std::uintptr_t address(const char *name) override {
    const auto found = std::ranges::find(names_, name);
    if (found == names_.end())
      throw std::invalid_argument(std::string("there is no ") + name);
    return pybind11::cast<std::uintptr_t>(addresses_[found - names_.begin()]);
  }

  const std::vector<std::string> &names_;
  const pybind11::args &addresses_;
};

/// A launch of which everything is known but the addresses of its tensors.
struct Prepared {
  std::vector<std::string> names;
  pybind11::kwargs values;
};

/// A stage throws std::invalid_argument for a problem that it does not support. Any other exception is an
/// error.
void launch_or_say_why_not(const ladder::Launch &launch, cudaStream_t stream) {
  try {
    launch(stream);
  } catch (const std::invalid_argument &) {
    throw;
  } catch (const std::bad_alloc &) {
    throw std::runtime_error("its host code is out of memory (std::bad_alloc)");
  } catch (const std::exception &error) {
    throw std::runtime_error(error.what());
  } catch (...) {
    throw std::runtime_error("its host code threw an exception that is no std::exception");
  }
}

} // namespace

PYBIND11_MODULE(ladder_stage, module) {
  pybind11::class_<Prepared>(
      module, "Prepared",
      "A launch whose problem is known; the addresses of the tensors `names` follow the "
      "stream in each call.")
      .def(pybind11::init([](std::vector<std::string> names, const pybind11::kwargs &values) {
             return Prepared{std::move(names), values};
           }),
           pybind11::arg("names"))
      .def("__call__", [](const Prepared &self, std::uintptr_t stream, const pybind11::args &addresses) {
        PreparedArguments arguments(self.values, self.names, addresses);
        const ladder::Launch launch = ladder::bind_launch(arguments);
        pybind11::gil_scoped_release others_may_run;
        launch_or_say_why_not(launch, reinterpret_cast<cudaStream_t>(stream));
      });
  module.def(
      "launch",
      [](const pybind11::kwargs &values) {
        KeywordArguments arguments(values);
        const ladder::Launch launch = ladder::bind_launch(arguments);
        const cudaStream_t stream = arguments.stream();
        arguments.finish();
        pybind11::gil_scoped_release others_may_run;
        launch_or_say_why_not(launch, stream);
      },
      "Enqueues the stage's work on `stream`. Arguments have the names of the problem struct's fields; "
      "tensors are device pointers.\n\n"
      "Raises ValueError for a problem that the stage does not support, RuntimeError when CUDA refuses it.");
}
