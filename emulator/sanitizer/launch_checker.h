// Checks one launch: state shared by its blocks.
#pragma once

#include "machine/block.h"
#include "machine/observer.h"
#include "sanitizer/clocks.h"
#include "sanitizer/findings.h"
#include "sanitizer/heap_memory.h"
#include "sanitizer/initialised.h"
#include "sanitizer/shadow.h"
#include "sanitizer/sites.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>

namespace ladder::sanitizer {

/// An object that threads synchronise with: an atomic, a flag, an mbarrier.
struct SyncObject {
  Knowledge knowledge;    ///< what it publishes
  bool is_polled = false; ///< in global memory: a warp spins on it
};

/// A likely reason for an address outside all allocations.
struct Stray {
  Kind kind;
  std::string message;
};

/// An access to [begin, end) of global memory before a thread waited for the previous launch.
struct EarlyUse {
  std::uint64_t begin, end;
  bool writes;
  Access access;
  std::array<std::uint32_t, 3> block;
};

class LaunchChecker final : public machine::LaunchObserver {
public:
  /// `kernel` is the name for reports. `explain` explains addresses outside all allocations. `after` names a
  /// failed call by the host; it ends the messages about addresses and values that the call may have caused.
  LaunchChecker(std::shared_ptr<const CheckedCode> code, std::string kernel,
                const machine::GlobalMemory &memory, Findings &findings, InitialisedMemory &initialised,
                HeapMemory &heap, std::uint64_t stack_bytes,
                std::function<std::optional<Stray>(std::uint64_t)> explain, std::string after)
      : code_(std::move(code)), kernel_(std::move(kernel)), memory_(memory), findings_(findings),
        initialised_(initialised), heap_(heap), stack_bytes_(stack_bytes), explain_(std::move(explain)),
        after_(std::move(after)) {}

  std::unique_ptr<machine::BlockObserver> watch(machine::Block &block) override;
  bool take_fault(const machine::Fault &fault) override;

  const machine::Code &code() const { return *code_->code; }
  const Site &site(std::size_t instruction) const { return code_->sites[instruction]; }
  bool uses_async_proxy() const { return code_->uses_async_proxy; }
  bool copies_in_bulk() const { return code_->copies_in_bulk; }
  std::uint32_t product_registers() const { return code_->product_registers; }
  const std::vector<ProductUse> &product_uses(const Site &site) const {
    return code_->product_uses[site.product_uses];
  }
  const std::string &kernel() const { return kernel_; }
  const machine::GlobalMemory &memory() const { return memory_; }
  Findings &findings() { return findings_; }
  InitialisedMemory &initialised() { return initialised_; }
  HeapMemory &heap() { return heap_; }
  /// A thread's stack for recursive functions: cudaLimitStackSize.
  std::uint64_t stack_bytes() const { return stack_bytes_; }
  std::optional<Stray> explain(std::uint64_t address) const { return explain_(address); }
  const std::string &after() const { return after_; }

  /// A thread's fence.proxy.async for global memory, and what the thread knew of other blocks.
  struct ProxyFence {
    std::uint32_t block;
    BlockClocks::Moment by;
    Knowledge others;
  };
  void add_proxy_fence(std::uint32_t block, BlockClocks::Moment by, Knowledge others);
  template <typename Is> bool any_proxy_fence(Is is) const {
    return std::ranges::any_of(
        proxy_fences_, [&](const auto &of_thread) { return std::ranges::any_of(of_thread.second, is); });
  }

  bool overlaps_previous = false; ///< the launch may begin before the previous one has ended
  std::vector<EarlyUse> early_uses;

  GlobalShadow shadow;
  std::unordered_map<std::uint64_t, SyncObject> objects; ///< atomics and flags in global memory
  /// Number, in `initialised`, of the undefined values that a load read and a store writes.
  std::uint32_t source_of(std::array<std::uint32_t, 3> block, int warp, std::uint32_t lanes,
                          std::uint32_t store, std::uint32_t load);

  std::map<std::uint64_t, std::uint64_t>
      constants; ///< variables in constant memory that are read: begin, end
  /// By address: the first store of a constant that the memory already held.
  std::unordered_map<std::uint64_t, Access> repeated_constants;
  /// By address in global memory: the last plain store that an atomic has replaced in the shadow.
  std::unordered_map<std::uint64_t, Access> replaced_stores;
  /// What arrivals at a phase of a cluster's barrier publish.
  std::map<std::pair<const machine::Cluster *, std::uint32_t>, Knowledge> cluster_barriers;

  /// The shared variable that contains the byte, and the byte's offset in it.
  std::pair<std::string, std::uint64_t> shared_variable(std::uint64_t offset) const;
  Party party(std::array<std::uint32_t, 3> block, int warp, std::uint32_t lanes,
              std::size_t instruction) const;

private:
  std::shared_ptr<const CheckedCode> code_;
  std::string kernel_;
  const machine::GlobalMemory &memory_;
  Findings &findings_;
  InitialisedMemory &initialised_;
  HeapMemory &heap_;
  std::uint64_t stack_bytes_;
  std::function<std::optional<Stray>(std::uint64_t)> explain_;
  std::string after_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> sources_; ///< by store and load
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::deque<ProxyFence>>
      proxy_fences_; ///< by block and thread: the last ones
};

} // namespace ladder::sanitizer
