// A tcgen05.mma as issued: its decoded descriptors, and where its operands are.
#pragma once

#include "instructions/matrix_descriptor.h"
#include "instructions/tcgen05.h"
#include "instructions/tensor_arithmetic.h"

#include <array>
#include <cstdint>
#include <vector>

namespace ladder::instructions {

/// The instruction descriptor. PTX ISA, "Instruction descriptor".
struct ProductForm {
  std::uint32_t m = 0, n = 0, k = 0;
  ElementFormat a = ElementFormat::f16, b = ElementFormat::f16;
  bool has_f16_result = false, has_integers = false, saturates = false;
  bool negates_a = false, negates_b = false, a_is_mn_major = false, b_is_mn_major = false;
};

/// An operand of a product in shared memory.
class TensorOperand {
public:
  /// Throws bad_operand for a descriptor that the manual does not allow.
  TensorOperand(std::uint64_t descriptor, bool is_mn_major, ElementFormat format);

  /// The offset in the block's shared memory of a 16-byte chunk. K-major: half c of row `line`. MN-major:
  /// elements 16 bytes * c.. of line `line` along k.
  std::uint32_t chunk(std::uint32_t line, std::uint32_t c) const;
  /// Calls f(chunk's first line, its first k, offset) for all chunks of `lines` rows (or columns) and `k`
  /// elements; the elements of a chunk follow one another along k, or along the lines if MN-major.
  template <typename F> void for_chunks(std::uint32_t lines, std::uint32_t k, F f) const;
  bool is_mn_major() const { return is_mn_major_; }
  /// Elements in 16 bytes; those of less than 8 bits are padded.
  std::uint32_t per_chunk() const { return per_chunk_; }
  const MatrixDescriptor &descriptor() const { return at_; }

private:
  MatrixDescriptor at_;
  OperandPlaces places_;
  bool is_mn_major_, has_atoms_of_32_;
  std::uint32_t per_chunk_;
};

struct TensorProduct {
  std::vector<machine::Block *> group; ///< the block, or the pair
  ProductForm form;
  std::uint32_t d = 0;        ///< address of tensor memory
  std::uint32_t a_tensor = 0; ///< the same, if A is there
  bool a_in_tensor = false;
  std::uint64_t a = 0, b = 0;                    ///< matrix descriptors
  bool accumulates = false;                      ///< enable-input-d
  int scale = 0;                                 ///< scale-input-d
  std::array<std::uint32_t, 8> disabled_lanes{}; ///< per block of the group four words

  std::uint32_t d_columns() const;              ///< from d on
  static constexpr std::uint32_t kAColumns = 8; ///< of A in tensor memory
  std::uint32_t rows_per_block() const { return form.m / std::uint32_t(group.size()); }
  /// The lane of row `m` of a block's part of D, or of A in tensor memory.
  std::uint32_t lane(std::uint32_t m) const;
};

/// What one lane's tcgen05.mma asks for. Throws FaultError for what the manual does not allow.
TensorProduct tensor_product_of(machine::Warp &warp, const machine::Instruction &in, int lane);

/// One lane's tcgen05.cp.
struct TensorCopy {
  std::vector<machine::Block *> group;
  std::uint32_t address = 0;
  std::uint64_t source = 0;           ///< matrix descriptor
  std::uint32_t rows = 0, chunks = 0; ///< chunks of 16 bytes
  std::uint32_t columns() const { return 4 * chunks; }
  std::vector<std::uint32_t> lanes(std::uint32_t row) const; ///< to which a row is copied
  std::uint32_t shape = 0;
};
TensorCopy tensor_copy_of(machine::Warp &warp, const machine::Instruction &in, int lane);

template <typename F> void TensorOperand::for_chunks(std::uint32_t lines, std::uint32_t k, F f) const {
  if (is_mn_major_) {
    for (std::uint32_t line = 0; line < k; ++line)
      for (std::uint32_t c = 0; c * per_chunk_ < lines; ++c)
        f(c * per_chunk_, line, chunk(line, c));
    return;
  }
  for (std::uint32_t line = 0; line < lines; ++line)
    for (std::uint32_t c = 0; c * per_chunk_ < k; ++c)
      f(line, c * per_chunk_, chunk(line, c));
}

} // namespace ladder::instructions
