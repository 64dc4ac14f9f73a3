// The functions of errors.h and stream_counters.h, for the one file of a program that is not compiled with
// each kernel.
#pragma once

#include <cstdarg>
#include <cstdio>
#include <map>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>

#include "ladder/errors.h"
#include "ladder/stream_counters.h"

namespace ladder {

void refuse(const char *format, ...) {
  char text[500];
  std::va_list values;
  va_start(values, format);
  std::vsnprintf(text, sizeof text, format, values);
  va_end(values);
  throw std::invalid_argument(text);
}

void refuse_size(const char *name, int size, const int *sizes, int count) {
  std::string all;
  for (const int one : std::span(sizes, count))
    all += (all.empty() ? "" : ", ") + std::to_string(one);
  throw std::invalid_argument(std::string(name) + " must be one of " + all + ", not " + std::to_string(size));
}

void fail(const char *what, const char *why) { throw std::runtime_error(std::string(what) + ": " + why); }

namespace detail {

/// A stream's id, which is never reused.
static unsigned long long id_of(cudaStream_t stream, const char *what) {
  unsigned long long id;
  if (const cudaError_t error = cudaStreamGetId(stream, &id); error != cudaSuccess)
    fail(what, cudaGetErrorString(error));
  return id;
}

int number_of(cudaStream_t stream, const char *what) {
  static std::mutex mutex;
  static std::map<unsigned long long, int> numbers; // by id
  const auto id = id_of(stream, what);
  const std::lock_guard lock(mutex);
  return numbers.try_emplace(id, numbers.size()).first->second;
}

int first_arrival(int count, bool is_captured, cudaStream_t stream, const char *what) {
  static std::mutex mutex;
  static std::map<unsigned long long, int> streams; // by id
  static int next = 0;
  const auto take = [](int size) {
    const bool enough = size <= kArrivals - next;
    next += enough ? size : 0;
    return enough ? next - size : kArrivals;
  };
  const std::lock_guard lock(mutex);
  if (is_captured)
    return take(count);
  if (count > kArrivalsOfStream)
    return kArrivals;
  const auto id = id_of(stream, what);
  const auto found = streams.find(id);
  return found != streams.end() ? found->second : streams.emplace(id, take(kArrivalsOfStream)).first->second;
}

} // namespace detail

} // namespace ladder
