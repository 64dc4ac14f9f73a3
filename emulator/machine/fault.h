// Faults: what a real GPU would reject or leave undefined.
#pragma once

#include <array>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace ladder::machine {

enum class FaultKind {
#define FAULT(kind, name, error) kind,
#include "machine/fault_kinds.def"
};

std::string_view fault_kind_name(FaultKind kind);

struct Fault {
  FaultKind kind = FaultKind::trap;
  std::string message; ///< one sentence, without the location
  std::string kernel;
  std::array<std::uint32_t, 3> block{};
  int warp = -1, lane = -1; ///< -1: not specific to one
  std::array<std::uint32_t, 3> thread{};
  std::uint64_t address = 0;
  bool has_address = false;
  std::string opcode;                          ///< of the instruction, dotted
  std::string file, kernel_file;               ///< innermost and outermost source line
  int line = 0, kernel_line = 0, own_line = 0; ///< own: the innermost one in kernel_file
  int ptx_line = 0;

  /// Everything on one line: kind, message, kernel, block, warp, lane, thread, source line, address, opcode.
  std::string describe() const;
};

/// Thrown by an instruction; the block that runs it adds the location and rethrows.
class FaultError : public std::runtime_error {
public:
  FaultError(FaultKind kind, std::string message, int lane = -1) : std::runtime_error(message) {
    fault.kind = kind;
    fault.message = std::move(message);
    fault.lane = lane;
  }
  FaultError &at(std::uint64_t address) {
    fault.address = address;
    fault.has_address = true;
    return *this;
  }
  Fault fault;
};

} // namespace ladder::machine
