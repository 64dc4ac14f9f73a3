// Calls a function, or launches a kernel, whose parameters only its type names. For `ladder verify`, which
// appends a call of one of these to a candidate.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

#include <cuda_runtime.h>

namespace ladder_launch {

// One argument. The parameter's type decides which of the members it is; ladder/call/torch/launching.py has
// the same struct.
struct Value {
  void *pointer;
  long long integer;
  double real;
};

template <class Parameter> std::decay_t<Parameter> as(const Value &value) {
  using T = std::decay_t<Parameter>;
  if constexpr (std::is_pointer_v<T>)
    return static_cast<T>(value.pointer);
  else if constexpr (std::is_integral_v<T> || std::is_enum_v<T>)
    return static_cast<T>(value.integer);
  else
    return T(static_cast<std::conditional_t<std::is_same_v<T, double>, double, float>>(value.real));
}

template <class Result, class... P, std::size_t... I>
void call(Result (*function)(P...), const Value *values, std::index_sequence<I...>) {
  function(as<P>(values[I])...);
}

template <std::size_t count, class Result, class... P>
cudaError_t function(Result (*function)(P...), const Value *values, dim3, dim3, std::size_t) {
  static_assert(sizeof...(P) == count, "the function takes another number of arguments than are given");
  call(function, values, std::index_sequence_for<P...>());
  return cudaGetLastError();
}

template <class... P, std::size_t... I>
void start(void (*kernel)(P...), const Value *values, dim3 grid, dim3 block, std::size_t shared_bytes,
           std::index_sequence<I...>) {
  kernel<<<grid, block, shared_bytes>>>(as<P>(values[I])...);
}

template <std::size_t count, class... P>
cudaError_t kernel(void (*kernel)(P...), const Value *values, dim3 grid, dim3 block,
                   std::size_t shared_bytes) {
  static_assert(sizeof...(P) == count, "the kernel takes another number of arguments than are given");
  if (shared_bytes > 48 << 10)
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
  start(kernel, values, grid, block, shared_bytes, std::index_sequence_for<P...>());
  return cudaGetLastError();
}

} // namespace ladder_launch
