// Behaviour that CUDA leaves open, on which no correct program depends, and what tests leave out.
#pragma once

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
  /// Unless 0, runs no more than so many of a launch's last blocks (or clusters), whose addresses are the
  /// largest: for tensors that are too large for all of them. The GPU then says that it has a multiprocessor
  /// for each block.
  std::uint64_t last_blocks = 0;

  static Liberties &current();
};

} // namespace ladder::machine
