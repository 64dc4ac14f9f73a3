// The arithmetic of tcgen05.mma, bit by bit: each element of D is one sum of all products of the instruction
// and of C, aligned to the largest exponent among them. It follows the public model of
// https://github.com/sf-tensor/tcgen05, which was checked against a B200.
//
// 1. The exponent of a value is its encoded one; subnormals have that of the smallest normal number. A
// product's is
//    the sum of its factors' exponents, and is not normalised.
// 2. Products and C are truncated toward zero to multiples of 2^(R - 25), where R is the largest exponent of
// those
//    that are not zero. They are added exactly.
// 3. The sum is truncated toward zero to f32; f16 is rounded to nearest even.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace ladder::instructions {

enum class ElementFormat : std::uint8_t { f16, bf16, tf32, e4m3, e5m2, e2m3, e3m2, e2m1, u8, s8 };

std::string_view format_name(ElementFormat format);
/// In registers and in shared memory; tf32 has 32.
unsigned format_bits(ElementFormat format);

/// An operand of a product: `lines` rows of A or columns of B.
struct ElementMatrix {
  enum Special : std::uint8_t { finite, infinity, minus_infinity, nan };

  /// `bits` has k elements per line.
  ElementMatrix(const std::vector<std::uint32_t> &bits, std::uint32_t lines, std::uint32_t k,
                ElementFormat format, bool negate);

  std::uint32_t lines, k;
  int fraction_bits; ///< a value is significand * 2^(exponent - fraction_bits)
  std::vector<std::int32_t> significands, exponents; ///< [line][k]
  std::vector<std::uint8_t> specials;                ///< [line][k]; empty if all are finite
};

/// The accumulator of one row of D, n elements.
struct AccumulatorRow {
  const std::uint32_t *c; ///< bits of f32, or of f16; nullptr: no accumulator
  int scale;              ///< C is multiplied by 2^-scale
  bool is_half;           ///< C and D are f16
  std::uint32_t *d;       ///< the bits of D
};

/// Multiplies rows of A by B.
class WindowedProduct {
public:
  WindowedProduct(const ElementMatrix &a, const ElementMatrix &b);
  void row(std::uint32_t m, const AccumulatorRow &row) const;

private:
  void fix_specials(std::uint32_t m, const AccumulatorRow &row) const;

  const ElementMatrix &a_, &b_;
  std::vector<std::int32_t> b_significands_, b_exponents_; ///< [k][line], lines padded to whole vectors
  std::uint32_t stride_;
};

/// The same for 8-bit integers: exact sums modulo 2^32, or clamped once.
void integer_row(const ElementMatrix &a, const ElementMatrix &b, std::uint32_t m, bool saturates,
                 const std::uint32_t *c, std::uint32_t *d);

} // namespace ladder::instructions
