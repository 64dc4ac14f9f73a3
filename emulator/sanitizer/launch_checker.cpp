#include "sanitizer/launch_checker.h"

#include "sanitizer/block_checker.h"

#include <cxxabi.h>

namespace ladder::sanitizer {

namespace {

/// The last component of a variable's name: `kernel(int)::tile` is `tile`.
std::string short_name(const std::string &mangled) {
  int status = 0;
  char *const demangled = abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status);
  std::string name = status == 0 && demangled ? demangled : mangled;
  std::free(demangled);
  const std::size_t last = name.rfind("::");
  return last == std::string::npos ? name : name.substr(last + 2);
}

} // namespace

std::unique_ptr<machine::BlockObserver> LaunchChecker::watch(machine::Block &block) {
  return std::make_unique<BlockChecker>(*this, block);
}

bool LaunchChecker::take_fault(const machine::Fault &fault) {
  if (fault.kind == machine::FaultKind::interrupted)
    return false;
  const auto make = [&] {
    Finding finding = from_fault(fault);
    finding.kernel = kernel_;
    finding.message += after_;
    finding.count = 0;
    return finding;
  };
  findings_.add({from_fault(fault).kind, &code(), std::uint32_t(fault.ptx_line), kNoInstruction}, 1, make);
  return true;
}

std::pair<std::string, std::uint64_t> LaunchChecker::shared_variable(std::uint64_t offset) const {
  const program::KernelLayout &layout = code().layout;
  std::pair<std::string, std::uint64_t> found{"shared memory", offset};
  for (const auto &[index, begin] : layout.shared_offsets) {
    const program::Symbol &symbol = code().program->symbols[index];
    const bool holds = symbol.is_dynamic_shared ? offset >= begin : offset - begin < symbol.bytes;
    if (offset >= begin && holds)
      found = {short_name(symbol.name), offset - begin};
  }
  return found;
}

std::uint32_t LaunchChecker::source_of(std::array<std::uint32_t, 3> block, int warp, std::uint32_t lanes,
                                       std::uint32_t store, std::uint32_t load) {
  const auto [found, is_new] = sources_.try_emplace({store, load}, 0);
  if (is_new)
    found->second =
        initialised_.add_source({kernel_, party(block, warp, lanes, store), party(block, warp, lanes, load)});
  return found->second;
}

void LaunchChecker::add_proxy_fence(std::uint32_t block, BlockClocks::Moment by, Knowledge others) {
  constexpr std::size_t kKept = 16;
  std::deque<ProxyFence> &fences = proxy_fences_[{block, by.thread}];
  if (fences.size() == kKept)
    fences.pop_front();
  fences.push_back({block, std::move(by), std::move(others)});
}

Party LaunchChecker::party(std::array<std::uint32_t, 3> block, int warp, std::uint32_t lanes,
                           std::size_t instruction) const {
  const program::Instruction &source = *code().sources[instruction];
  return {.block = block,
          .warp = warp,
          .lanes = lanes,
          .place = machine::source_place(code(), instruction),
          .opcode = source.full_opcode(),
          .ptx_line = source.ptx_line};
}

} // namespace ladder::sanitizer
