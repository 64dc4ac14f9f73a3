// What CUDA leaves open: nothing that is right depends on it.
#pragma once

#include <cstdint>

namespace ladder::machine {

/// Of the one device of the process. A session chooses them for as long as it lasts.
struct Liberties {
  bool backwards = false; ///< the last block goes first, and of each block the last warp
  std::uint8_t unwritten =
      0xff; ///< each byte of memory that nobody has written; 0xff is a NaN in all formats
  /// Memory that is allocated holds these bytes, too, and not zeros, as on a GPU that nobody has used before.
  bool fills_allocations = false;
  /// Launches are checked and then left out: what memory holds afterwards is the host's work alone.
  bool skips_kernels = false;

  static Liberties &current();
};

} // namespace ladder::machine
