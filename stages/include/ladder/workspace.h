// Device memory that a launch needs besides its problem's tensors.
#pragma once

#include <cstddef>

#include "ladder/dispatch.h"

namespace ladder {

/// Device memory for the duration of a launch.
template <typename T> class Workspace {
public:
  Workspace(size_t count, cudaStream_t stream, const char *what) : stream_(stream) {
    check(cudaMallocAsync(&data_, count * sizeof(T), stream), what);
  }
  ~Workspace() { cudaFreeAsync(data_, stream_); }
  Workspace(const Workspace &) = delete;
  T *data() const { return data_; }

private:
  T *data_ = nullptr;
  cudaStream_t stream_;
};

} // namespace ladder
