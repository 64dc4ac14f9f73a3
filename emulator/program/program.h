// A program: functions with registers laid out in a warp's frame, labels turned into instruction indices and
// reconvergence points found. It knows syntax and structure, not what an opcode does.
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

/// A PTX text that parses but does not hold together: unknown register, label or symbol, type of a register
/// unknown.
class LinkError : public std::runtime_error {
public:
  LinkError(int ptx_line, const std::string &what) : std::runtime_error(what), ptx_line_(ptx_line) {}
  int ptx_line() const { return ptx_line_; }

private:
  int ptx_line_;
};

inline constexpr unsigned kLanes = 32;

/// A register's place in the frame of a warp. A predicate is one 32-bit mask; any register of up to 32 bits
/// is 32 lanes of uint32_t (the value in the low bits, the bits above it zero); a 64-bit one 32 lanes of
/// uint64_t; .b128 two consecutive 64-bit registers (low half first).
struct Register {
  ptx::Type type = ptx::Type::none;
  std::uint32_t offset = 0; ///< bytes from the frame's start; 64-byte aligned for lanes, 4 for predicates
};

/// Bytes a lane of a register of this type takes in the frame: 4 or 8 (16 for b128); 0 for predicates.
unsigned lane_bytes(ptx::Type type);

enum class Special {
  tid_x,
  tid_y,
  tid_z,
  ntid_x,
  ntid_y,
  ntid_z,
  ctaid_x,
  ctaid_y,
  ctaid_z,
  nctaid_x,
  nctaid_y,
  nctaid_z,
  laneid,
  warpid,
  nwarpid,
  smid,
  nsmid,
  gridid,
  lanemask_eq,
  lanemask_le,
  lanemask_lt,
  lanemask_ge,
  lanemask_gt,
  clock,
  clock_hi,
  clock64,
  globaltimer,
  globaltimer_lo,
  globaltimer_hi,
  dynamic_smem_size,
  total_smem_size,
  aggr_smem_size,
  reserved_smem_offset_begin,
  reserved_smem_offset_end,
  reserved_smem_offset_cap,
  reserved_smem_offset_0,
  reserved_smem_offset_1,
  envreg1,
  envreg2,
  cluster_ctaid_x,
  cluster_ctaid_y,
  cluster_ctaid_z,
  cluster_nctaid_x,
  cluster_nctaid_y,
  cluster_nctaid_z,
  cluster_ctarank,
  cluster_nctarank,
  is_explicit_cluster,
  clusterid_x,
  clusterid_y,
  clusterid_z,
  nclusterid_x,
  nclusterid_y,
  nclusterid_z,
};

struct Operand {
  enum class Kind {
    sink,      ///< `_`, or absent
    reg,       ///< reg
    special,   ///< special
    integer,   ///< bits
    float32,   ///< bits: pattern of a float
    float64,   ///< bits: pattern of a double
    symbol,    ///< address of a variable: symbol (index into Program::symbols) + offset
    parameter, ///< one of the function's own: offset bytes into the parameter block (entry) or the parameter
               ///< area (func). A .param variable declared in the body is a symbol
    label,     ///< target: instruction index in the function
    function,  ///< function: index into Program::functions, or an external name
    address,   ///< [elements[0] + offset]; elements[0] is reg, integer, symbol or parameter
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
  std::int32_t function = -1; ///< -1: external, see name
  std::string name;           ///< as written, for messages; the external function's name
  std::vector<Operand> elements;
};

struct Instruction {
  bool guarded = false;
  bool guard_negated = false;
  Register guard;
  std::string opcode;
  std::vector<std::string> modifiers;
  const Opcode *row = nullptr; ///< of the table of opcodes
  /// As written, except for a call, which always has three: {list of returns, target, list of arguments}, the
  /// target a function or a register; and brx.idx, which has its index alone.
  std::vector<Operand> operands;
  int location = -1; ///< index into the module's locations
  int ptx_line = 0;
  std::uint32_t used_bytes = ptx::kAllBytes; ///< of a load: bit i set when byte i counts
  /// For a branch that can diverge (guarded bra, brx.idx): the instruction index of its immediate
  /// post-dominator, or kNoReconvergence when the paths meet only at the function's end.
  std::uint32_t reconverge = 0;
  /// brx.idx: instruction indices; call through a prototype: unused.
  std::vector<std::uint32_t> targets;
  /// True when some branch reconverges here (the machine joins waiting lanes before it executes this
  /// instruction).
  bool is_reconvergence_point = false;

