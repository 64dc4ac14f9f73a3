// How many blocks of a kernel fit on a multiprocessor.
#pragma once

#include "machine/code.h"
#include "machine/gpu.h"

#include <cstdint>

namespace ladder::runtime {

/// Registers a thread as cudaFuncGetAttributes tells them. ptxas, which would know, is not run: these are the
/// most that let a multiprocessor be full, so that occupancy is limited by threads, blocks and shared memory
/// alone.
int registers_per_thread(const machine::VirtualGpu &gpu);

/// Blocks of `threads` threads that are on a multiprocessor at once; 0 when not even one fits.
/// From the CUDA C++ Programming Guide, "Multiprocessor Level", and cuda_occupancy.h's rules.
int blocks_per_multiprocessor(const machine::VirtualGpu &gpu, const machine::Code &code,
                              std::uint64_t threads, std::uint64_t dynamic_shared_bytes);

/// Dynamic shared memory a block so that `blocks` of them fit on a multiprocessor.
std::uint64_t available_dynamic_shared(const machine::VirtualGpu &gpu, const machine::Code &code, int blocks);

} // namespace ladder::runtime
