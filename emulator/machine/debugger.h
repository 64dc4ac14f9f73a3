// The debugger's hook: the only link from the machine to a debugger.
#pragma once

#include "machine/fault.h"

#include <cstdint>

namespace ladder::machine {

class Warp;

class Debugger {
public:
  virtual ~Debugger() = default;
  /// The warp is about to execute the instruction at Warp::pc() for these lanes; for none if its guard is
  /// false in all. An instruction that waits is announced again when it executes again.
  virtual void before(Warp &warp, std::uint32_t lanes) = 0;
  /// The instruction at Warp::pc() has thrown this.
  virtual void faulted(Warp &warp, const FaultError &error) = 0;
};

} // namespace ladder::machine
