// The fat binary that nvcc puts into an object file: the device code for each architecture.
#pragma once

#include "machine/gpu.h"
#include "runtime/visibility.h"

#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>

namespace ladder::runtime {

/// A fat binary without PTX that the virtual GPU can run; the message says which flags of nvcc make one.
class FatBinaryError : public std::runtime_error {
public:
  using std::runtime_error::runtime_error;
};

/// The code for one architecture.
struct DeviceCode {
  std::string ptx;
  std::span<const std::byte> cubin; ///< the machine code that ptxas made of it; empty when there is none
};

/// The code for `gpu` in the container that a wrapper (the argument of __cudaRegisterFatBinary) points to: of
/// those for an architecture that the GPU can run, the one for the highest. Nothing is read outside the sizes
/// that the container states. Throws FatBinaryError.
DeviceCode select_code(const void *wrapper, const machine::VirtualGpu &gpu);

/// The same for a container of `size` bytes.
LADDER_API DeviceCode select_code(const std::byte *container, std::size_t size,
                                  const machine::VirtualGpu &gpu);

} // namespace ladder::runtime
