#include "instructions/tensor_arithmetic.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>

namespace ladder::instructions {

namespace {

constexpr int kWindow = 25;                        ///< bits below the largest exponent
constexpr std::int32_t kZeroExponent = -(1 << 24); ///< below all others, so that zeros do not count
constexpr std::uint32_t kNaN32 = 0x7fffffff, kNaN16 = 0x7fff, kInfinity32 = 0x7f800000, kInfinity16 = 0x7c00;

enum class Specials : std::uint8_t { ieee, only_nan, none };

struct Format {
  std::string_view name;
  int exponent_bits, fraction_bits, bias;
  Specials specials;
  unsigned bits;
};
constexpr Format kFormats[] = {
    {"f16", 5, 10, 15, Specials::ieee, 16},   {"bf16", 8, 7, 127, Specials::ieee, 16},
    {"tf32", 8, 10, 127, Specials::ieee, 32}, {"e4m3", 4, 3, 7, Specials::only_nan, 8},
    {"e5m2", 5, 2, 15, Specials::ieee, 8},    {"e2m3", 2, 3, 1, Specials::none, 6},
    {"e3m2", 3, 2, 3, Specials::none, 6},     {"e2m1", 2, 1, 1, Specials::none, 4},
    {"u8", 0, 8, 0, Specials::none, 8},       {"s8", 0, 8, 0, Specials::none, 8},
};
const Format &properties(ElementFormat format) { return kFormats[std::size_t(format)]; }

struct Decoded {
  std::int32_t significand, exponent;
  ElementMatrix::Special special;
};

Decoded decode(const Format &format, std::uint32_t bits) {
  const int width = format.exponent_bits + format.fraction_bits;
  const bool negative = bits >> width & 1;
  const std::uint32_t fraction = bits & ((1u << format.fraction_bits) - 1);
  const auto exponent = std::int32_t(bits >> format.fraction_bits & ((1u << format.exponent_bits) - 1));
  const bool is_highest = exponent == (1 << format.exponent_bits) - 1;
  if (is_highest && format.specials == Specials::ieee)
    return {0, kZeroExponent,
            fraction   ? ElementMatrix::nan
            : negative ? ElementMatrix::minus_infinity
                       : ElementMatrix::infinity};
  if (is_highest && format.specials == Specials::only_nan && fraction == (1u << format.fraction_bits) - 1)
    return {0, kZeroExponent, ElementMatrix::nan};
  const auto significand = std::int32_t(fraction | std::uint32_t(exponent > 0) << format.fraction_bits);
  if (significand == 0)
    return {0, kZeroExponent, ElementMatrix::finite};
  return {negative ? -significand : significand, std::max(exponent, 1) - format.bias, ElementMatrix::finite};
}

/// An accumulator: significand * 2^(exponent - 23).
Decoded decode_accumulator(std::uint32_t bits, bool is_half) {
  constexpr Format kF32{"f32", 8, 23, 127, Specials::ieee, 32};
  if (!is_half)
    return decode(kF32, bits);
  Decoded half = decode(properties(ElementFormat::f16), bits);
  half.significand *= 1 << 13;
  return half;
}

/// sum * 2^exponent, truncated toward zero to f32.
std::uint32_t truncate_to_f32(std::int64_t sum, int exponent) {
  if (sum == 0)
    return 0;
  const std::uint32_t sign = sum < 0 ? 0x80000000u : 0;
  const auto magnitude = std::uint64_t(sum < 0 ? -sum : sum);
  const int top = std::bit_width(magnitude) - 1;
  const int highest = exponent + top;
  if (highest > 127)
    return sign | kInfinity32;
  const int unit = std::max(highest, -126) - 23; // of the last bit
  const int shift = unit - exponent;
  const std::uint64_t bits = shift >= 64 ? 0 : shift >= 0 ? magnitude >> shift : magnitude << -shift;
  // The hidden bit of a normal number adds one to the exponent field.
  const std::uint32_t field = highest < -126 ? 0 : std::uint32_t(highest + 126) << 23;
  return sign | (field + std::uint32_t(bits));
}

/// The same, rounded to nearest even to f16.
std::uint32_t round_to_f16(std::int64_t sum, int exponent) {
  if (sum == 0)
    return 0;
  const std::uint32_t sign = sum < 0 ? 0x8000u : 0;
  const auto magnitude = std::uint64_t(sum < 0 ? -sum : sum);
  const int highest = exponent + std::bit_width(magnitude) - 1;
  if (highest > 15)
    return sign | kInfinity16;
  const int shift = std::max(highest, -14) - 10 - exponent;
  std::uint64_t bits = shift >= 64 ? 0 : shift >= 0 ? magnitude >> shift : magnitude << -shift;
  if (shift > 0 && shift < 64) {
    const std::uint64_t rest = magnitude & ((std::uint64_t(1) << shift) - 1), half = std::uint64_t(1)
                                                                                     << (shift - 1);
    bits += rest > half || (rest == half && bits & 1);
  }
  const std::uint32_t field = highest < -14 ? 0 : std::uint32_t(highest + 14) << 10;
  return sign | std::min(field + std::uint32_t(bits), kInfinity16); // rounding up may reach infinity
}

// 8 columns at once. A CPU with AVX2 shifts each by its own amount.
typedef std::int32_t Columns [[gnu::vector_size(32)]];
constexpr std::uint32_t kColumns = 8;

Columns load(const std::int32_t *from) {
  Columns columns;
  std::memcpy(&columns, from, sizeof columns);
  return columns;
}

} // namespace

std::string_view format_name(ElementFormat format) { return properties(format).name; }
unsigned format_bits(ElementFormat format) { return properties(format).bits; }

ElementMatrix::ElementMatrix(const std::vector<std::uint32_t> &bits, std::uint32_t lines_, std::uint32_t k_,
                             ElementFormat format, bool negate)
    : lines(lines_), k(k_), fraction_bits(properties(format).fraction_bits), significands(bits.size()),
      exponents(bits.size()) {
  const bool is_integer = format == ElementFormat::u8 || format == ElementFormat::s8;
  for (std::size_t i = 0; i < bits.size(); ++i) {
    if (is_integer) {
      significands[i] = format == ElementFormat::s8 ? std::int8_t(bits[i]) : std::int32_t(bits[i]);
      continue;
    }
    // tf32 ignores the low 13 bits of its word, so a NaN may become an infinity.
    Decoded value = decode(properties(format), format == ElementFormat::tf32 ? bits[i] >> 13 : bits[i]);
    if (value.special != finite) {
      if (negate && value.special != nan)
        value.special = value.special == infinity ? minus_infinity : infinity;
      specials.resize(bits.size(), finite);
      specials[i] = value.special;
    }
    significands[i] = negate ? -value.significand : value.significand;
    exponents[i] = value.exponent;
  }
}

WindowedProduct::WindowedProduct(const ElementMatrix &a, const ElementMatrix &b)
    : a_(a), b_(b), stride_((b.lines + kColumns - 1) / kColumns * kColumns) {
  b_significands_.assign(std::size_t(b.k) * stride_, 0);
  b_exponents_.assign(std::size_t(b.k) * stride_, kZeroExponent);
  for (std::uint32_t n = 0; n < b.lines; ++n)
    for (std::uint32_t k = 0; k < b.k; ++k) {
      b_significands_[k * stride_ + n] = b.significands[n * b.k + k];
      b_exponents_[k * stride_ + n] = b.exponents[n * b.k + k];
    }
}

void WindowedProduct::row(std::uint32_t m, const AccumulatorRow &row) const {
  constexpr std::uint32_t kMostK = 32;
  /// So many aligned products, each below 2^27, fit 32 bits.
  constexpr std::uint32_t kGroup = 8;
  const std::uint32_t n = b_.lines, depth = a_.k;
  // A product in units of 2^(its exponent - 25).
  const int scale = kWindow - a_.fraction_bits - b_.fraction_bits;
  std::int32_t a_significands[kMostK], a_exponents[kMostK];
  for (std::uint32_t k = 0; k < depth; ++k) {
    a_significands[k] = a_.significands[m * depth + k] * (1 << scale);
    a_exponents[k] = a_.exponents[m * depth + k];
  }
  for (std::uint32_t begin = 0; begin < stride_; begin += kColumns) {
    const std::uint32_t width = std::min(kColumns, n - begin);
    std::int32_t c_significands[kColumns] = {}, c_exponents[kColumns];
    std::fill_n(c_exponents, kColumns, kZeroExponent);
    for (std::uint32_t i = 0; row.c && i < width; ++i) {
      const Decoded c = decode_accumulator(row.c[begin + i], row.is_half);
      c_significands[i] = c.significand;
      c_exponents[i] = c.exponent - row.scale;
    }
    const std::int32_t *const b_exponents = b_exponents_.data() + begin;
    Columns largest = load(c_exponents);
    for (std::uint32_t k = 0; k < depth; ++k) {
      const Columns exponent = load(b_exponents + k * stride_) + a_exponents[k];
      largest = exponent > largest ? exponent : largest;
    }
    const auto aligned = [&](Columns significand, Columns exponent) {
      const Columns most = Columns{} + 31;
      Columns shift = largest - exponent;
      shift = shift > most ? most : shift;
      const Columns sign = significand >> 31;
      const Columns magnitude = ((significand ^ sign) - sign) >> shift;
      return (magnitude ^ sign) - sign;
    };
    const Columns c = aligned(load(c_significands) * (1 << (kWindow - 23)), load(c_exponents));
    std::int64_t sums[kColumns];
    for (std::uint32_t i = 0; i < kColumns; ++i)
      sums[i] = c[i];
    const std::int32_t *const b_significands = b_significands_.data() + begin;
    for (std::uint32_t first = 0; first < depth; first += kGroup) {
      Columns sum{};
      for (std::uint32_t k = first; k < std::min(first + kGroup, depth); ++k)
        sum += aligned(load(b_significands + k * stride_) * a_significands[k],
                       load(b_exponents + k * stride_) + a_exponents[k]);
      for (std::uint32_t i = 0; i < kColumns; ++i)
        sums[i] += sum[i];
    }
    for (std::uint32_t i = 0; i < width; ++i)
      row.d[begin + i] = row.is_half ? round_to_f16(sums[i], largest[i] - kWindow)
                                     : truncate_to_f32(sums[i], largest[i] - kWindow);
  }
  fix_specials(m, row);
}

/// NaN if any value is, for infinity times zero and for infinities of both signs; else the infinity if there
/// is one.
void WindowedProduct::fix_specials(std::uint32_t m, const AccumulatorRow &row) const {
  const auto special_of = [](const ElementMatrix &matrix, std::size_t i) {
    return matrix.specials.empty() ? ElementMatrix::finite : ElementMatrix::Special(matrix.specials[i]);
  };
  const std::uint32_t c_infinity = row.is_half ? kInfinity16 : kInfinity32,
                      c_sign = row.is_half ? 0x8000 : 1u << 31;
  for (std::uint32_t n = 0; n < b_.lines; ++n) {
    bool plus = false, minus = false, invalid = false;
    if (row.c && (row.c[n] & c_infinity) == c_infinity) {
      invalid = row.c[n] & (c_infinity ^ (c_sign - 1));
      plus = !invalid && !(row.c[n] & c_sign);
      minus = !invalid && row.c[n] & c_sign;
    }
    for (std::uint32_t k = 0; k < a_.k && (!a_.specials.empty() || !b_.specials.empty()); ++k) {
      const std::size_t i = m * a_.k + k, j = n * b_.k + k;
      const auto a = special_of(a_, i), b = special_of(b_, j);
      if (a == ElementMatrix::finite && b == ElementMatrix::finite)
        continue;
      const bool is_zero = (a == ElementMatrix::finite && a_.significands[i] == 0) ||
                           (b == ElementMatrix::finite && b_.significands[j] == 0);
      invalid = invalid || is_zero || a == ElementMatrix::nan || b == ElementMatrix::nan;
      const bool a_negative = a == ElementMatrix::minus_infinity || a_.significands[i] < 0;
      const bool b_negative = b == ElementMatrix::minus_infinity || b_.significands[j] < 0;
      (a_negative == b_negative ? plus : minus) = true;
    }
    if (invalid || (plus && minus))
      row.d[n] = row.is_half ? kNaN16 : kNaN32;
    else if (plus || minus)
      row.d[n] = c_infinity | (minus ? c_sign : 0);
  }
}

void integer_row(const ElementMatrix &a, const ElementMatrix &b, std::uint32_t m, bool saturates,
                 const std::uint32_t *c, std::uint32_t *d) {
  using Limits = std::numeric_limits<std::int32_t>;
  for (std::uint32_t n = 0; n < b.lines; ++n) {
    std::int64_t sum = c ? std::int32_t(c[n]) : 0;
    for (std::uint32_t k = 0; k < a.k; ++k)
      sum += a.significands[m * a.k + k] * b.significands[n * b.k + k];
    if (saturates)
      sum = std::clamp(sum, std::int64_t(Limits::min()), std::int64_t(Limits::max()));
    d[n] = std::uint32_t(sum);
  }
}

} // namespace ladder::instructions
