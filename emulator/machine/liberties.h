// Behaviour that CUDA leaves open, on which no correct program depends, and what tests leave out.
#pragma once

#include "machine/gpu.h"

#include <cstdint>

namespace ladder::machine {

/// Settings of the process's one device; a session may choose them for its duration.
struct Liberties {
  /// The last block starts first, and in each block the last warp. Blocks are interleaved: every second one
  /// is interrupted soon after its start, until the one that starts next has run.
  bool backwards = false;
  /// Fill byte of unwritten memory; 0xff makes a NaN in all formats.
  std::uint8_t unwritten = 0xff;
  /// Fills allocations with this byte too, instead of the zeros of a freshly booted GPU.
  bool fills_allocations = false;
  /// Checks launches but does not run them: memory then holds only what the host wrote.
  bool skips_kernels = false;
  /// Unless both are 0, runs only so many of a launch's first or of its last blocks (or clusters): for
  /// tensors that are too large for all of them. The GPU then says that it has a multiprocessor for each
  /// block.
  std::uint64_t first_blocks = 0, last_blocks = 0;
  /// Unless 0, how many multiprocessors the GPU has. With few, a persistent kernel's blocks have much to do.
  int multiprocessors = 0;

  static Liberties &current();
};

/// How many multiprocessors the GPU has, with the current liberties.
int multiprocessors_of(const VirtualGpu &gpu);

} // namespace ladder::machine
