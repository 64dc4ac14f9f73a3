// PTX constants: integer and floating-point literals, and expressions over them (PTX ISA "Constants").
#pragma once

#include "ptx/lexer.h"

namespace ladder::ptx {

/// The value of a constant expression.
struct Constant {
  enum class Kind { integer, float32, float64 };
  Kind kind = Kind::integer;
  bool is_unsigned = false; ///< integer: .u64, from a U suffix or a cast
  std::uint64_t bits = 0;   ///< the integer, or the bit pattern of the float or double
};

/// The parser's position: the current token and one token of lookahead.
class TokenStream {
public:
  explicit TokenStream(std::string_view text) : lexer_(text), token_(lexer_.next()), ahead_(lexer_.next()) {}

  const Token &token() const { return token_; }
  const Token &ahead() const { return ahead_; }
  /// Moves to the next token and returns the one it leaves.
  Token advance() {
    Token previous = token_;
    token_ = ahead_;
    if (ahead_.kind != TokenKind::end)
      ahead_ = lexer_.next();
    return previous;
  }
  /// Consumes `punctuation` if it is the current token.
  bool accept(std::string_view punctuation) {
    if (!token_.is(punctuation))
      return false;
    advance();
    return true;
  }
  void expect(std::string_view punctuation);
  std::string_view expect_identifier(std::string_view what);
  [[noreturn]] void fail(const std::string &expected) const; ///< "expected ..., found ..."

private:
  Lexer lexer_;
  Token token_, ahead_;
};

/// Parses a constant expression with C's operators and precedence.
Constant parse_constant(TokenStream &tokens);
/// The same; fails unless the result is an integer.
std::uint64_t parse_integer(TokenStream &tokens);

} // namespace ladder::ptx
