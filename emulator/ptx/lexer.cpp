#include "ptx/lexer.h"

#include <bit>
#include <charconv>
#include <cstdio>

namespace ladder::ptx {

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_word(char c) { return is_letter(c) || is_digit(c) || c == '_' || c == '$'; }

/// Value of a digit in bases up to 16; 99 for any other character.
unsigned digit_value(char c) {
  if (is_digit(c))
    return c - '0';
  if (c >= 'a' && c <= 'f')
    return c - 'a' + 10;
  if (c >= 'A' && c <= 'F')
    return c - 'A' + 10;
  return 99;
}

} // namespace

std::string in_quotes(std::string_view text) {
  constexpr std::size_t kLongest = 60;
  std::string result = "'";
  for (char c : text.substr(0, kLongest)) {
    if (c >= ' ' && c <= '~') {
      result += c;
    } else {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\x%02x", static_cast<unsigned char>(c));
      result += escaped;
    }
  }
  if (text.size() > kLongest)
    result += "...";
  return result + "'";
}

std::string_view Lexer::word(std::size_t begin) const {
  std::size_t end = begin;
  while (is_word(at(end)))
    ++end;
  return text_.substr(begin, end - begin);
}

void Lexer::skip_blanks() {
  while (position_ < text_.size()) {
    const char c = text_[position_];
    if (c == '\n') {
      ++line_;
      ++position_;
    } else if (c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f') {
      ++position_;
    } else if (c == '/' && at(position_ + 1) == '/') {
      while (position_ < text_.size() && text_[position_] != '\n')
        ++position_;
    } else if (c == '/' && at(position_ + 1) == '*') {
      const int begin = line_;
      position_ += 2;
      while (!(at(position_) == '*' && at(position_ + 1) == '/')) {
        if (position_ >= text_.size())
          throw SyntaxError(begin, "comment is not closed");
        line_ += text_[position_++] == '\n';
      }
      position_ += 2;
    } else {
      return;
    }
  }
}

Token Lexer::number() {
  Token token;
  token.line = line_;
  const std::size_t begin = position_;
  const auto malformed = [&] {
    std::size_t end = begin;
    while (is_word(at(end)) || at(end) == '.')
      ++end;
    return SyntaxError(line_, "malformed number " + in_quotes(text_.substr(begin, end - begin)));
  };
  const auto finish = [&](TokenKind kind) {
    if (is_word(at(position_)))
      throw malformed();
    token.kind = kind;
    token.text = text_.substr(begin, position_ - begin);
    return token;
  };
  const auto digits = [&](unsigned base) {
    const std::size_t first = position_;
    for (; digit_value(at(position_)) < base; ++position_) {
      if (token.bits > (~std::uint64_t(0) - digit_value(at(position_))) / base)
        throw SyntaxError(line_, "integer does not fit 64 bits: " + in_quotes(word(begin)));
      token.bits = token.bits * base + digit_value(at(position_));
    }
    if (position_ == first)
      throw malformed();
  };

  if (at(begin) == '0') {
    const char mark = at(begin + 1);
    if (mark == 'f' || mark == 'F' || mark == 'd' || mark == 'D') {
      position_ += 2;
      digits(16);
      const bool is_float = mark == 'f' || mark == 'F';
      if (position_ - begin != (is_float ? 10 : 18))
        throw malformed();
      return finish(is_float ? TokenKind::float32 : TokenKind::float64);
    }
  }
  std::size_t end = begin;
  while (is_digit(at(end)))
    ++end;
  const bool has_fraction = at(end) == '.' && (is_digit(at(end + 1)) || !is_word(at(end + 1)));
  bool has_exponent = false;
  std::size_t exponent = end;
  if (has_fraction)
    for (++exponent; is_digit(at(exponent)); ++exponent) {
    }
  if (at(exponent) == 'e' || at(exponent) == 'E') {
    const std::size_t first = exponent + (at(exponent + 1) == '+' || at(exponent + 1) == '-' ? 2 : 1);
    has_exponent = is_digit(at(first));
    if (has_exponent)
      for (exponent = first; is_digit(at(exponent)); ++exponent) {
      }
  }
  if (has_fraction || has_exponent) {
    double value = 0;
    const auto result = std::from_chars(text_.data() + begin, text_.data() + exponent, value);
    if (result.ec != std::errc())
      throw malformed();
    position_ = exponent;
    token.bits = std::bit_cast<std::uint64_t>(value);
    return finish(TokenKind::float64);
  }

  if (at(begin) == '0' && (at(begin + 1) == 'x' || at(begin + 1) == 'X')) {
    position_ += 2;
    digits(16);
  } else if (at(begin) == '0' && (at(begin + 1) == 'b' || at(begin + 1) == 'B')) {
    position_ += 2;
    digits(2);
  } else {
    digits(at(begin) == '0' ? 8 : 10);
  }
  if (at(position_) == 'U') {
    token.is_unsigned = true;
    ++position_;
  }
  return finish(TokenKind::integer);
}

Token Lexer::next() {
  skip_blanks();
  Token token;
  token.line = line_;
  if (position_ >= text_.size())
    return token;
  const std::size_t begin = position_;
  const char c = text_[begin];
  if (is_digit(c))
    return number();

  if (is_letter(c) || c == '_' || c == '$' || (c == '%' && is_word(at(begin + 1)))) {
    token.kind = TokenKind::identifier;
    position_ = begin + 1;
    position_ += word(position_).size();
    token.text = text_.substr(begin, position_ - begin);
    return token;
  }
  if (c == '.' && is_word(at(begin + 1))) {
    token.kind = TokenKind::directive;
    position_ = begin + 1;
    position_ += word(position_).size();
    while (at(position_) == ':' && at(position_ + 1) == ':' && is_word(at(position_ + 2))) {
      position_ += 2;
      position_ += word(position_).size();
    }
    token.text = text_.substr(begin + 1, position_ - begin - 1);
    return token;
  }
  if (c == '"') {
    token.kind = TokenKind::string;
    std::size_t end = begin + 1;
    while (end < text_.size() && text_[end] != '"' && text_[end] != '\n')
      ++end;
    if (at(end) != '"')
      throw SyntaxError(line_, "string is not closed");
    token.text = text_.substr(begin + 1, end - begin - 1);
    position_ = end + 1;
    return token;
  }

  constexpr std::string_view kSingle = "{}()[]<>,;:@|&^~!?+-*/%=.";
  if (kSingle.find(c) == std::string_view::npos)
    throw SyntaxError(line_, "unexpected character " + in_quotes(text_.substr(begin, 1)));
  const std::string_view two = text_.substr(begin, 2);
  const bool is_double = two == "<<" || two == ">>" || two == "<=" || two == ">=" || two == "==" ||
                         two == "!=" || two == "&&" || two == "||";
  token.kind = TokenKind::punctuation;
  token.text = text_.substr(begin, is_double ? 2 : 1);
  position_ += token.text.size();
  return token;
}

} // namespace ladder::ptx
