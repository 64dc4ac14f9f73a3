#include "ptx/parser.h"

#include "ptx/initializer.h"

#include <bit>
#include <climits>

namespace ladder::ptx {

namespace {

constexpr std::uint64_t kLargestAlignment = std::uint64_t(1) << 24;

constexpr struct {
  std::string_view word;
  StateSpace space;
} kSpaces[] = {{"reg", StateSpace::reg},       {"sreg", StateSpace::sreg},   {"const", StateSpace::constant},
               {"global", StateSpace::global}, {"local", StateSpace::local}, {"param", StateSpace::param},
               {"shared", StateSpace::shared}};

} // namespace

Module Parser::parse() {
  while (tokens_.token().kind != TokenKind::end)
    directive();
  module_.locations = debug_.finish();
  return std::move(module_);
}

int Parser::small_integer(std::string_view what) {
  const Token &token = tokens_.token();
  if (token.kind != TokenKind::integer || token.bits > INT_MAX)
    fail(std::string(what));
  return int(tokens_.advance().bits);
}

// --- module scope

void Parser::directive() {
  if (tokens_.accept(";")) // stray ';', e.g. after a declaration
    return;
  if (tokens_.token().kind != TokenKind::directive)
    fail("a directive");
  const std::string_view word = tokens_.token().text;
  if (word == "version")
    return version();
  if (word == "target")
    return target();
  if (word == "address_size") {
    tokens_.advance();
    module_.address_size = small_integer("an address size");
    return;
  }
  if (word == "file")
    return file();
  if (word == "section")
    return section();
  if (word == "pragma")
    return pragma();
  if (word == "alias")
    return alias();
  if (word == "loc")
    return loc();

  const Linkage linkage = this->linkage();
  if (tokens_.token().is_directive("entry") || tokens_.token().is_directive("func")) {
    const bool is_entry = tokens_.advance().text == "entry";
    return function(is_entry, linkage.is_extern);
  }
  if (!space_here())
    fail("a directive of the module");
  for (Variable &variable : module_variables(space(), linkage.is_extern))
    module_.variables.push_back(std::move(variable));
}

void Parser::version() {
  tokens_.advance();
  const Token &token = tokens_.token();
  // The lexer reads "9.0" as a floating-point literal.
  const std::size_t dot = token.text.find('.');
  if (token.kind != TokenKind::float64 || dot == std::string_view::npos || token.text.size() > 8)
    fail("a version number");
  const auto number = [&](std::string_view digits) {
    int value = 0;
    for (char c : digits) {
      if (c < '0' || c > '9')
        fail("a version number");
      value = value * 10 + (c - '0');
    }
    return value;
  };
  module_.version_major = number(token.text.substr(0, dot));
  module_.version_minor = number(token.text.substr(dot + 1));
  tokens_.advance();
}

void Parser::target() {
  tokens_.advance();
  module_.target = tokens_.expect_identifier("a target");
  while (tokens_.accept(","))
    module_.target_options.emplace_back(tokens_.expect_identifier("a target option"));
}

void Parser::file() {
  tokens_.advance();
  const int index = small_integer("a file index");
  if (tokens_.token().kind != TokenKind::string)
    fail("a file name");
  module_.files[index] = tokens_.advance().text;
  if (tokens_.accept(",")) { // timestamp and size
    parse_integer(tokens_);
    tokens_.expect(",");
    parse_integer(tokens_);
  }
}

void Parser::section() {
  const int line = tokens_.advance().line;
  const bool is_strings = tokens_.token().is_directive("debug_str");
  if (tokens_.token().kind != TokenKind::directive && tokens_.token().kind != TokenKind::identifier)
    fail("the name of a section");
  tokens_.advance();
  tokens_.expect("{");
  while (!tokens_.accept("}")) {
    if (tokens_.token().kind == TokenKind::end)
      throw SyntaxError(line, "section is not closed");
    const Token token = tokens_.advance();
    if (!is_strings)
      continue;
    const std::optional<Type> type = type_from_name(token.text);
    if (token.kind == TokenKind::identifier && tokens_.accept(":")) {
      debug_.add_label(token.text);
    } else if (token.kind == TokenKind::directive && type) {
      do
        debug_.add_bytes(parse_integer(tokens_), type_bytes(*type) > 8 ? 8 : type_bytes(*type));
      while (tokens_.accept(","));
    }
  }
}

/// "used_bytes_mask N" applies to the next instruction; other pragmas do not affect what a program computes.
void Parser::pragma() {
  constexpr std::string_view kUsedBytes = "used_bytes_mask ";
  tokens_.advance();
  do {
    const Token &token = tokens_.token();
    if (token.kind != TokenKind::string)
      fail("a string");
    if (token.text.starts_with(kUsedBytes)) {
      TokenStream mask(token.text.substr(kUsedBytes.size()));
      used_bytes_ = std::uint32_t(parse_integer(mask));
    }
    tokens_.advance();
  } while (tokens_.accept(","));
  tokens_.expect(";");
}

void Parser::alias() {
  tokens_.advance();
  const std::string_view name = tokens_.expect_identifier("the name of a function");
  tokens_.expect(",");
  module_.aliases.emplace_back(name, tokens_.expect_identifier("the name of a function"));
  tokens_.expect(";");
}

void Parser::dimensions(unsigned (&extents)[3]) {
  for (unsigned &extent : extents)
    extent = 1;
  for (int i = 0; i < 3; ++i) {
    extents[i] = unsigned(small_integer("a number"));
    if (!tokens_.accept(","))
      return;
  }
}

void Parser::performance_directives(Function &function) {
  while (tokens_.token().kind == TokenKind::directive) {
    const std::string_view word = tokens_.token().text;
    if (word == "pragma") {
      pragma();
      continue;
    }
    unsigned ignored[3];
    if (word == "maxntid" || word == "reqntid" || word == "reqnctapercluster") {
      tokens_.advance();
      dimensions(word == "maxntid"   ? function.max_threads
                 : word == "reqntid" ? function.required_threads
                                     : function.required_cluster);
    } else if (word == "minnctapersm") {
      tokens_.advance();
      function.min_blocks = unsigned(small_integer("a number"));
    } else if (word == "maxnreg" || word == "maxnctapersm" || word == "maxclusterrank" ||
               word == "abi_preserve" || word == "abi_preserve_control") {
      tokens_.advance();
      dimensions(ignored);
    } else if (word == "noreturn") {
      tokens_.advance();
      function.no_return = true;
    } else if (word == "explicitcluster") {
      tokens_.advance();
      function.explicit_cluster = true;
    } else if (word == "blocksareclusters") {
      tokens_.advance();
    } else {
      fail("a directive of the function, its body or ';'");
    }
  }
}

void Parser::function(bool is_entry, bool is_extern) {
  Function function;
  function.is_entry = is_entry;
  function.ptx_line = tokens_.token().line;
  debug_.begin_function();
  location_ = -1;
  if (tokens_.token().is_directive("attribute"))
    attribute();
  if (!is_entry && tokens_.token().is("("))
    function.returns = parameters();
  function.name = tokens_.expect_identifier("the name of a function");
  if (tokens_.token().is("("))
    function.parameters = parameters();
  performance_directives(function);
  if (tokens_.token().is("{") && !is_extern) {
    body(function);
  } else {
    tokens_.expect(";");
    function.is_declaration = true;
    function.end_line = function.ptx_line;
  }
  module_.functions.push_back(std::move(function));
}

// --- variables

bool Parser::at_linkage() const {
  const Token &token = tokens_.token();
  return token.is_directive("visible") || token.is_directive("extern") || token.is_directive("weak") ||
         token.is_directive("common");
}

Parser::Linkage Parser::linkage() {
  Linkage result;
  while (at_linkage())
    result.is_extern |= tokens_.advance().text == "extern";
  return result;
}

std::optional<StateSpace> Parser::space_here() const {
  if (tokens_.token().kind == TokenKind::directive)
    for (const auto &[word, space] : kSpaces)
      if (tokens_.token().text == word)
        return space;
  return std::nullopt;
}

StateSpace Parser::space() {
  const std::optional<StateSpace> space = space_here();
  if (!space)
    fail("a state space");
  tokens_.advance();
  if (*space == StateSpace::constant && tokens_.accept("[")) { // constant bank, in old PTX
    small_integer("a bank number");
    tokens_.expect("]");
  }
  return *space;
}

/// `.attribute(.managed, .unified(1, 2))`: no attribute matters to the emulator.
void Parser::attribute() {
  tokens_.advance();
  tokens_.expect("(");
  for (int depth = 1; depth > 0;) {
    if (tokens_.token().kind == TokenKind::end)
      fail("')'");
    const Token token = tokens_.advance();
    depth += token.is("(") - token.is(")");
  }
}

void Parser::type_and_attributes(Variable &variable) {
  variable.type = Type::none;
  std::uint64_t alignment = 0;
  bool after_ptr = false; // what follows .ptr describes the pointee
  while (tokens_.token().kind == TokenKind::directive) {
    const Token token = tokens_.token();
    if (const std::optional<Type> type = type_from_name(token.text)) {
      if (variable.type != Type::none)
        fail("a name after the type");
      variable.type = *type;
      tokens_.advance();
    } else if (token.text == "texref" || token.text == "samplerref" || token.text == "surfref") {
      variable.type = Type::b64; // opaque
      tokens_.advance();
    } else if (token.text == "v2" || token.text == "v4" || token.text == "v8") {
      variable.vector_width = unsigned(token.text[1] - '0');
      tokens_.advance();
    } else if (token.text == "align") {
      tokens_.advance();
      const std::uint64_t value = parse_integer(tokens_);
      if (!std::has_single_bit(value) || value > kLargestAlignment)
        throw SyntaxError(token.line, "alignment is not a power of two or too large");
      if (!after_ptr)
        alignment = value;
    } else if (token.text == "ptr") {
      tokens_.advance();
      after_ptr = true;
    } else if (after_ptr && space_here()) {
      tokens_.advance();
    } else if (token.text == "attribute") {
      attribute();
    } else {
      fail("a type or a name");
    }
  }
  if (variable.type == Type::none)
    fail("a type");
  const std::uint64_t natural = std::uint64_t(type_bytes(variable.type)) * variable.vector_width;
  variable.alignment = alignment ? alignment : natural ? natural : 1;
}

std::vector<Variable> Parser::module_variables(StateSpace space, bool is_extern) {
  if (space == StateSpace::reg || space == StateSpace::sreg)
    fail("a state space with addresses");
  Variable model;
  model.space = space;
  model.is_extern = is_extern;
  type_and_attributes(model);
  std::vector<Variable> result;
  do {
    Variable variable = model;
    variable.ptx_line = tokens_.token().line;
    variable.name = tokens_.expect_identifier("the name of a variable");
    const bool may_initialize = !is_extern && (space == StateSpace::global || space == StateSpace::constant);
    parse_dimensions_and_initializer(tokens_, variable, may_initialize);
    result.push_back(std::move(variable));
  } while (tokens_.accept(","));
  tokens_.expect(";");
  return result;
}

std::vector<Variable> Parser::parameters() {
  std::vector<Variable> result;
  tokens_.expect("(");
  if (tokens_.accept(")"))
    return result;
  do {
    Variable variable;
    variable.ptx_line = tokens_.token().line;
    variable.space = space();
    if (variable.space != StateSpace::param && variable.space != StateSpace::reg)
      throw SyntaxError(variable.ptx_line, "a parameter is in .param or .reg");
    type_and_attributes(variable);
    variable.name = tokens_.expect_identifier("the name of a parameter");
    if (variable.space == StateSpace::param)
      parse_dimensions_and_initializer(tokens_, variable, false);
    else
      variable.bytes = type_bytes(variable.type);
    result.push_back(std::move(variable));
  } while (tokens_.accept(","));
  tokens_.expect(")");
  return result;
}

Module parse(std::string_view text) {
  Module module = Parser(text).parse();
  module.text = text;
  return module;
}

} // namespace ladder::ptx
