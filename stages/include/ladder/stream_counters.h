// Which counters in global memory a launch uses, see counter.h and arrivals.h. definitions.h has the
// functions: <map> and <mutex> would take a fifth of the time that a kernel takes to compile.
#pragma once

#include <cuda_runtime_api.h>

namespace ladder::detail {

constexpr int kCounters = 1024;
constexpr int kArrivals = 1 << 18, kArrivalsOfStream = 1 << 13;

/// Streams are numbered in the order of their first launches.
int number_of(cudaStream_t stream, const char *what);

/// The first of `count` arrivals; kArrivals if there are not enough left. Streams get theirs at their first
/// launch, captured launches their own.
int first_arrival(int count, bool is_captured, cudaStream_t stream, const char *what);

} // namespace ladder::detail
