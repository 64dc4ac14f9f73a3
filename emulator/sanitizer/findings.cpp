#include "sanitizer/findings.h"

#include "program/opcode.h"

#include <algorithm>

namespace ladder::sanitizer {

std::string_view kind_name(Kind kind) {
  switch (kind) {
  case Kind::out_of_bounds:
    return "out of bounds";
  case Kind::misaligned:
    return "misaligned";
  case Kind::read_only:
    return "read only";
  case Kind::uninitialised:
    return "uninitialised read";
  case Kind::race_warps:
    return "race between warps";
  case Kind::race_lanes:
    return "race in a warp";
  case Kind::race_blocks:
    return "race between blocks";
  case Kind::race_equal:
    return "race of equal values";
  case Kind::flag:
    return "flag";
  case Kind::race_streams:
    return "race between streams";
  case Kind::race_host:
    return "race with the host";
  case Kind::async_copy:
    return "copy not waited for";
  case Kind::async_read:
    return "read not waited for";
  case Kind::proxy:
    return "proxy fence";
  case Kind::swizzle:
    return "swizzle";
  case Kind::election:
    return "election";
  case Kind::barrier:
    return "barrier";
  case Kind::mask:
    return "mask";
  case Kind::use_after_free:
    return "use after free";
  case Kind::host_pointer:
    return "host pointer";
  case Kind::host_access:
    return "host access";
  case Kind::bad_free:
    return "bad free";
  case Kind::leak:
    return "leak";
  case Kind::bad_copy:
    return "bad copy";
  case Kind::bad_launch:
    return "bad launch";
  case Kind::unchecked_error:
    return "unchecked error";
  case Kind::unwritten_output:
    return "unwritten output";
  case Kind::other:
    return "fault";
  }
  return "fault";
}

void Findings::add(Finding finding) {
  const std::lock_guard lock(mutex_);
  finding.count = std::max<std::uint64_t>(finding.count, 1);
  findings_.push_back(std::move(finding));
}

std::vector<Finding> Findings::merged() const {
  const std::lock_guard lock(mutex_);
  using Place = std::tuple<Kind, std::string, machine::SourcePlace, machine::SourcePlace, std::string,
                           std::vector<std::uint64_t>, std::string>;
  std::map<Place, std::size_t> known;
  std::vector<Finding> all;
  for (const Finding &finding : findings_) {
    // Without line info the instruction itself is the place.
    const bool has_lines = finding.who.place.line > 0;
    std::string where = has_lines ? "" : std::to_string(finding.who.ptx_line) + " " + finding.message;
    const auto [found, is_new] =
        known.try_emplace(Place{finding.kind, finding.kernel, finding.who.place, finding.other.place,
                                std::move(where), finding.host_offsets, finding.object},
                          all.size());
    if (is_new)
      all.push_back(finding);
    else
      all[found->second].count += finding.count;
  }
  return all;
}

namespace {

/// Kind of a fault in which an instruction's operands, or the lanes that reach it, are wrong.
Kind kind_by_opcode(const program::FoundOpcode &opcode) {
  using program::Trait;
  return opcode.is(Trait::warp_wide) ? Kind::mask
         : opcode.is(Trait::barrier) ? Kind::barrier
         : opcode.is(Trait::calls)   ? Kind::bad_free
                                     : Kind::other;
}

} // namespace

Finding from_fault(const machine::Fault &fault) {
  using machine::FaultKind;
  Finding finding;
  switch (fault.kind) {
  case FaultKind::out_of_bounds:
    finding.kind = Kind::out_of_bounds;
    break;
  case FaultKind::misaligned:
    finding.kind = Kind::misaligned;
    break;
  case FaultKind::read_only:
    finding.kind = Kind::read_only;
    break;
  case FaultKind::barrier:
    finding.kind = Kind::barrier;
    break;
  case FaultKind::launch:
    finding.kind = Kind::bad_launch;
    break;
  case FaultKind::deadlock:
    finding.kind = kind_by_opcode(program::find_opcode(fault.opcode));
    if (finding.kind == Kind::other)
      finding.kind = Kind::barrier;
    break;
  case FaultKind::bad_operand:
  case FaultKind::unsupported:
    finding.kind = kind_by_opcode(program::find_opcode(fault.opcode));
    break;
  default:
    finding.kind = Kind::other;
    break;
  }
  finding.message = fault.message;
  if (finding.kind == Kind::other)
    finding.message = std::string(machine::fault_kind_name(fault.kind)) + ": " + fault.message;
  finding.kernel = fault.kernel;
  finding.who = {.block = fault.block,
                 .warp = fault.warp,
                 .lanes = fault.lane >= 0 ? 1u << fault.lane : 0,
                 .place = {.file = fault.file,
                           .kernel_file = fault.kernel_file,
                           .line = fault.line,
                           .kernel_line = fault.kernel_line,
                           .own_line = fault.own_line},
                 .opcode = fault.opcode,
                 .ptx_line = fault.ptx_line};
  finding.address = fault.address;
  finding.has_address = fault.has_address;
  finding.count = 1;
  return finding;
}

} // namespace ladder::sanitizer