  bool has(std::string_view modifier) const;
  bool is(Trait trait) const { return row->is(trait); }
  /// Whether they differ in nothing but guard and operands.
  bool is_like(const Instruction &other) const { return row == other.row && modifiers == other.modifiers; }
  std::string full_opcode() const;
};

inline constexpr std::uint32_t kNoReconvergence = 0xffffffffu;

/// A parameter of a function and where it lies in the parameter block.
struct Parameter {
  std::string name;
  ptx::Type type = ptx::Type::b8;
  std::uint32_t offset = 0, bytes = 0, alignment = 0;
};

struct Function {
  std::string name;
  bool is_entry = false;
  std::vector<Parameter> parameters, returns;
  std::uint32_t parameter_bytes = 0; ///< of an entry: the size of the launch's argument block
  std::vector<Instruction> code; ///< ends with ret or exit (one is added where the text falls off its end)
  std::uint32_t frame_bytes =
      0; ///< registers only; constants are appended by the layer that binds instructions
  std::uint32_t local_bytes = 0; ///< .local variables of this function, a thread
  std::uint32_t param_area_bytes =
      0; ///< a thread: a func's own parameters and returns, then .param variables declared in
         ///< the body (arguments of calls; those of scopes that do not overlap share room)
  unsigned max_threads[3] = {0, 0, 0}, required_threads[3] = {0, 0, 0};
  unsigned min_blocks = 0;
  unsigned required_cluster[3] = {0, 0, 0};
};

/// A variable with an address.
struct Symbol {
  std::string name;
  ptx::StateSpace space = ptx::StateSpace::global;
  std::uint32_t function = 0xffffffffu; ///< owner for function-scope ones
  std::uint64_t offset =
      0; ///< local: bytes from the function's local frame; param: from the function's param area;
         ///< shared: see KernelLayout (it depends on the kernel); global, constant: unused
  std::uint64_t bytes = 0, alignment = 1;
  bool is_dynamic_shared = false;
  ptx::Type type = ptx::Type::b8;
  const ptx::Variable *variable =
      nullptr; ///< its declaration, for the initialiser of global and constant ones
};

struct Program {
  ptx::Module module;
  std::vector<Function> functions; ///< those with a body
  std::vector<Symbol> symbols;
  std::unordered_map<std::string, std::uint32_t> function_index,
      symbol_index; ///< module scope, aliases included

  const Function *find(const std::string &name) const;
};

/// Resolves a module. Throws LinkError.
std::shared_ptr<const Program> resolve(ptx::Module module);

/// What one kernel brings with it: the functions it can reach and where its shared variables lie.
struct KernelLayout {
  std::vector<std::uint32_t>
      functions; ///< indices into Program::functions, the entry first; with an indirect call or a
                 ///< function's address taken anywhere in them: all functions that are no entries
  std::unordered_map<std::uint32_t, std::uint64_t>
      shared_offsets; ///< symbol -> bytes from the first static variable
  std::uint64_t static_shared_bytes = 0;
  std::uint64_t dynamic_shared_offset =
      0; ///< static_shared_bytes, aligned for the dynamic arrays (they all start here)
};

/// Only variables that the reachable functions mention take room.
KernelLayout layout_kernel(const Program &program, std::uint32_t entry);

} // namespace ladder::program
