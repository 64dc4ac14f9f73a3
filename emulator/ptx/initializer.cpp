#include "ptx/initializer.h"

#include <bit>

namespace ladder::ptx {

namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t(1) << 46;            ///< of a variable
constexpr std::uint64_t kMostInitializedBytes = std::uint64_t(1) << 28; ///< of an initialised variable
constexpr std::size_t kMostDimensions = 16;

/// Fills one variable. Dimensions run from the outermost inwards; a vector type adds an innermost one.
class Initializer {
public:
  Initializer(TokenStream &tokens, Variable &variable, const std::vector<std::uint64_t> &dimensions)
      : tokens_(tokens), variable_(variable), element_bytes_(type_bytes(variable.type)) {
    // strides_[d]: elements in one item of an aggregate at depth d.
    strides_.assign(dimensions.size(), 1);
    for (std::size_t d = dimensions.size(); d-- > 1;)
      strides_[d - 1] = strides_[d] * dimensions[d];
    total_ = dimensions.empty() ? 1 : dimensions[0] == 0 ? 0 : strides_[0] * dimensions[0];
  }

  void parse() {
    const std::uint64_t end = tokens_.token().is("{") ? aggregate(0, 0, total_) : item(0);
    if (total_ == 0) { // an unsized first dimension: the initialiser sets its size
      const std::uint64_t rows = (end + strides_[0] - 1) / strides_[0];
      total_ = rows * strides_[0];
      variable_.bytes = total_ * element_bytes_;
    }
    if (total_ * element_bytes_ > kMostInitializedBytes)
      too_large();
    variable_.initial.resize(total_ * element_bytes_);
  }

private:
  [[noreturn]] void too_large() const {
    throw SyntaxError(tokens_.token().line, "initialised variable is too large");
  }

  /// `{ a, b, ... }` for elements [first, limit); a limit of 0 means none. Returns one past the last element.
  std::uint64_t aggregate(std::size_t depth, std::uint64_t first, std::uint64_t limit) {
    if (depth >= strides_.size())
      throw SyntaxError(tokens_.token().line, "initialiser has more braces than the variable has dimensions");
    tokens_.expect("{");
    std::uint64_t next = first;
    while (!tokens_.token().is("}")) {
      if (limit != 0 && next >= limit)
        throw SyntaxError(tokens_.token().line,
                          "too many values in the initialiser of " + in_quotes(variable_.name));
      if (tokens_.token().is("{")) {
        // A sub-aggregate starts at the next whole item.
        next = first + (next - first + strides_[depth] - 1) / strides_[depth] * strides_[depth];
        if (limit != 0 && next >= limit)
          throw SyntaxError(tokens_.token().line,
                            "too many values in the initialiser of " + in_quotes(variable_.name));
        aggregate(depth + 1, next, next + strides_[depth]);
        next += strides_[depth];
      } else {
        next = item(next);
      }
      if (next * element_bytes_ > kMostInitializedBytes)
        too_large();
      if (!tokens_.accept(","))
        break;
    }
    tokens_.expect("}");
    return next;
  }

  /// One value: a constant, `symbol`, `symbol + n`, `generic(symbol) + n`, or `mask(symbol)`.
  std::uint64_t item(std::uint64_t index) {
    if ((index + 1) * element_bytes_ > kMostInitializedBytes)
      too_large();
    const Token &token = tokens_.token();
    if (token.kind == TokenKind::identifier && token.text != "WARP_SZ") {
      relocation(index, 0);
    } else if (token.kind == TokenKind::integer && tokens_.ahead().is("(")) {
      const std::uint64_t mask = tokens_.advance().bits;
      if (mask == 0)
        throw SyntaxError(token.line, "an address mask selects no bits");
      tokens_.expect("(");
      relocation(index, mask);
      tokens_.expect(")");
    } else {
      store(index, encode(parse_constant(tokens_)));
    }
    return index + 1;
  }

