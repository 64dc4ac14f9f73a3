// The syntax tree of a PTX module, as written: no name is resolved yet.
//
// Names follow the PTX ISA manual ("Syntax", "State Spaces, Types, and Variables", "Instruction Operands").
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ladder::ptx {

/// Malformed PTX. `line` is 1-based, in the PTX text.
class SyntaxError : public std::runtime_error {
public:
  SyntaxError(int line, const std::string &what) : std::runtime_error(what), line_(line) {}
  int line() const { return line_; }

private:
  int line_;
};

enum class StateSpace { reg, sreg, constant, global, local, param, shared };

enum class Type {
#define TYPE(name, bytes) name,
#include "ptx/types.def"
};

/// The type that a word such as "s32" names; nullopt if it names none.
std::optional<Type> type_from_name(std::string_view name);
std::string_view type_name(Type type);
/// Size in bytes; 0 for none and pred.
unsigned type_bytes(Type type);

/// One link of a `.loc` chain. `file` indexes Module::files.
struct SourcePosition {
  int file = 0;
  int line = 0;
  int column = 0;
  std::string function; ///< linkage name of the inlined function, from `function_name`; else empty
};

/// The source lines of an instruction: chain[0] is the innermost (in the helper), chain.back() the outermost
/// (in the kernel). Empty without -lineinfo.
struct SourceLocation {
  std::vector<SourcePosition> chain;
};

struct Operand {
  enum class Kind {
    identifier, ///< register, special register (with .x in the name), variable, label or function: name
    integer,    ///< integer immediate: bits (sign-extended to 64)
    float32,    ///< 0fXXXXXXXX: bits holds the 32-bit pattern
    float64,    ///< 0dXXXXXXXXXXXXXXXX or a decimal floating literal: bits holds the pattern of the double
    address,    ///< [base + offset]: elements[0] (identifier or integer), offset
    vector,     ///< {a, b, ...}: elements
    pair,       ///< a|b (setp, shfl): elements[0], elements[1]
    sink,       ///< _
    list,       ///< (a, b, ...) of a call: elements
  };
  Kind kind = Kind::sink;
  bool negated = false; ///< !p
  std::string name;
  std::uint64_t bits = 0;
  std::int64_t offset = 0; ///< of an address, or of `variable+constant` as a plain identifier operand
  std::vector<Operand> elements;
};

/// Mask of a load without `.pragma "used_bytes_mask"`. The compiler emits the pragma when it widens a load.
inline constexpr std::uint32_t kAllBytes = 0xffffffffu;

struct Guard {
  std::string predicate;
  bool negated = false;
};

struct Instruction {
  std::optional<Guard> guard;
  std::string opcode;                 ///< "mma", "ld", "bar", ... up to the first dot
  std::vector<std::string> modifiers; ///< "sync", "aligned", "m16n8k16", ... ("::" kept inside one modifier)
  std::vector<Operand> operands;
  int location = -1; ///< index into Module::locations, -1 without a .loc
  int ptx_line = 0;
  std::uint32_t used_bytes = kAllBytes; ///< loads: bit i is set if byte i is used

  /// The dotted name, for messages and tables: "mma.sync.aligned.m16n8k16...".
  std::string full_opcode() const;
};

/// A variable in any state space, or a parameter.
struct Variable {
  StateSpace space = StateSpace::global;
  Type type = Type::b8;
  unsigned vector_width = 1;   ///< .v2 / .v4
  std::uint64_t alignment = 0; ///< bytes; at least the element's own
  std::string name;
  std::uint64_t bytes = 0; ///< total size; 0 for an unsized extern array
  bool is_extern = false;
  std::vector<std::uint8_t> initial; ///< empty, or `bytes` long, zero-filled
  struct Relocation {                ///< an initialiser that is an address
    std::uint64_t offset = 0;
    std::string symbol;
    std::int64_t addend = 0;
    bool generic = false;   ///< generic(symbol)
    unsigned bytes = 8;     ///< size of the element that holds it
    std::uint64_t mask = 0; ///< 0xFF00(symbol): the address bits kept, shifted down to bit 0; 0 keeps all
  };
  std::vector<Relocation> relocations;
  int ptx_line = 0;
};

/// A function body is a flat list of these. Statements open and close the scopes `{ }`, so that equal names
/// declared in sibling scopes stay apart.
struct Statement {
  enum class Kind {
    instruction,
    label,
    open_scope,
    close_scope,
    registers,
    variable,
    branch_targets,
    prototype
  };
  Kind kind = Kind::instruction;
  Instruction instruction;   ///< instruction
  std::string name;          ///< label; branch_targets and prototype: their label; registers: prefix or name
  Type type = Type::none;    ///< registers
  unsigned vector_width = 1; ///< registers: .v2 / .v4, with components name.x, .y, .z, .w
  unsigned count = 0;        ///< registers: N of `%r<N>`, 0 for a single name
  Variable variable;         ///< variable: .local, .shared or .param, declared in the body
  std::vector<std::string> targets; ///< branch_targets (.branchtargets and .calltargets)
  std::vector<Variable> returns;    ///< prototype
  std::vector<Variable> parameters; ///< prototype
  int ptx_line = 0;
};

struct Function {
  std::string name;
  bool is_entry = false;
  bool is_declaration = false; ///< no body (.extern .func or a forward declaration)
  std::vector<Variable> returns;
  std::vector<Variable> parameters;
  std::vector<Statement> body;
  unsigned max_threads[3] = {0, 0, 0};      ///< .maxntid, 0 when absent
  unsigned required_threads[3] = {0, 0, 0}; ///< .reqntid
  unsigned min_blocks = 0;                  ///< .minnctapersm
  unsigned required_cluster[3] = {0, 0, 0}; ///< .reqnctapercluster, 0 when absent
  bool explicit_cluster = false;            ///< .explicitcluster
  bool no_return = false;                   ///< .noreturn
  int ptx_line = 0;
  int end_line = 0; ///< of the closing brace
};

struct Module {
  int version_major = 0, version_minor = 0;
  std::string target;                      ///< "sm_80", "sm_90a"
  std::vector<std::string> target_options; ///< options after the target: "debug", "texmode_independent"
  int address_size = 64;
  std::map<int, std::string> files; ///< .file index -> path
  std::vector<SourceLocation> locations;
  std::vector<Variable> variables; ///< module scope
  std::vector<Function> functions;
  std::vector<std::pair<std::string, std::string>> aliases; ///< .alias name, aliasee
  std::string text;                                         ///< the PTX source, for listings
};

/// Parses a whole module. Throws SyntaxError; never reads past the end of `text`, whatever it contains.
Module parse(std::string_view text);

} // namespace ladder::ptx
