#include "runtime/observe/checking.h"

#include "machine/global_memory.h"
#include "runtime/observe/host_guard.h"
#include "runtime/observe/json.h"
#include "runtime/observe/launch_log.h"
#include "runtime/work/device.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <unistd.h>

namespace ladder::runtime {

namespace {

using sanitizer::Finding;
using sanitizer::Party;

/// Fill pattern for memory that the host can write unnoticed: a value that programs do not use as an initial
/// value.
constexpr std::uint32_t kUnwritten = 0xa5c3d2e1;

std::string lanes_json(std::uint32_t lanes) {
  std::string text;
  for (int lane = 0; lane < 32; ++lane)
    if (lanes >> lane & 1)
      text += (text.empty() ? "" : ", ") + std::to_string(lane);
  return "[" + text + "]";
}

template <typename Numbers> std::string list_json(const Numbers &numbers) {
  return "[" + joined(numbers, ", ", [](std::uint64_t number) { return std::to_string(number); }) + "]";
}

std::string party_json(const Party &party) {
  return "{\"block\": " + list_json(party.block) +
         ", \"warp\": " + (party.warp < 0 ? "null" : std::to_string(party.warp)) +
         ", \"lanes\": " + lanes_json(party.lanes) + ", " + place_members(party.place) +
         ", \"opcode\": " + json_string(party.opcode) + ", \"ptx_line\": " + std::to_string(party.ptx_line) +
         "}";
}

std::string finding_json(const Finding &finding) {
  const bool has_other = !finding.other.opcode.empty();
  return "{\"kind\": " + json_string(sanitizer::kind_name(finding.kind)) +
         ", \"message\": " + json_string(finding.message) + ", \"kernel\": " + json_string(finding.kernel) +
         ", \"count\": " + std::to_string(finding.count) + ", \"who\": " + party_json(finding.who) +
         ", \"other\": " + (has_other ? party_json(finding.other) : "null") +
         ", \"space\": " + json_string(finding.space) +
         ", \"address\": " + (finding.has_address ? std::to_string(finding.address) : "null") +
         ", \"object\": " + json_string(finding.object) +
         ", \"object_offset\": " + std::to_string(finding.object_offset) +
         ", \"bytes\": " + std::to_string(finding.bytes) +
         ", \"host_module\": " + json_string(finding.host_module) +
         ", \"host_offsets\": " + list_json(finding.host_offsets) + "}";
}

void put_place(Finding &finding, const HostPlace &place) {
  finding.host_module = place.module;
  finding.host_offsets = place.offsets;
}

} // namespace

std::atomic<Checking *> Checking::active_{nullptr};

Checking::Checking(bool watches_host) : watches_host_(watches_host) {
  active_.store(this, std::memory_order_release);
}

Checking::~Checking() {
  Checking *self = this;
  active_.compare_exchange_strong(self, nullptr);
}

std::unique_ptr<sanitizer::LaunchChecker> Checking::watch(machine::LaunchContext &launch) {
  find_host_writes();
  Kernel &kernel = kernels_[launch.code.get()];
  if (!kernel.checked)
    kernel = {launch.code, sanitizer::instrument(*launch.code)};
  auto checker = std::make_unique<sanitizer::LaunchChecker>(
      kernel.checked, demangle(launch.code->kernel), *launch.memory, findings_, initialised_, heap_,
      stack_bytes_, [this](std::uint64_t address) { return explain(address); }, after_failed_call());
  launch.code = kernel.checked->code;
  launch.observer = checker.get();
  return checker;
}

std::optional<sanitizer::Stray> Checking::explain(std::uint64_t address) const {
  using sanitizer::Kind;
  if (was_freed(address))
    return sanitizer::Stray{Kind::use_after_free, "accesses memory that cudaFree has freed"};
  // Otherwise all memory, tensors included, is host memory.
  if (watches_host_ && !is_beside_allocation(address) && machine::is_host_memory(address) &&
      !Device::instance().memory().is_near(address))
    return sanitizer::Stray{Kind::host_pointer, "accesses host memory, which a GPU cannot access"};
  return std::nullopt;
}

void Checking::note(const machine::Fault &fault) {
  Finding finding = sanitizer::from_fault(fault);
  put_place(finding, calling_place());
  findings_.add(std::move(finding));
}

void Checking::note_call(sanitizer::Kind kind, const std::string &message) {
  Finding finding;
  finding.kind = kind;
  finding.message = message;
  put_place(finding, calling_place());
  findings_.add(std::move(finding));
}

void Checking::allocated(std::uint64_t begin, std::uint64_t bytes, const char *name, bool fills) {
  initialised_.track(begin, bytes);
  if (fills)
    for (std::uint64_t at = 0; at + sizeof kUnwritten <= bytes; at += sizeof kUnwritten)
      std::memcpy(reinterpret_cast<void *>(begin + at), &kUnwritten, sizeof kUnwritten);
  const std::lock_guard lock(mutex_);
  auto freed = freed_.upper_bound(begin);
  if (freed != freed_.begin() && std::prev(freed)->second > begin)
    --freed;
  while (freed != freed_.end() && freed->first < begin + bytes)
    freed = freed_.erase(freed); // the memory is in use again
  live_[begin] = {bytes, name, calling_place(), fills};
}

void Checking::find_host_writes() {
  const std::lock_guard lock(mutex_);
  for (const auto &[begin, block] : live_)
    if (block.is_filled) {
      for (std::uint64_t at = 0; at + sizeof kUnwritten <= block.bytes; at += sizeof kUnwritten)
        if (std::memcmp(reinterpret_cast<const void *>(begin + at), &kUnwritten, sizeof kUnwritten) != 0)
          initialised_.mark(begin + at, sizeof kUnwritten);
      const std::uint64_t rest = block.bytes % sizeof kUnwritten;
      initialised_.mark(begin + block.bytes - rest, rest);
    }
}

void Checking::worked(const std::string &name, std::vector<MemoryUse> uses, bool is_launch) {
  if (!watches_host_)
    return;
  std::sort(uses.begin(), uses.end(),
            [](const MemoryUse &a, const MemoryUse &b) { return a.begin < b.begin; });
  const StreamId stream = OnStream::current();
  const auto clash = [&](const std::string &other) {
    note_call(sanitizer::Kind::race_streams,
              name + " accesses memory that " + other +
                  " of another stream accesses, at least one of them writes, and no event orders the two");
  };
  streams_.work(stream ? stream : kLegacyStream, {name, std::move(uses), is_launch}, clash);
}

/// What a launch that may begin before the end of the previous one used before it waited for that one.
void Checking::check_early_uses(const sanitizer::LaunchChecker &launch) {
  const StreamId stream = OnStream::current();
  const auto previous = streams_.last_launch(stream ? stream : kLegacyStream);
  if (!previous)
    return;
  for (const sanitizer::EarlyUse &use : launch.early_uses) {
    const auto clashes = [&](const MemoryUse &other) {
      return use.begin < other.end && other.begin < use.end && (use.writes || other.writes);
    };
    if (std::ranges::none_of(previous->uses, clashes))
      continue;
    Finding finding;
    finding.kind = sanitizer::Kind::race_streams;
    finding.message =
        std::string(use.writes ? "writes" : "reads") + " memory that " + previous->name +
        " may still use: this launch has the attribute of programmatic stream serialization, and no "
        "griddepcontrol.wait comes before the access";
    finding.kernel = launch.kernel();
    finding.who = launch.party(use.block, int(use.access.thread / 32), 1u << use.access.thread % 32,
                               use.access.instruction);
    finding.space = "global";
    finding.address = use.begin;
    finding.has_address = true;
    findings_.add(std::move(finding));
  }
}

void Checking::worked(const sanitizer::LaunchChecker &launch) {
  if (!watches_host_)
    return;
  check_early_uses(launch);
  std::vector<MemoryUse> uses;
  launch.shadow.for_cells([&](std::uint64_t address, std::uint64_t bytes, const sanitizer::Cell &cell) {
    const bool writes = cell.write.epoch != 0;
    if (!writes && cell.reads[0].epoch == 0)
      return;
    bool is_atomic = true, is_flag = true;
    for (const sanitizer::Access &access : {cell.write, cell.reads[0], cell.reads[1]}) {
      const bool is_none = access.epoch == 0;
      const sanitizer::Site &site = launch.site(access.instruction);
      is_atomic = is_atomic && (is_none || access.flags & sanitizer::Access::strong);
      is_flag =
          is_flag && (is_none || (site.is(program::Trait::of_system) && !site.is(program::Trait::sums)));
    }
    const MemoryUse use{address, address + bytes, writes, is_atomic, is_atomic && is_flag};
    if (!uses.empty() && uses.back().end == address && uses.back().writes == writes &&
        uses.back().is_atomic == is_atomic && uses.back().is_flag == use.is_flag)
      uses.back().end += bytes;
    else
      uses.push_back(use);
  });
  for (const auto &[begin, end] : launch.constants)
    uses.push_back({begin, end});
  worked("the launch of " + launch.kernel(), std::move(uses), /*is_launch=*/true);
}

void Checking::freed(std::uint64_t begin, std::uint64_t bytes) {
  initialised_.forget(begin);
  const std::lock_guard lock(mutex_);
  live_.erase(begin);
  freed_[begin] = begin + bytes;
}

bool Checking::was_freed(std::uint64_t address) const {
  const std::lock_guard lock(mutex_);
  const auto above = freed_.upper_bound(address);
  return above != freed_.begin() && address < std::prev(above)->second;
}

/// An allocation's last page extends past its end.
bool Checking::is_beside_allocation(std::uint64_t address) const {
  const std::lock_guard lock(mutex_);
  const auto above = live_.upper_bound(address);
  if (above == live_.begin())
    return false;
  const auto page = std::uint64_t(sysconf(_SC_PAGESIZE));
  const auto &[begin, block] = *std::prev(above);
  return address < (begin + block.bytes + page) / page * page;
}

bool Checking::library_reads(const std::string &what, std::uint64_t address, std::uint64_t bytes) {
  const auto gap = initialised_.gap(address, bytes);
  if (gap)
    note_call(sanitizer::Kind::uninitialised, what + " reads " + std::to_string(gap->bytes) + " of " +
                                                  std::to_string(bytes) +
                                                  " bytes that were never written, the first at byte " +
                                                  std::to_string(gap->first - address) + after_failed_call());
  return report_undefined(address, bytes, "that " + what + " reads", "") || gap;
}

void Checking::copied_back(std::uint64_t address, std::uint64_t bytes) {
  if (const auto gap = initialised_.gap(address, bytes))
    note_call(sanitizer::Kind::unwritten_output,
              std::to_string(gap->bytes) + " of the " + std::to_string(bytes) +
                  " bytes that are copied to the host were never written, the first at byte " +
                  std::to_string(gap->first - address) + after_failed_call());
  report_undefined(address, bytes, "that are copied to the host", "");
}

bool Checking::report_undefined(std::uint64_t address, std::uint64_t bytes, const std::string &what,
                                const std::string &object) {
  const auto found = initialised_.undefined(address, bytes);
  if (!found)
    return false;
  Finding finding;
  finding.kind = sanitizer::Kind::uninitialised;
  finding.message = "stores values loaded from memory that was never written, among them " +
                    std::to_string(found->bytes) + " of the " + std::to_string(bytes) + " bytes " + what;
  finding.kernel = found->source.kernel;
  finding.who = found->source.store;
  finding.other = found->source.load;
  finding.space = "global";
  finding.address = found->first;
  finding.has_address = true;
  finding.object = object;
  finding.object_offset = object.empty() ? 0 : std::int64_t(found->first - address);
  findings_.add(std::move(finding));
  return true;
}

void Checking::launch_failed(const char *error) {
  const std::lock_guard lock(mutex_);
  if (!unseen_error_)
    unseen_error_ = {error, calling_place()};
}

void Checking::error_seen() {
  const std::lock_guard lock(mutex_);
  unseen_error_.reset();
}

void Checking::track_output(std::uint64_t address, std::uint64_t bytes, const std::string &name) {
  if (bytes == 0)
    return;
  initialised_.track(address, bytes);
  outputs_.push_back({address, bytes, name});
}

void Checking::mark_written(std::uint64_t address, std::uint64_t bytes) { initialised_.mark(address, bytes); }

void Checking::finish() {
  for (const Output &output : outputs_)
    if (const auto gap = initialised_.gap(output.address, output.bytes)) {
      Finding finding;
      finding.kind = sanitizer::Kind::unwritten_output;
      finding.message = std::to_string(gap->bytes) + " of the " + std::to_string(output.bytes) +
                        " bytes of " + output.name + " were never written";
      finding.space = "global";
      finding.address = gap->first;
      finding.has_address = true;
      finding.object = output.name;
      finding.object_offset = gap->first - output.address;
      findings_.add(std::move(finding));
    } else {
      report_undefined(output.address, output.bytes, "of " + output.name, output.name);
    }
  outputs_.clear();
  if (watches_host_)
    finish_host();
}

/// Reports those errors of the host that are known only at the end.
void Checking::finish_host() {
  const std::lock_guard lock(mutex_);
  const auto add = [&](sanitizer::Kind kind, std::string message, const HostPlace &place) {
    Finding finding;
    finding.kind = kind;
    finding.message = std::move(message);
    put_place(finding, place);
    findings_.add(std::move(finding));
  };
  for (const HostGuard::Touch &touch : HostGuard::instance().touches())
    if (touch.is_early)
      add(sanitizer::Kind::race_host, "the host accesses memory that a running copy or launch also accesses",
          touch.place);
    else
      add(sanitizer::Kind::host_access, "the host accesses device memory", touch.place);
  // After a fault nothing can be freed.
  for (const auto &[begin, block] : Device::instance().broken() ? decltype(live_)() : live_)
    add(sanitizer::Kind::leak, std::to_string(block.bytes) + " bytes of " + block.name + " are never freed",
        block.place);
  for (const sanitizer::HeapMemory::Block &block : heap_.live()) {
    Finding finding;
    finding.kind = sanitizer::Kind::leak;
    finding.message = std::to_string(block.bytes) + " bytes of a kernel's heap are never freed";
    finding.kernel = block.kernel;
    finding.who = block.place;
    findings_.add(std::move(finding));
  }
  if (unseen_error_)
    add(sanitizer::Kind::unchecked_error,
        "the launch failed (" + unseen_error_->first + ") and the program did not check",
        unseen_error_->second);
  live_.clear();
  unseen_error_.reset();
}

std::string Checking::to_json() const { return "[" + joined(findings_.merged(), ",\n ", finding_json) + "]"; }

} // namespace ladder::runtime
