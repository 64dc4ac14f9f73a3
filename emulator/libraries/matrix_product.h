// Products of matrices in column-major order, of any of the types of elements.h.
#pragma once

#include "libraries/elements.h"

#include <cstdint>
#include <functional>
#include <vector>

namespace ladder::libraries {

/// op(M): element (row, column) of M is at row + column * ld.
struct Factor {
  cudaDataType type = CUDA_R_32F;
  const void *data = nullptr;
  std::int64_t ld = 0;
  bool is_transposed = false, is_conjugated = false;

  std::int64_t index(std::int64_t row, std::int64_t column) const {
    return is_transposed ? column + row * ld : row + column * ld;
  }
  Complex at(std::int64_t row, std::int64_t column) const {
    const Complex value = load(type, data, index(row, column));
    return is_conjugated ? std::conj(value) : value;
  }
};

/// C = alpha op(A) op(B) + beta C. C is m x n; op(A) has k columns. Where beta is 0, C is not read; where
/// alpha is, A and B are not.
struct Product {
  std::int64_t m = 0, n = 0, k = 0;
  Factor a, b;
  cudaDataType type = CUDA_R_32F; ///< of C
  void *c = nullptr;
  std::int64_t ld = 0;
  /// Whether an element of C is to be computed; empty: all are.
  std::function<bool(std::int64_t row, std::int64_t column)> includes;
};

/// Computes them on up to `threads` threads (0: one per core). Sums are in the order of k, whatever the
/// threads.
void multiply(const std::vector<Product> &products, Complex alpha, Complex beta, unsigned threads);

} // namespace ladder::libraries
