// The fat binary that nvcc embeds in an object file: device code for each architecture.
#pragma once

#include "machine/gpu.h"
#include "runtime/work/visibility.h"

#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>

namespace ladder::runtime {

/// A fat binary without PTX that the virtual GPU can run; the message names the nvcc flags to use.
class FatBinaryError : public std::runtime_error {
public:
  using std::runtime_error::runtime_error;
};

/// The code for one architecture.
struct DeviceCode {
  std::string ptx;
  std::span<const std::byte> cubin; ///< ptxas's machine code for it; empty if absent
};

/// Selects the code for `gpu` in the container that a wrapper (the argument of __cudaRegisterFatBinary)
/// points to: the highest architecture that the GPU can run. Never reads outside the sizes that the container
/// states. Throws FatBinaryError.
DeviceCode select_code(const void *wrapper, const machine::VirtualGpu &gpu);

/// What a program hands to the driver as a module.
struct ModuleImage {
  enum class Kind { ptx, container, machine_code };
  Kind kind = Kind::ptx;
  std::string bytes; ///< a copy; of PTX without the zero at its end

  /// Takes the image there: its own contents state its size.
  static ModuleImage at(const void *image);
  /// Takes the contents of a file.
  static ModuleImage of(std::string bytes);
};

/// The code of a module. Throws FatBinaryError.
DeviceCode select_code(const ModuleImage &image, const machine::VirtualGpu &gpu);

/// The same for a container of `size` bytes.
LADDER_API DeviceCode select_code(const std::byte *container, std::size_t size,
                                  const machine::VirtualGpu &gpu);

} // namespace ladder::runtime
