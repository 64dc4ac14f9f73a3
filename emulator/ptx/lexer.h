// Splits PTX text into tokens. Never reads past the end of the text, whatever it contains.
#pragma once

#include "ptx/ast.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace ladder::ptx {

enum class TokenKind {
  end,
  identifier, ///< name, %r1, $L_1, _
  directive,  ///< a dot and a word with its "::" parts: ".reg", ".shared::cta", ".3d"; text excludes the dot
  integer,    ///< bits; is_unsigned if it has a U suffix
  float32,    ///< 0fXXXXXXXX: bits
  float64,    ///< 0dXXXXXXXXXXXXXXXX or decimal: bits of the double
  string,     ///< "..."; text excludes the quotes
  punctuation ///< one character, or one of << >> <= >= == != && ||
};

struct Token {
  TokenKind kind = TokenKind::end;
  bool is_unsigned = false;
  int line = 1;
  std::string_view text;
  std::uint64_t bits = 0;

  bool is(std::string_view punctuation) const {
    return kind == TokenKind::punctuation && text == punctuation;
  }
  bool is_directive(std::string_view word) const { return kind == TokenKind::directive && text == word; }
};

class Lexer {
public:
  explicit Lexer(std::string_view text) : text_(text) {}

  /// Returns the next token; `end` forever once the text is used up. Throws SyntaxError.
  Token next();

private:
  void skip_blanks();
  Token number();
  char at(std::size_t i) const { return i < text_.size() ? text_[i] : '\0'; }
  std::string_view word(std::size_t begin) const;

  std::string_view text_;
  std::size_t position_ = 0;
  int line_ = 1;
};

/// Quotes `text` for a message: long text is cut, bytes that are not printable ASCII are escaped.
std::string in_quotes(std::string_view text);

} // namespace ladder::ptx