  void relocation(std::uint64_t index, std::uint64_t mask) {
    Variable::Relocation relocation;
    relocation.offset = index * element_bytes_;
    relocation.bytes = element_bytes_;
    relocation.mask = mask;
    relocation.symbol = tokens_.expect_identifier("the name of a variable or function");
    if (relocation.symbol == "generic" && tokens_.accept("(")) {
      relocation.generic = true;
      relocation.symbol = tokens_.expect_identifier("the name of a variable");
      addend(relocation);
      tokens_.expect(")");
    }
    addend(relocation);
    store(index, 0);
    variable_.relocations.push_back(std::move(relocation));
  }

  void addend(Variable::Relocation &relocation) {
    if (tokens_.token().is("+") || tokens_.token().is("-"))
      relocation.addend = std::int64_t(std::uint64_t(relocation.addend) +
                                       parse_integer(tokens_)); // the sign is part of the constant
  }

  std::uint64_t encode(const Constant &value) const {
    const auto as_double = [&] {
      switch (value.kind) {
      case Constant::Kind::float32:
        return double(std::bit_cast<float>(std::uint32_t(value.bits)));
      case Constant::Kind::float64:
        return std::bit_cast<double>(value.bits);
      case Constant::Kind::integer:
        return value.is_unsigned ? double(value.bits) : double(std::int64_t(value.bits));
      }
      return 0.0;
    };
    if (variable_.type == Type::f64)
      return std::bit_cast<std::uint64_t>(as_double());
    // Round a double to 32 bits if the element is 32 bits wide; other constants are bit patterns already.
    if (variable_.type == Type::f32 ? value.kind != Constant::Kind::float32
                                    : value.kind == Constant::Kind::float64 && element_bytes_ == 4)
      return std::bit_cast<std::uint32_t>(float(as_double()));
    if (value.kind != Constant::Kind::integer && element_bytes_ < 4)
      throw SyntaxError(tokens_.token().line,
                        "a floating-point constant does not fit " + std::string(type_name(variable_.type)));
    return value.bits;
  }

  void store(std::uint64_t index, std::uint64_t bits) {
    const std::uint64_t offset = index * element_bytes_;
    if (variable_.initial.size() < offset + element_bytes_)
      variable_.initial.resize(offset + element_bytes_);
    for (unsigned i = 0; i < element_bytes_ && i < 8; ++i)
      variable_.initial[offset + i] = std::uint8_t(bits >> (8 * i));
  }

  TokenStream &tokens_;
  Variable &variable_;
  unsigned element_bytes_;
  std::vector<std::uint64_t> strides_;
  std::uint64_t total_ = 0; ///< elements; 0: as many as the initialiser gives
};

} // namespace

void parse_dimensions_and_initializer(TokenStream &tokens, Variable &variable, bool may_initialize) {
  const int line = tokens.token().line;
  std::vector<std::uint64_t> dimensions;
  std::uint64_t bytes = std::uint64_t(type_bytes(variable.type)) * variable.vector_width;
  if (bytes == 0)
    throw SyntaxError(line, "variable " + in_quotes(variable.name) + " has no type with a size");
  bool is_unsized = false;
  while (tokens.accept("[")) {
    if (dimensions.size() == kMostDimensions)
      throw SyntaxError(line, "array has too many dimensions");
    if (tokens.accept("]")) {
      if (!dimensions.empty())
        throw SyntaxError(line, "only the first dimension of an array may be left out");
      is_unsized = true;
      dimensions.push_back(0);
      continue;
    }
    const std::uint64_t extent = parse_integer(tokens);
    tokens.expect("]");
    if (bytes != 0 && extent > kMostBytes / bytes)
      throw SyntaxError(line, "variable " + in_quotes(variable.name) + " is too large");
    if (extent == 0 && !dimensions.empty())
      throw SyntaxError(line, "inner dimension of " + in_quotes(variable.name) + " is 0");
    bytes *= extent;
    dimensions.push_back(extent);
  }
  const bool is_empty = !is_unsized && bytes == 0; // x[0]
  variable.bytes = is_unsized ? 0 : bytes;
  if (!tokens.token().is("="))
    return;
  if (!may_initialize || is_empty)
    throw SyntaxError(tokens.token().line, in_quotes(variable.name) + " may not have an initialiser");
  tokens.advance();
  if (variable.vector_width > 1)
    dimensions.push_back(variable.vector_width);
  Initializer(tokens, variable, dimensions).parse();
}

} // namespace ladder::ptx
