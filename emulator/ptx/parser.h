// Recursive-descent parser of a module over a TokenStream: one member function per construct.
#pragma once

#include "ptx/constant.h"
#include "ptx/debug_lines.h"

namespace ladder::ptx {

class Parser {
public:
  explicit Parser(std::string_view text) : tokens_(text) {}

  /// Parses the whole text; call once. Leaves Module::text empty.
  Module parse();

private:
  // Module scope.
  void directive();
  void version();
  void target();
  void file();
  void section();
  void pragma();
  void alias();
  void function(bool is_entry, bool is_extern);
  void performance_directives(Function &function);

  // Variables and parameters.
  struct Linkage {
    bool is_extern = false;
  };
  Linkage linkage();
  bool at_linkage() const;
  std::optional<StateSpace> space_here() const;
  StateSpace space();
  void attribute();
  /// Attributes and type between the state space and the name.
  void type_and_attributes(Variable &variable);
  std::vector<Variable> module_variables(StateSpace space, bool is_extern);
  std::vector<Variable> parameters();

  // Function bodies.
  void body(Function &function);
  void body_directive(Function &function);
  void registers(Function &function);
  void label(Function &function);
  std::vector<std::string> label_list();
  void loc();
  Instruction instruction();
  Operand operand(bool is_call);
  Operand primary(int depth);
  Operand address(int depth);
  Operand operand_list(Operand::Kind kind, std::string_view close, int depth);
  Operand constant_operand();

  void dimensions(unsigned (&extents)[3]);
  Statement &append(Function &function, Statement::Kind kind);
  int small_integer(std::string_view what);
  [[noreturn]] void fail(const std::string &expected) const { tokens_.fail(expected); }

  TokenStream tokens_;
  Module module_;
  DebugLines debug_;
  int location_ = -1;                    ///< of the following instructions
  std::uint32_t used_bytes_ = kAllBytes; ///< of the next instruction
};

} // namespace ladder::ptx
