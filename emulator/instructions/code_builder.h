// Builds a kernel's Code: collects constants and special registers of the frames, and operand lists. Only
// Binder uses it.
#pragma once

#include "instructions/binder.h"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace ladder::instructions {

class CodeBuilder {
public:
  CodeBuilder(std::shared_ptr<const program::Program> program, std::uint32_t entry,
              const SymbolAddresses &addresses, const machine::VirtualGpu &gpu);

  /// Binds every reachable function. Throws machine::FaultError that names all unsupported instructions.
  std::shared_ptr<machine::Code> build();

  const program::Program &program() const { return *program_; }
  const program::KernelLayout &layout() const { return code_->layout; }
  const machine::VirtualGpu &gpu() const { return gpu_; }
  std::uint32_t current_begin() const { return current_begin_; }
  bool in_entry() const { return program_->functions[current_function_].is_entry; }

  // Slots in the frame of the function being bound, as offsets from its start.
  std::uint32_t constant(std::uint64_t bits, unsigned lane_bytes);
  std::uint32_t predicate_constant(bool value);
  std::uint32_t shared_address(std::uint64_t offset, unsigned lane_bytes); ///< of the block that runs
  std::uint32_t special(program::Special special, bool wide);
  std::uint32_t scratch(); ///< 32 lanes of 8 bytes; never read

  /// Number of operands in the function being bound that name this register.
  unsigned mentions(const std::string &name);

  void note_accumulators(const std::vector<std::uint32_t> &slots) {
    accumulators_.insert(slots.begin(), slots.end());
  }

  std::uint64_t symbol_address(std::uint32_t symbol) const;
  std::uint32_t add_more(const std::vector<std::uint32_t> &slots) {
    const auto begin = std::uint32_t(code_->more.size());
    code_->more.insert(code_->more.end(), slots.begin(), slots.end());
    return begin;
  }

private:
  struct Refusal {
    const program::Instruction *source;
    std::string why;
  };
  void add_function(std::uint32_t frame_index, std::vector<Refusal> &refusals);
  static void bind(Binder &binder);
  void mark_settling();
  [[noreturn]] void refuse(const std::vector<Refusal> &refusals) const;
  std::uint32_t reserve(std::size_t bytes);
  std::uint32_t broadcast(std::uint64_t bits, unsigned lane_bytes); ///< a constant in all lanes

  std::shared_ptr<const program::Program> program_;
  const SymbolAddresses &addresses_;
  const machine::VirtualGpu &gpu_;
  std::shared_ptr<machine::Code> code_;
  std::vector<std::uint32_t> begins_; ///< where each function starts in Code::instructions, by frame index

  // The function being bound.
  std::uint32_t current_function_ = 0, current_begin_ = 0;
  machine::FrameLayout frame_;
  /// (bits, lane bytes; 0 for a predicate) -> offset
  std::map<std::pair<std::uint64_t, unsigned>, std::uint32_t> constants_;
  std::map<std::pair<std::uint64_t, unsigned>, std::uint32_t> shared_addresses_; ///< likewise
  std::map<std::pair<program::Special, bool>, std::uint32_t> specials_;
  std::optional<std::uint32_t> scratch_;
  std::unordered_map<std::string, unsigned> mentions_; ///< filled on first use
  std::unordered_set<std::uint32_t> accumulators_;     ///< slots that asynchronous products write
};

} // namespace ladder::instructions
