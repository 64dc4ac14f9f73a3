// The Python side of a stage: module ladder_stage with one function, launch. It takes tensors as raw device
// pointers, by the names of the problem struct's fields, so that it needs neither torch's headers nor its
// ABI, and is compiled once for all stages of an operation.
//
// <operation>_binding.cpp fills in the struct:
//
//   PYBIND11_MODULE(ladder_stage, module) {
//     ladder::define_launch(module, [](ladder::Arguments &arguments) {
//       ladder::RowSoftmaxProblem problem{};
//       arguments.tensor("x", problem.x);
//       ...
//       return problem;
//     });
//   }
#pragma once

#include <cstdint>
#include <cuda_runtime_api.h>
#include <new>
#include <pybind11/pybind11.h>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>

#include "ladder/problem.h"

namespace ladder {

/// The keyword arguments of a launch. A missing argument, a value of the wrong kind or an unknown name throws
/// std::invalid_argument.
class Arguments {
public:
  explicit Arguments(pybind11::kwargs values) : values_(std::move(values)) {}

  /// A device pointer as an int.
  template <typename T> void tensor(const char *name, T *&field) {
    optional_tensor(name, field);
    if (field == nullptr)
      throw std::invalid_argument(std::string(name) + " must not be null");
  }

  /// The same, or null for a tensor that the problem does not have.
  template <typename T> void optional_tensor(const char *name, T *&field) {
    field = reinterpret_cast<T *>(take<std::uintptr_t>(name));
  }

  /// A whole number of at least `least`.
  void size(const char *name, int &field, int least = 1) {
    field = take<int>(name);
    if (field < least)
      throw std::invalid_argument(std::string(name) + " must be at least " + std::to_string(least));
  }

  void number(const char *name, int &field) { field = take<int>(name); }
  void number(const char *name, float &field) { field = take<float>(name); }
  void flag(const char *name, bool &field) { field = take<bool>(name); }

  void dtype(const char *name, DType &field) {
    const auto text = take<std::string>(name);
    if (text == "f32")
      field = DType::f32;
    else if (text == "f16")
      field = DType::f16;
    else if (text == "bf16")
      field = DType::bf16;
    else
      throw std::invalid_argument("dtype must be f32, f16 or bf16, not " + text);
  }

  cudaStream_t stream() { return reinterpret_cast<cudaStream_t>(take<std::uintptr_t>("stream")); }

  /// Throws if an argument was not taken.
  void finish() const {
    for (const auto &[name, value] : values_)
      if (const auto text = pybind11::cast<std::string>(name); !taken_.contains(text))
        throw std::invalid_argument("there is no argument " + text);
  }

private:
  template <typename T> T take(const char *name) {
    if (!values_.contains(name))
      throw std::invalid_argument(std::string("there is no ") + name);
    taken_.insert(name);
    try {
      return pybind11::cast<T>(values_[name]);
    } catch (const pybind11::cast_error &) {
      throw std::invalid_argument(std::string(name) + " has a value that it cannot have");
    }
  }

  pybind11::kwargs values_;
  std::set<std::string> taken_;
};

/// Only std::invalid_argument says that a stage does not take the problem; whatever else it throws is an
/// error.
template <typename Problem> void launch_or_say_why_not(const Problem &problem, cudaStream_t stream) {
  try {
    launch(problem, stream);
  } catch (const std::invalid_argument &) {
    throw;
  } catch (const std::bad_alloc &) {
    throw std::runtime_error("its host code wants more memory than there is (std::bad_alloc)");
  } catch (const std::exception &error) {
    throw std::runtime_error(error.what());
  } catch (...) {
    throw std::runtime_error("its host code threw something that is no std::exception");
  }
}

/// Defines the module's function `launch`; `problem_of` turns Arguments into the operation's problem struct.
template <typename F> void define_launch(pybind11::module_ &module, F problem_of) {
  module.def(
      "launch",
      [problem_of](pybind11::kwargs values) {
        Arguments arguments(std::move(values));
        const auto problem = problem_of(arguments);
        const cudaStream_t stream = arguments.stream();
        arguments.finish();
        pybind11::gil_scoped_release others_may_run;
        launch_or_say_why_not(problem, stream);
      },
      "Enqueues the stage's work on `stream`. Arguments go by the names of the problem struct's fields, "
      "tensors as device pointers.\n\n"
      "Raises ValueError for a problem that the stage does not support, RuntimeError when CUDA refuses it.");
}

} // namespace ladder
