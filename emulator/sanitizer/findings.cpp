#include "sanitizer/findings.h"

#include "program/opcode.h"

#include <algorithm>

namespace ladder::sanitizer {

std::string_view kind_name(Kind kind) {
  constexpr std::string_view kNames[] = {
#define KIND(kind, name) name,
#include "sanitizer/kinds.def"
  };
  return kNames[std::size_t(kind)];
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
    // Without line info, the instruction itself identifies the place.
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
  constexpr std::pair<FaultKind, Kind> kSame[] = {{FaultKind::out_of_bounds, Kind::out_of_bounds},
                                                  {FaultKind::misaligned, Kind::misaligned},
                                                  {FaultKind::read_only, Kind::read_only},
                                                  {FaultKind::barrier, Kind::barrier},
                                                  {FaultKind::launch, Kind::bad_launch}};
  Finding finding;
  if (const auto same = std::ranges::find(kSame, fault.kind, &std::pair<FaultKind, Kind>::first);
      same != std::end(kSame))
    finding.kind = same->second;
  const bool is_deadlock = fault.kind == FaultKind::deadlock;
  if (is_deadlock || fault.kind == FaultKind::bad_operand || fault.kind == FaultKind::unsupported)
    finding.kind = kind_by_opcode(program::find_opcode(fault.opcode));
  if (is_deadlock && finding.kind == Kind::other)
    finding.kind = Kind::barrier;
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
