// A program: functions whose registers have slots in a warp's frame, labels resolved to instruction indices,
// reconvergence points found. This layer knows syntax and structure, not the semantics of opcodes.
#pragma once

#include "program/opcode.h"
#include "ptx/ast.h"

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

namespace ladder::program {

/// PTX that parses but does not link: an unknown register, label or symbol, or a register of unknown type.
class LinkError : public std::runtime_error {
public:
  LinkError(int ptx_line, const std::string &what) : std::runtime_error(what), ptx_line_(ptx_line) {}
  int ptx_line() const { return ptx_line_; }

private:
  int ptx_line_;
};

inline constexpr unsigned kLanes = 32;

/// A register's slot in a warp's frame. A predicate is one 32-bit mask. A register of up to 32 bits is 32
/// lanes of uint32_t (value in the low bits, upper bits zero), a 64-bit one 32 lanes of uint64_t, and .b128
/// two consecutive 64-bit registers (low half first).
struct Register {
  ptx::Type type = ptx::Type::none;
  std::uint32_t offset = 0; ///< bytes into the frame; 64-byte aligned for lanes, 4-byte for predicates
};

/// Bytes per lane of a register of this type: 4 or 8 (16 for b128); 0 for predicates.
unsigned lane_bytes(ptx::Type type);

enum class Special {
#define SPECIAL(name, text, value) name,
#include "program/specials.def"
};

struct Operand {
  enum class Kind {
    sink, ///< `_`, or absent
    reg,
    special,
    integer, ///< bits
    float32, ///< bits: the pattern of a float
    float64, ///< bits: the pattern of a double
    symbol,  ///< address of a variable: symbol (index into Program::symbols) + offset
    /// One of the function's own: offset is in bytes into the parameter block (entry) or the parameter area
    /// (func). A .param variable declared in the body is a symbol.
    parameter,
    label,    ///< target: instruction index in this function
    function, ///< function: index into Program::functions, or an external name
    address,  ///< [elements[0] + offset]; elements[0] is reg, integer, symbol or parameter
    vector,
    pair,
    list,
  };
  Kind kind = Kind::sink;
  bool negated = false;
  Register reg;
  Special special = Special::tid_x;
  std::uint64_t bits = 0;
  std::int64_t offset = 0;
  std::uint32_t symbol = 0;
  std::uint32_t target = 0;
  std::int32_t function = -1; ///< -1: external; see name
  std::string name;           ///< as written, for messages; names an external function
  std::vector<Operand> elements;
};

struct Instruction {
  bool guarded = false;
  bool guard_negated = false;
  Register guard;
  std::string opcode;
  std::vector<std::string> modifiers;
  const Opcode *row = nullptr;  ///< row of the opcode table
  std::uint64_t traits = 0;     ///< of the row and of the modifiers
  std::vector<ptx::Type> types; ///< among the modifiers, in order: cvt.rn.f16.f32 has {f16, f32}
  /// As written, with two exceptions. A call always has three: {list of returns, target, list of arguments},
  /// where the target is a function or a register. brx.idx has only its index.
  std::vector<Operand> operands;
  int location = -1; ///< index into the module's locations
  int ptx_line = 0;
  std::uint32_t used_bytes = ptx::kAllBytes; ///< loads: bit i is set if byte i is used
  /// For a branch that can diverge (guarded bra, brx.idx): the index of its immediate post-dominator, or
  /// kNoReconvergence if the paths meet only at the end of the function.
  std::uint32_t reconverge = 0;
  /// brx.idx: target instruction indices. Unused for a call through a prototype.
  std::vector<std::uint32_t> targets;
  /// True if some branch reconverges here: the machine merges waiting lanes before it executes this one.
  bool is_reconvergence_point = false;
  bool is_dead = false; ///< a load whose values nothing uses: see find_dead_loads

  /// Sets row, traits and types, which the opcode and the modifiers determine.
  void find_row();
  /// For binding; all others ask for traits.
  bool has(std::string_view modifier) const;
  bool is(Trait trait) const { return traits & trait; }
  /// True if they differ at most in guard and operands.
  bool is_like(const Instruction &other) const { return row == other.row && modifiers == other.modifiers; }
  /// True for what spin loops poll with: another thread may change its result.
  bool is_poll() const { return is(Trait::polls) || (is(Trait::polls_if_strong) && is(Trait::strong)); }
  std::string full_opcode() const;
};

inline constexpr std::uint32_t kNoReconvergence = 0xffffffffu;

/// A function parameter and its place in the parameter block.
struct Parameter {
  std::string name;
  ptx::Type type = ptx::Type::b8;
  std::uint32_t offset = 0, bytes = 0, alignment = 0;
};

struct Function {
  std::string name;
  bool is_entry = false;
  std::vector<Parameter> parameters, returns;
  std::uint32_t parameter_bytes = 0; ///< entries: size of a launch's argument block
  /// Ends with ret or exit; one is appended if control would fall off the end.
  std::vector<Instruction> code;
  /// Registers only; the binder appends constants.
  std::uint32_t frame_bytes = 0;
  std::uint32_t local_bytes = 0; ///< .local variables of this function, per thread
  /// Per thread: a func's own parameters and returns, then the .param variables of its body (call arguments).
  /// Variables in disjoint scopes share space.
  std::uint32_t param_area_bytes = 0;
  unsigned max_threads[3] = {0, 0, 0}, required_threads[3] = {0, 0, 0};
  unsigned min_blocks = 0;
  unsigned required_cluster[3] = {0, 0, 0};
  /// Of a module with the target option "debug": the registers of function scope by name. They share no slot.
  std::unordered_map<std::string, Register> registers;
};

struct Symbol {
  std::string name;
  ptx::StateSpace space = ptx::StateSpace::global;
  std::uint32_t function = 0xffffffffu; ///< owner, for function scope
  /// local: bytes from the start of the function's local frame; param: from the start of its param area;
  /// shared: see KernelLayout, since it depends on the kernel; global, constant: unused.
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0, alignment = 1;
  bool is_dynamic_shared = false;
  ptx::Type type = ptx::Type::b8;
  /// The declaration, which has the initialiser of global and constant variables.
  const ptx::Variable *variable = nullptr;
};

struct Program {
  ptx::Module module;
  std::vector<Function> functions; ///< only those with a body
  std::vector<Symbol> symbols;
  /// Module scope, aliases included.
  std::unordered_map<std::string, std::uint32_t> function_index, symbol_index;

  const Function *find(const std::string &name) const;
};

/// Resolves a module. Throws LinkError.
std::shared_ptr<const Program> resolve(ptx::Module module);

/// What one kernel uses: the functions it can reach and the layout of its shared variables.
struct KernelLayout {
  /// Indices into Program::functions, the entry first. If any reachable function calls indirectly or takes a
  /// function's address, every non-entry function counts as reachable.
  std::vector<std::uint32_t> functions;
  /// Symbol -> bytes from the start of static shared memory.
  std::unordered_map<std::uint32_t, std::uint64_t> shared_offsets;
  std::uint64_t static_shared_bytes = 0;
  /// static_shared_bytes, aligned for the dynamic arrays; all of them start here.
  std::uint64_t dynamic_shared_offset = 0;
};

/// Lays out only the variables that reachable functions mention.
KernelLayout layout_kernel(const Program &program, std::uint32_t entry);

} // namespace ladder::program
