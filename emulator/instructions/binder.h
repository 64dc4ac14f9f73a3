// Binding: turns a resolved instruction into a handler and frame offsets.
//
// Each opcode has a function `bool bind_xyz(Binder &)` that reads modifiers and operands, rejects what is not
// modelled, and sets the handler. Tables list these functions, one per section of the PTX manual's chapter
// "Instruction Set".
#pragma once

#include "machine/code.h"
#include "machine/gpu.h"
#include "program/program.h"

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ladder::instructions {

class Unsupported : public std::runtime_error {
public:
  using std::runtime_error::runtime_error;
};

/// Host addresses of module-scope .global and .const variables, by symbol index.
using SymbolAddresses = std::vector<std::uint64_t>;

class CodeBuilder; // collects constants, operand lists and special registers (code_builder.h)

class Binder {
public:
  Binder(CodeBuilder &builder, const program::Instruction &source, machine::Instruction &out);

  const program::Instruction &source;
  machine::Instruction &out;

  const machine::VirtualGpu &gpu() const;
  const std::string &target() const; ///< .target of the PTX, "sm_90a"
  bool has(std::string_view modifier) const;
  /// source.types[i]; rejects the instruction if there are fewer.
  ptx::Type type(std::size_t i = 0) const;
  std::size_t operand_count() const { return source.operands.size(); }
  const program::Operand &operand(std::size_t i) const; ///< rejects the instruction if there are fewer
  bool is_sink(std::size_t i) const;

  /// Frame offset of a source operand, read as lanes of `type`: a register, or a constant, address or special
  /// register broadcast to lanes of that width (4 bytes up to 32 bits, else 8). Rejects a register of another
  /// lane width; read those with `operand_lane_bytes` and `raw_slot`.
  std::uint32_t source_slot(const program::Operand &operand, ptx::Type type);
  std::uint32_t source_slot(std::size_t i, ptx::Type type) { return source_slot(operand(i), type); }
  /// Frame offset of a destination register with lanes of `type`'s width; a sink gets a scratch slot.
  std::uint32_t destination_slot(const program::Operand &operand, ptx::Type type);
  std::uint32_t destination_slot(std::size_t i, ptx::Type type) { return destination_slot(operand(i), type); }
  /// True if another operand in the function names this register. A destination that is never named again is
  /// unused.
  bool is_named_again(const program::Operand &operand) const;
  /// Lane width of a register operand in the frame, 4 or 8; 0 if the operand is not a register.
  unsigned operand_lane_bytes(const program::Operand &operand) const;
  /// Frame offset of a register operand of any width (registers of ld, st and cvt may be wider than the
  /// type).
  std::uint32_t raw_slot(const program::Operand &operand);
  /// A predicate source: its offset and whether it is negated (`!p`). Immediates 0 and 1 become constants.
  struct Predicate {
    std::uint32_t offset;
    bool negated;
  };
  Predicate predicate(const program::Operand &operand);
  std::uint32_t destination_predicate(const program::Operand &operand); ///< a sink gets a scratch predicate

  /// An address operand [base + offset]. Sets nothing in the instruction; the caller stores what it needs.
  struct Address {
    enum class Base {
      reg64,       ///< slot: 64-bit lanes
      reg32,       ///< slot: 32-bit lanes
      absolute,    ///< offset only (a variable's address or an immediate)
      local_frame, ///< offset into the current call's local variables (add Frame::local_base)
      /// Offset into the frame's param area, per thread (arguments of a call, parameters of a callee).
      param_area,
      entry_param,     ///< offset into the kernel's argument block, the same in all lanes
      shared_variable, ///< offset in the block's shared memory (a variable's address)
    };
    Base base;
    std::uint32_t slot = 0;
    std::int64_t offset = 0;
  };
  Address address(const program::Operand &operand);

  /// Marks the slots as accumulators of an asynchronous product: any instruction that touches them must
  /// settle it first.
  void note_accumulators(const std::vector<std::uint32_t> &slots);

  /// Stores an operand list longer than Instruction::op in Code::more and sets out.more_begin.
  void set_more(const std::vector<std::uint32_t> &slots);

  /// Index into Code::frames of a function operand; -1 for an external one.
  int frame_index(const program::Operand &operand) const;
  /// Index of a label in Code::instructions.
  std::uint32_t code_index(std::uint32_t function_local_index) const;

  [[noreturn]] void unsupported(const std::string &why) const;

private:
  CodeBuilder &builder_;
};

/// Binds an instruction. Returns false, changing nothing, if this form belongs to another table (add.f32 is
/// not in the integer table). Rejects with Binder::unsupported what no table models.
using BindFunction = bool (*)(Binder &);
struct TableEntry {
  std::string_view opcode;
  BindFunction bind;
};

// One table per group of opcodes, each in its own file.
std::span<const TableEntry> integer_table();
std::span<const TableEntry> bits_table();
std::span<const TableEntry> float_table();         // f32, f64
std::span<const TableEntry> half_table();          // f16, f16x2, bf16, bf16x2
std::span<const TableEntry> compare_table();       // set setp selp slct
std::span<const TableEntry> logic_table();         // and or xor not cnot lop3 shf shl shr
std::span<const TableEntry> convert_table();       // cvt
std::span<const TableEntry> move_table();          // mov (packing and unpacking too) prmt cvta isspacep
std::span<const TableEntry> memory_table();        // ld ldu st prefetch fence membar discard
std::span<const TableEntry> atomic_table();        // atom red
std::span<const TableEntry> async_copy_table();    // cp.async mbarrier
std::span<const TableEntry> warp_table();          // shfl vote match redux activemask elect
std::span<const TableEntry> control_table();       // bra brx call ret exit trap bar barrier nanosleep
std::span<const TableEntry> matrix_table();        // ldmatrix stmatrix movmatrix mma
std::span<const TableEntry> wmma_table();          // wmma.load wmma.store wmma.mma
std::span<const TableEntry> wgmma_table();         // wgmma
std::span<const TableEntry> tensor_core_table();   // tcgen05
std::span<const TableEntry> set_registers_table(); // setmaxnreg
// mapa getctarank barrier.cluster st.async red.async; must precede memory_table
std::span<const TableEntry> cluster_table();
std::span<const TableEntry> tensor_map_table(); // tensormap
std::span<const TableEntry> texture_table();    // tex tld4 suld sust
std::span<const TableEntry> video_table();      // vabsdiff2 vabsdiff4
std::span<const TableEntry> stack_table();      // alloca stacksave stackrestore

/// All opcodes that the tables bind.
std::vector<std::string_view> bound_opcodes();

/// Binds a kernel and every function it can reach. Throws machine::FaultError of kind unsupported that lists
/// each unsupported form once, with its source line.
std::shared_ptr<machine::Code> bind_kernel(std::shared_ptr<const program::Program> program,
                                           std::uint32_t entry, const SymbolAddresses &addresses,
                                           const machine::VirtualGpu &gpu);

} // namespace ladder::instructions
