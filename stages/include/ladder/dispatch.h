// From a problem's element type to a kernel's template argument. The headers of 16-bit floats take a third of
// the time that a kernel of fp32 takes to compile.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "ladder/launch.h"

namespace ladder {

/// Calls f(T{}); T is the element type kType. Throws std::invalid_argument if the build leaves it out.
template <typename T, DType kType, typename F> void dispatch_element(F &&f) {
  if constexpr ((1 << int(kType)) & LADDER_DTYPES)
    f(T{});
  else
    refuse("this build leaves out the problem's dtype");
}

/// Calls f(__half{}) or f(__nv_bfloat16{}) for the problem's element type.
/// Throws std::invalid_argument for fp32, and for bf16 on a GPU whose tensor cores lack it.
template <typename Problem, typename F> void dispatch_16_bit(const Problem &problem, F &&f) {
  if (problem.dtype == DType::f16)
    return dispatch_element<__half, DType::f16>(f);
  if (problem.dtype != DType::bf16)
    refuse("dtype must be f16 or bf16");
  int device = 0, major = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "cudaDeviceGetAttribute");
  if (major < 8)
    refuse("bf16 needs a GPU of compute capability 8.0 or later; use f16");
  dispatch_element<__nv_bfloat16, DType::bf16>(f);
}

} // namespace ladder
