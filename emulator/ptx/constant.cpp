#include "ptx/constant.h"

namespace ladder::ptx {

namespace {

constexpr int kDeepest = 64; ///< nesting of parentheses, unary operators and conditionals

Constant integer(std::uint64_t bits, bool is_unsigned) {
  return {Constant::Kind::integer, is_unsigned, bits};
}

/// Binding strength of a binary operator, 0 for anything else.
int precedence(const Token &token) {
  if (token.kind != TokenKind::punctuation)
    return 0;
  static constexpr struct {
    std::string_view text;
    int strength;
  } kOperators[] = {{"||", 1}, {"&&", 2}, {"|", 3}, {"^", 4},  {"&", 5},  {"==", 6},
                    {"!=", 6}, {"<", 7},  {">", 7}, {"<=", 7}, {">=", 7}, {"<<", 8},
                    {">>", 8}, {"+", 9},  {"-", 9}, {"*", 10}, {"/", 10}, {"%", 10}};
  for (const auto &candidate : kOperators)
    if (candidate.text == token.text)
      return candidate.strength;
  return 0;
}

Constant apply(std::string_view op, const Constant &a, const Constant &b, int line) {
  if (a.kind != Constant::Kind::integer || b.kind != Constant::Kind::integer)
    throw SyntaxError(line, "operator " + in_quotes(op) + " takes integer constants");
  const bool is_unsigned = a.is_unsigned || b.is_unsigned;
  const std::uint64_t x = a.bits, y = b.bits;
  const auto sx = static_cast<std::int64_t>(x), sy = static_cast<std::int64_t>(y);
  const auto truth = [](bool value) { return integer(value, false); };
  if (op == "||")
    return truth(x || y);
  if (op == "&&")
    return truth(x && y);
  if (op == "|")
    return integer(x | y, is_unsigned);
  if (op == "^")
    return integer(x ^ y, is_unsigned);
  if (op == "&")
    return integer(x & y, is_unsigned);
  if (op == "==")
    return truth(x == y);
  if (op == "!=")
    return truth(x != y);
  if (op == "<")
    return truth(is_unsigned ? x < y : sx < sy);
  if (op == ">")
    return truth(is_unsigned ? x > y : sx > sy);
  if (op == "<=")
    return truth(is_unsigned ? x <= y : sx <= sy);
  if (op == ">=")
    return truth(is_unsigned ? x >= y : sx >= sy);
  if (op == "<<")
    return integer(y > 63 ? 0 : x << y, a.is_unsigned);
  if (op == ">>")
    return integer(a.is_unsigned ? (y > 63 ? 0 : x >> y) : std::uint64_t(sx >> (y > 63 ? 63 : y)),
                   a.is_unsigned);
  if (op == "+")
    return integer(x + y, is_unsigned);
  if (op == "-")
    return integer(x - y, is_unsigned);
  if (op == "*")
    return integer(x * y, is_unsigned);
  if (y == 0)
    throw SyntaxError(line, "division by zero in a constant expression");
  if (is_unsigned)
    return integer(op == "/" ? x / y : x % y, true);
  if (sy == -1) // INT64_MIN / -1 does not fit
    return integer(op == "/" ? 0 - x : 0, false);
  return integer(std::uint64_t(op == "/" ? sx / sy : sx % sy), false);
}

class ConstantParser {
public:
  explicit ConstantParser(TokenStream &tokens) : tokens_(tokens) {}

  Constant conditional() {
    const Deeper deeper(*this);
    const Constant condition = binary(1);
    if (!tokens_.accept("?"))
      return condition;
    const Constant yes = conditional();
    tokens_.expect(":");
    const Constant no = conditional();
    return condition.bits ? yes : no;
  }

private:
  struct Deeper {
    explicit Deeper(ConstantParser &parser) : parser_(parser) {
      if (++parser_.depth_ > kDeepest)
        throw SyntaxError(parser_.tokens_.token().line, "constant expression is nested too deeply");
    }
    ~Deeper() { --parser_.depth_; }
    ConstantParser &parser_;
  };

  Constant binary(int weakest) {
    Constant left = unary();
    for (int strength = precedence(tokens_.token()); strength >= weakest;
         strength = precedence(tokens_.token())) {
      const Token op = tokens_.advance();
      const Constant right = binary(strength + 1);
      left = apply(op.text, left, right, op.line);
    }
    return left;
  }

  Constant unary() {
    const Deeper deeper(*this);
    const int line = tokens_.token().line;
    for (const std::string_view op : {"+", "-", "!", "~"}) {
      if (!tokens_.accept(op))
        continue;
      Constant value = unary();
      if (op == "-" && value.kind == Constant::Kind::float32)
        value.bits ^= std::uint64_t(1) << 31;
      else if (op == "-" && value.kind == Constant::Kind::float64)
        value.bits ^= std::uint64_t(1) << 63;
      else if (op == "-")
        value.bits = 0 - value.bits;
      else if (op != "+" && value.kind != Constant::Kind::integer)
        throw SyntaxError(line, "operator " + in_quotes(op) + " takes integer constants");
      else if (op == "!")
        value = integer(value.bits == 0, false);
      else if (op == "~")
        value.bits = ~value.bits;
      return value;
    }
    return primary();
  }

  Constant primary() {
    switch (tokens_.token().kind) {
    case TokenKind::integer: {
      const Token token = tokens_.advance();
      return integer(token.bits, token.is_unsigned || token.bits >> 63);
    }
    case TokenKind::float32:
      return {Constant::Kind::float32, false, tokens_.advance().bits};
    case TokenKind::float64:
      return {Constant::Kind::float64, false, tokens_.advance().bits};
    default:
      break;
    }
    if (tokens_.token().kind == TokenKind::identifier && tokens_.token().text == "WARP_SZ") {
      tokens_.advance();
      return integer(32, false);
    }
    if (!tokens_.accept("("))
      tokens_.fail("a constant");
    if (tokens_.token().is_directive("s64") || tokens_.token().is_directive("u64")) {
      const bool is_unsigned = tokens_.advance().text == "u64";
      tokens_.expect(")");
      Constant value = unary();
      if (value.kind != Constant::Kind::integer)
        tokens_.fail("an integer constant");
      value.is_unsigned = is_unsigned;
      return value;
    }
    const Constant value = conditional();
    tokens_.expect(")");
    return value;
  }

  TokenStream &tokens_;
  int depth_ = 0;
};

} // namespace

void TokenStream::fail(const std::string &expected) const {
  const std::string found = token_.kind == TokenKind::end ? "the end of the text"
                            : token_.kind == TokenKind::directive
                                ? in_quotes("." + std::string(token_.text.substr(0, 64)))
                                : in_quotes(token_.text);
  throw SyntaxError(token_.line, "expected " + expected + ", found " + found);
}

void TokenStream::expect(std::string_view punctuation) {
  if (!accept(punctuation))
    fail(in_quotes(punctuation));
}

std::string_view TokenStream::expect_identifier(std::string_view what) {
  if (token_.kind != TokenKind::identifier)
    fail(std::string(what));
  return advance().text;
}

Constant parse_constant(TokenStream &tokens) { return ConstantParser(tokens).conditional(); }

std::uint64_t parse_integer(TokenStream &tokens) {
  const int line = tokens.token().line;
  const Constant value = parse_constant(tokens);
  if (value.kind != Constant::Kind::integer)
    throw SyntaxError(line, "expected an integer constant, found a floating-point one");
  return value.bits;
}

} // namespace ladder::ptx
