#include "runtime/checking.h"

#include "runtime/json.h"
#include "runtime/launch_log.h"

namespace ladder::runtime {

namespace {

using sanitizer::Finding;
using sanitizer::Party;

std::string lanes_json(std::uint32_t lanes) {
  std::string text;
  for (int lane = 0; lane < 32; ++lane)
    if (lanes >> lane & 1)
      text += (text.empty() ? "" : ", ") + std::to_string(lane);
  return "[" + text + "]";
}

std::string party_json(const Party &party) {
  return "{\"block\": [" + std::to_string(party.block[0]) + ", " + std::to_string(party.block[1]) + ", " +
         std::to_string(party.block[2]) +
         "], \"warp\": " + (party.warp < 0 ? "null" : std::to_string(party.warp)) +
         ", \"lanes\": " + lanes_json(party.lanes) + ", \"file\": " + quoted(party.place.file) +
         ", \"line\": " + std::to_string(party.place.line) +
         ", \"kernel_file\": " + quoted(party.place.kernel_file) +
         ", \"kernel_line\": " + std::to_string(party.place.kernel_line) +
         ", \"opcode\": " + quoted(party.opcode) + ", \"ptx_line\": " + std::to_string(party.ptx_line) + "}";
}

std::string finding_json(const Finding &finding) {
  const bool has_other = !finding.other.opcode.empty();
  return "{\"kind\": " + quoted(sanitizer::kind_name(finding.kind)) +
         ", \"message\": " + quoted(finding.message) + ", \"kernel\": " + quoted(finding.kernel) +
         ", \"count\": " + std::to_string(finding.count) + ", \"who\": " + party_json(finding.who) +
         ", \"other\": " + (has_other ? party_json(finding.other) : "null") +
         ", \"space\": " + quoted(finding.space) +
         ", \"address\": " + (finding.has_address ? std::to_string(finding.address) : "null") +
         ", \"object\": " + quoted(finding.object) +
         ", \"object_offset\": " + std::to_string(finding.object_offset) +
         ", \"bytes\": " + std::to_string(finding.bytes) +
         ", \"host_module\": " + quoted(finding.host_module) +
         ", \"host_offset\": " + std::to_string(finding.host_offset) + "}";
}

} // namespace

std::atomic<Checking *> Checking::active_{nullptr};

Checking::Checking() { active_.store(this, std::memory_order_release); }

Checking::~Checking() {
  Checking *self = this;
  active_.compare_exchange_strong(self, nullptr);
}

std::unique_ptr<sanitizer::LaunchChecker> Checking::watch(machine::LaunchContext &launch) {
  Kernel &kernel = kernels_[launch.code.get()];
  if (!kernel.checked)
    kernel = {launch.code, sanitizer::instrument(*launch.code)};
  auto checker = std::make_unique<sanitizer::LaunchChecker>(kernel.checked, demangle(launch.code->kernel),
                                                            *launch.memory, findings_, initialised_,
                                                            [](std::uint64_t) { return std::nullopt; });
  launch.code = kernel.checked->code;
  launch.observer = checker.get();
  return checker;
}

void Checking::note(const machine::Fault &fault) { findings_.add(sanitizer::from_fault(fault)); }

void Checking::track_output(std::uint64_t address, std::uint64_t bytes, const std::string &name) {
  if (bytes == 0)
    return;
  initialised_.track(address, bytes);
  outputs_.push_back({address, bytes, name});
}

std::string Checking::finish() {
  for (const Output &output : outputs_)
    if (const auto gap = initialised_.gap(output.address, output.bytes)) {
      Finding finding;
      finding.kind = sanitizer::Kind::unwritten_output;
      finding.message = std::to_string(gap->bytes) + " of the " + std::to_string(output.bytes) +
                        " bytes of " + output.name + " have never been written";
      finding.space = "global";
      finding.address = gap->first;
      finding.has_address = true;
      finding.object = output.name;
      finding.object_offset = gap->first - output.address;
      findings_.add(std::move(finding));
    }
  outputs_.clear();
  std::string text;
  for (const Finding &finding : findings_.merged())
    text += (text.empty() ? "" : ",\n ") + finding_json(finding);
  return "[" + text + "]";
}

} // namespace ladder::runtime
