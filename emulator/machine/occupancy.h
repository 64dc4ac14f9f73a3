// Occupancy: how many blocks of a kernel fit on a multiprocessor.
#pragma once

#include "machine/code.h"
#include "machine/gpu.h"

#include <cstdint>

namespace ladder::machine {

/// Registers per thread, as cudaFuncGetAttributes reports them. ptxas does not run, so this is the largest
/// number that allows full occupancy; only threads, blocks and shared memory then limit it.
int registers_per_thread(const VirtualGpu &gpu);

/// Blocks of `threads` threads that reside on a multiprocessor at once; 0 if not even one fits. From the CUDA
/// C++ Programming Guide, "Multiprocessor Level", and the rules of cuda_occupancy.h.
int blocks_per_multiprocessor(const VirtualGpu &gpu, const Code &code, std::uint64_t threads,
                              std::uint64_t dynamic_shared_bytes);

/// Dynamic shared memory per block that lets `blocks` of them fit on a multiprocessor.
std::uint64_t available_dynamic_shared(const VirtualGpu &gpu, const Code &code, int blocks);

} // namespace ladder::machine
