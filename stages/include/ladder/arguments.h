// The arguments of a launch, by the names of the problem struct's fields; tensors are raw device pointers, so
// that neither torch's headers nor its ABI are needed. binding.cpp, which fills them in, is compiled once for
// all operations.
//
// <operation>_binding.cpp fills in the struct:
//
//   ladder::Launch ladder::bind_launch(Arguments &arguments) {
//     RowSoftmaxProblem problem{};
//     arguments.tensor("x", problem.x);
//     ...
//     return [problem](cudaStream_t stream) { launch(problem, stream); };
//   }
#pragma once

#include <array>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <functional>
#include <stdexcept>
#include <string>

#include "ladder/problem.h"

namespace ladder {

/// The arguments of a launch. A missing argument or a value of the wrong kind throws std::invalid_argument.
class Arguments {
public:
  virtual ~Arguments() = default;

  /// A device pointer, a multiple of `alignment` bytes.
  template <typename T> void tensor(const char *name, T *&field, unsigned alignment = 1) {
    optional_tensor(name, field, alignment);
    if (field == nullptr)
      throw std::invalid_argument(std::string(name) + " must not be null");
  }

  /// The same, or null for a tensor that the problem does not have.
  template <typename T> void optional_tensor(const char *name, T *&field, unsigned alignment = 1) {
    const std::uintptr_t pointer = address(name);
    if (pointer % alignment != 0)
      throw std::invalid_argument(std::string(name) + " must be aligned to " + std::to_string(alignment) +
                                  " bytes");
    field = reinterpret_cast<T *>(pointer);
  }

  /// A whole number of at least `least`.
  void size(const char *name, int &field, int least = 1) {
    field = integer(name);
    if (field < least)
      throw std::invalid_argument(std::string(name) + " must be at least " + std::to_string(least));
  }

  void strides(const char *name, Strides &field) {
    const std::array<std::int64_t, 3> values = integers(name);
    field = {values[0], values[1], values[2]};
  }

  void number(const char *name, int &field) { field = integer(name); }
  void number(const char *name, float &field) { field = real(name); }
  void flag(const char *name, bool &field) { field = boolean(name); }

  void dtype(const char *name, DType &field) {
    const std::string word = text(name);
    if (word == "f32")
      field = DType::f32;
    else if (word == "f16")
      field = DType::f16;
    else if (word == "bf16")
      field = DType::bf16;
    else
      throw std::invalid_argument("dtype must be f32, f16 or bf16, not " + word);
  }

protected:
  virtual std::uintptr_t address(const char *name) = 0;
  virtual int integer(const char *name) = 0;
  virtual std::array<std::int64_t, 3> integers(const char *name) = 0;
  virtual float real(const char *name) = 0;
  virtual bool boolean(const char *name) = 0;
  virtual std::string text(const char *name) = 0;
};

/// Enqueues a problem's work on a stream.
using Launch = std::function<void(cudaStream_t)>;

/// Defined by each <operation>_binding.cpp: the launch of the problem that the arguments describe.
Launch bind_launch(Arguments &arguments);

} // namespace ladder
