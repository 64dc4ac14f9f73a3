// What every launch needs: CUDA errors as exceptions, a grid, and a head dimension as a template argument.
#pragma once

#include <cstdint>
#include <cuda_runtime_api.h>
#include <type_traits>
#include <utility>

#include "ladder/attention.h"
#include "ladder/errors.h"

// A build for known problems, such as the check of an exercise, compiles only the kernels that they need: the
// head dimensions in this sum, and the element types whose bits 1 << DType are set.
#ifndef LADDER_HEAD_DIMS
#define LADDER_HEAD_DIMS ~0
#endif
#ifndef LADDER_DTYPES
#define LADDER_DTYPES ~0
#endif

namespace ladder {

/// Throws std::runtime_error, naming the call `what`, unless `error` is success.
inline void check(cudaError_t error, const char *what) {
  if (error != cudaSuccess)
    fail(what, cudaGetErrorString(error));
}

/// Throws std::invalid_argument unless q, k, v and o can be read and written `bytes` at a time.
inline void require_alignment(const AttentionProblem &problem, unsigned bytes) {
  for (const void *pointer : {problem.q, problem.k, problem.v, static_cast<const void *>(problem.o)})
    if (reinterpret_cast<std::uintptr_t>(pointer) % bytes != 0)
      refuse("q, k, v and o must be aligned to %u bytes", bytes);
}

/// A grid of x * y * z blocks. Throws std::invalid_argument if the current device launches no such grid.
inline dim3 launch_grid(unsigned x, unsigned y, unsigned z = 1) {
  int device = 0, most_x = 0, most_y = 0, most_z = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&most_x, cudaDevAttrMaxGridDimX, device), "cudaDeviceGetAttribute");
  check(cudaDeviceGetAttribute(&most_y, cudaDevAttrMaxGridDimY, device), "cudaDeviceGetAttribute");
  check(cudaDeviceGetAttribute(&most_z, cudaDevAttrMaxGridDimZ, device), "cudaDeviceGetAttribute");
  if (x > unsigned(most_x) || y > unsigned(most_y) || z > unsigned(most_z))
    refuse("the problem is too large for a grid: it would have %u x %u x %u blocks, and this GPU launches "
           "%d x %d x %d",
           x, y, z, most_x, most_y, most_z);
  return dim3(x, y, z);
}

/// The number of SMs of the current device.
inline unsigned multiprocessors() {
  int device = 0, count = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device), "cudaDeviceGetAttribute");
  return count;
}

/// Calls f(std::integral_constant<int, size>) if `size` is one of kSizes. Otherwise throws
/// std::invalid_argument with `name` and the kSizes.
template <int... kSizes, typename F> void dispatch_size(const char *name, int size, F &&f) {
  if (((size == kSizes && (f(std::integral_constant<int, kSizes>{}), true)) || ...))
    return;
  constexpr int sizes[] = {kSizes...};
  refuse_size(name, size, sizes, sizeof...(kSizes));
}

/// The same for the problem's head dimension.
template <int... kHeadDims, typename Problem, typename F>
void dispatch_head_dim(const Problem &problem, F &&f) {
  dispatch_size<kHeadDims...>("head_dim", problem.head_dim, [&](auto head_dim) {
    if constexpr (head_dim & LADDER_HEAD_DIMS)
      f(head_dim);
    else
      refuse("this build leaves out head_dim %d", int(head_dim));
  });
}

} // namespace ladder
