// Function bodies: the second half of Parser.
#include "ptx/initializer.h"
#include "ptx/parser.h"

#include <climits>
#include <utility>

namespace ladder::ptx {

namespace {

constexpr int kDeepestScope = 200;
constexpr int kDeepestOperand = 8;
constexpr std::uint64_t kMostRegisters = std::uint64_t(1) << 31; ///< N of %r<N>

} // namespace

Statement &Parser::append(Function &function, Statement::Kind kind) {
  Statement &statement = function.body.emplace_back();
  statement.kind = kind;
  statement.ptx_line = tokens_.token().line;
  return statement;
}

void Parser::body(Function &function) {
  tokens_.expect("{");
  for (int depth = 1;;) {
    const Token &token = tokens_.token();
    if (token.is("{")) {
      if (++depth > kDeepestScope)
        throw SyntaxError(token.line, "scopes are nested too deeply");
      append(function, Statement::Kind::open_scope);
      tokens_.advance();
    } else if (token.is("}")) {
      function.end_line = token.line;
      if (--depth > 0)
        append(function, Statement::Kind::close_scope);
      tokens_.advance();
      if (depth == 0)
        return;
    } else if (token.is(";")) {
      tokens_.advance();
    } else if (token.kind == TokenKind::directive) {
      body_directive(function);
    } else if (token.kind == TokenKind::identifier && tokens_.ahead().is(":")) {
      label(function);
    } else if (token.kind == TokenKind::identifier || token.is("@")) {
      Statement &statement = append(function, Statement::Kind::instruction);
      statement.instruction = instruction();
    } else {
      fail("an instruction, a directive, a label or '}'");
    }
  }
}

void Parser::body_directive(Function &function) {
  const std::string_view word = tokens_.token().text;
  if (word == "loc")
    return loc();
  if (word == "reg")
    return registers(function);
  if (word == "pragma")
    return pragma();
  if (word == "file")
    return file();
  const Linkage linkage = this->linkage();
  const std::optional<StateSpace> space = space_here();
  if (!space)
    fail("an instruction or a directive of a function's body");
  const int line = tokens_.advance().line;
  for (Variable &variable : module_variables(*space, linkage.is_extern)) {
    Statement &statement = append(function, Statement::Kind::variable);
    statement.ptx_line = line;
    statement.name = variable.name;
    statement.variable = std::move(variable);
  }
}

void Parser::registers(Function &function) {
  tokens_.advance();
  Type type = Type::none;
  unsigned width = 1;
  while (tokens_.token().kind == TokenKind::directive) {
    const std::string_view word = tokens_.token().text;
    if (word == "v2" || word == "v4")
      width = unsigned(word[1] - '0');
    else if (const std::optional<Type> named = type_from_name(word))
      type = *named;
    else
      fail("the type of a register");
    tokens_.advance();
  }
  if (type == Type::none)
    fail("the type of a register");
  do {
    Statement &statement = append(function, Statement::Kind::registers);
    statement.type = type;
    statement.vector_width = width;
    statement.name = tokens_.expect_identifier("the name of a register");
    if (tokens_.accept("<")) {
      const Token &count = tokens_.token();
      if (count.kind != TokenKind::integer || count.bits == 0 || count.bits > kMostRegisters)
        fail("a number of registers");
      statement.count = unsigned(tokens_.advance().bits);
      tokens_.expect(">");
    }
  } while (tokens_.accept(","));
  tokens_.expect(";");
}

std::vector<std::string> Parser::label_list() {
  std::vector<std::string> names;
  do
    names.emplace_back(tokens_.expect_identifier("a name"));
  while (tokens_.accept(","));
  tokens_.expect(";");
  return names;
}

void Parser::label(Function &function) {
  const int line = tokens_.token().line;
  const std::string_view name = tokens_.advance().text;
  tokens_.expect(":");
  const Token &token = tokens_.token();
  Statement statement;
  statement.name = name;
  statement.ptx_line = line;
  if (token.is_directive("branchtargets") || token.is_directive("calltargets")) {
    tokens_.advance();
    statement.kind = Statement::Kind::branch_targets;
    statement.targets = label_list();
  } else if (token.is_directive("callprototype")) {
    tokens_.advance();
    statement.kind = Statement::Kind::prototype;
    if (tokens_.token().is("("))
      statement.returns = parameters();
    tokens_.expect_identifier("'_'");
    if (tokens_.token().is("("))
      statement.parameters = parameters();
    Function ignored;
    performance_directives(ignored);
    tokens_.expect(";");
  } else {
    statement.kind = Statement::Kind::label;
  }
  function.body.push_back(std::move(statement));
}

void Parser::loc() {
  tokens_.advance();
  LocDirective loc;
  loc.file = small_integer("a file index");
  loc.line = small_integer("a line number");
  loc.column = small_integer("a column");
  while (tokens_.accept(",")) {
    const std::string_view word = tokens_.expect_identifier("'function_name' or 'inlined_at'");
    if (word == "function_name") {
      loc.function_label = tokens_.expect_identifier("a label of .debug_str");
      if (tokens_.accept("+"))
        loc.function_offset = std::uint64_t(small_integer("an offset"));
    } else if (word == "inlined_at") {
      loc.is_inlined = true;
      loc.at_file = small_integer("a file index");
      loc.at_line = small_integer("a line number");
      loc.at_column = small_integer("a column");
    } else {
      throw SyntaxError(tokens_.token().line,
                        "expected 'function_name' or 'inlined_at', found " + in_quotes(word));
    }
  }
  location_ = debug_.add(loc);
}

// --- instructions

Instruction Parser::instruction() {
  Instruction result;
  result.location = location_;
  result.ptx_line = tokens_.token().line;
  result.used_bytes = std::exchange(used_bytes_, kAllBytes);
  if (tokens_.accept("@")) {
    Guard guard;
    guard.negated = tokens_.accept("!");
    guard.predicate = tokens_.expect_identifier("a predicate");
    result.guard = std::move(guard);
  }
  result.opcode = tokens_.expect_identifier("an opcode");
  while (tokens_.token().kind == TokenKind::directive)
    result.modifiers.emplace_back(tokens_.advance().text);
  if (tokens_.accept(";"))
    return result;
  const bool is_call = result.opcode == "call";
  do
    result.operands.push_back(operand(is_call));
  while (tokens_.accept(","));
  tokens_.expect(";");
  return result;
}

Operand Parser::operand(bool is_call) {
  if (is_call && tokens_.token().is("("))
    return operand_list(Operand::Kind::list, ")", 0);
  Operand first = primary(0);
  if (!tokens_.accept("|"))
    return first;
  Operand pair;
  pair.kind = Operand::Kind::pair;
  pair.elements.push_back(std::move(first));
  pair.elements.push_back(primary(0));
  return pair;
}

/// `{a, b}` or `(a, b)`.
Operand Parser::operand_list(Operand::Kind kind, std::string_view close, int depth) {
  Operand list;
  list.kind = kind;
  tokens_.advance();
  if (tokens_.accept(close))
    return list;
  do
    list.elements.push_back(primary(depth + 1));
  while (tokens_.accept(","));
  tokens_.expect(close);
  return list;
}

Operand Parser::primary(int depth) {
  if (depth > kDeepestOperand)
    throw SyntaxError(tokens_.token().line, "operands are nested too deeply");
  if (tokens_.token().is("["))
    return address(depth);
  if (tokens_.token().is("{"))
    return operand_list(Operand::Kind::vector, "}", depth);
  Operand result;
  if ((tokens_.token().is("!") || tokens_.token().is("-")) && tokens_.ahead().kind == TokenKind::identifier &&
      tokens_.ahead().text != "WARP_SZ") {
    tokens_.advance();
    result.negated = true;
  }
  const Token &token = tokens_.token();
  if (token.kind != TokenKind::identifier || token.text == "WARP_SZ")
    return constant_operand();
  result.kind = Operand::Kind::identifier;
  result.name = tokens_.advance().text;
  if (result.name == "_") {
    result.kind = Operand::Kind::sink;
    result.name.clear();
    return result;
  }
  while (tokens_.token().kind == TokenKind::directive) { // %tid.x, or a vector's component
    result.name += '.';
    result.name += tokens_.advance().text;
  }
  if (tokens_.token().is("+") || tokens_.token().is("-"))
    result.offset = std::int64_t(parse_integer(tokens_));
  return result;
}

Operand Parser::constant_operand() {
  Operand result;
  const Constant value = parse_constant(tokens_);
  result.bits = value.bits;
  switch (value.kind) {
  case Constant::Kind::integer:
    result.kind = Operand::Kind::integer;
    break;
  case Constant::Kind::float32:
    result.kind = Operand::Kind::float32;
    break;
  case Constant::Kind::float64:
    result.kind = Operand::Kind::float64;
    break;
  }
  return result;
}

/// `[base]`, `[base + constant]`, and `[base, {coordinates}, ...]` of tensors and textures.
Operand Parser::address(int depth) {
  Operand result;
  result.kind = Operand::Kind::address;
  tokens_.expect("[");
  result.elements.push_back(primary(depth + 1));
  Operand &base = result.elements.front();
  if (base.kind != Operand::Kind::identifier && base.kind != Operand::Kind::integer)
    fail("an address that begins with a name or an integer");
  result.offset = base.offset;
  base.offset = 0;
  while (tokens_.accept(","))
    result.elements.push_back(primary(depth + 1));
  tokens_.expect("]");
  return result;
}

} // namespace ladder::ptx
