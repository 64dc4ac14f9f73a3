// The work that threads of a grid have asked of CUDA's device runtime. It is kept until the grid has ended.
#pragma once

#include "machine/device_runtime.h"
#include "runtime/work/device.h"
#include "runtime/work/visibility.h"

#include <deque>
#include <functional>
#include <string>
#include <variant>

namespace ladder::runtime {

class DeviceWork : public machine::DeviceRuntime {
public:
  /// A launch, or a copy or fill to perform.
  using Piece = std::variant<LaunchRequest, std::function<void()>>;
  /// In an order that does not depend on the number of host threads: by block, tail launches last.
  virtual std::deque<Piece> take() = 0;
};

/// A request for a kernel of a module, by its mangled name: with code and limits, without a size.
using KernelOfModule = std::function<LaunchRequest(const std::string &name)>;

/// Lets the threads of a launch launch kernels.
LADDER_API void allow_children(LaunchRequest &request, KernelOfModule kernels);

} // namespace ladder::runtime
