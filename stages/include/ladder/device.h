// Properties of the current device.
#pragma once

#include "ladder/launch.h"

namespace ladder {

/// The most shared memory in bytes that a block may have, with opt-in.
inline size_t max_block_smem_bytes() {
  int device = 0, bytes = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
        "cudaDeviceGetAttribute");
  return bytes;
}

} // namespace ladder
