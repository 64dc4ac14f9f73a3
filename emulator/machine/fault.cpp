#include "machine/fault.h"

#include <cinttypes>
#include <cstdio>

namespace ladder::machine {

namespace {

std::string triple(const std::array<std::uint32_t, 3> &v) {
  return "(" + std::to_string(v[0]) + ", " + std::to_string(v[1]) + ", " + std::to_string(v[2]) + ")";
}

} // namespace

std::string_view fault_kind_name(FaultKind kind) {
  constexpr std::string_view kNames[] = {
#define FAULT(kind, name, error) name,
#include "machine/fault_kinds.def"
  };
  return kNames[std::size_t(kind)];
}

std::string Fault::describe() const {
  std::string text(fault_kind_name(kind));
  text += ": " + message;
  if (has_address) {
    char hex[32];
    std::snprintf(hex, sizeof hex, "0x%" PRIx64, address);
    text += std::string(" [address ") + hex + "]";
  }
  if (!kernel.empty())
    text += " in kernel " + kernel;
  if (warp >= 0) {
    text += ", block " + triple(block) + ", warp " + std::to_string(warp);
    if (lane >= 0)
      text += ", lane " + std::to_string(lane) + ", thread " + triple(thread);
  }
  if (!file.empty()) {
    text += ", at " + file + ":" + std::to_string(line);
    // A header's caller is its line in the kernel's file; within that file, the kernel's call of the helper.
    const int caller = kernel_file != file ? own_line : kernel_line;
    if (!kernel_file.empty() && (kernel_file != file || kernel_line != line))
      text += " (from " + kernel_file + ":" + std::to_string(caller) + ")";
  }
  if (!opcode.empty())
    text += ", instruction " + opcode;
  if (ptx_line > 0)
    text += ", PTX line " + std::to_string(ptx_line);
  return text;
}

} // namespace ladder::machine
