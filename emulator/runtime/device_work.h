// The work that threads of a grid have asked of CUDA's device runtime. It is kept until the grid has ended.
#pragma once

#include "machine/device_runtime.h"
#include "runtime/device.h"

#include <deque>
#include <functional>
#include <variant>

namespace ladder::runtime {

class DeviceWork : public machine::DeviceRuntime {
public:
  /// A launch, or a copy or fill to perform.
  using Piece = std::variant<LaunchRequest, std::function<void()>>;
  /// In an order that does not depend on the number of host threads: by block, tail launches last.
  virtual std::deque<Piece> take() = 0;
};

} // namespace ladder::runtime
