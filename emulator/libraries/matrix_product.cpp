#include "libraries/matrix_product.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <thread>

// Both versions give the same bits: no contraction, and the same order of sums.
#if defined(__x86_64__)
#define LADDER_FOR_NEWER_CPUS [[gnu::target_clones("avx2", "default")]]
#else
#define LADDER_FOR_NEWER_CPUS
#endif

namespace ladder::libraries {

namespace {

/// Registers hold kRows x kColumns sums. A tile of C, and a slice of k, are what the caches hold.
constexpr std::int64_t kRows = 8, kColumns = 4, kTile = 128, kDepth = 256;
/// Fewer multiplications than these are not worth a thread.
constexpr double kWorthThreads = 1e6;

constexpr std::size_t kVectorBytes = 32;
using Vector [[gnu::vector_size(kVectorBytes), gnu::may_alias]] = double;
constexpr int kLanes = 4, kVectors = kRows / kLanes;

/// sums[kColumns][kRows] += the products of `depth` columns of kRows numbers and rows of kColumns.
LADDER_FOR_NEWER_CPUS void add_products(const double *a, const double *b, std::int64_t depth, double *sums) {
  Vector total[kColumns][kVectors];
  auto *const kept = reinterpret_cast<Vector *>(sums);
  for (int j = 0; j < kColumns; ++j)
    for (int i = 0; i < kVectors; ++i)
      total[j][i] = kept[j * kVectors + i];
  for (std::int64_t k = 0; k < depth; ++k, a += kRows, b += kColumns) {
    const auto *const rows = reinterpret_cast<const Vector *>(a);
    for (int j = 0; j < kColumns; ++j)
      for (int i = 0; i < kVectors; ++i)
        total[j][i] += rows[i] * b[j];
  }
  for (int j = 0; j < kColumns; ++j)
    for (int i = 0; i < kVectors; ++i)
      kept[j * kVectors + i] = total[j][i];
}

constexpr std::int64_t rounded_up(std::int64_t number, std::int64_t step) {
  return (number + step - 1) / step * step;
}

enum class Part { real, imaginary };

/// A slice of a factor: `lines` rows of A or columns of B, from `first` on, `depth` numbers of each.
struct Slice {
  std::int64_t first, line_step, depth_step; ///< of elements
  std::int64_t lines, depth;
};

/// Copies one part of a slice into panels of `width` lines; lines beyond the slice are 0.
template <cudaDataType type>
void pack(const Factor &factor, Part part, double sign, const Slice &slice, std::int64_t width,
          double *panels) {
  if (factor.is_conjugated && part == Part::imaginary)
    sign = -sign;
  const auto copy = [&](std::int64_t line, std::int64_t d) {
    const Complex value =
        load(type, factor.data, slice.first + line * slice.line_step + d * slice.depth_step);
    panels[(line / width * slice.depth + d) * width + line % width] =
        sign * (part == Part::real ? value.real() : value.imag());
  };
  if (slice.line_step == 1) // as it is in memory
    for (std::int64_t d = 0; d < slice.depth; ++d)
      for (std::int64_t line = 0; line < slice.lines; ++line)
        copy(line, d);
  else
    for (std::int64_t line = 0; line < slice.lines; ++line)
      for (std::int64_t d = 0; d < slice.depth; ++d)
        copy(line, d);
  for (std::int64_t line = slice.lines; line < rounded_up(slice.lines, width); ++line)
    for (std::int64_t d = 0; d < slice.depth; ++d)
      panels[(line / width * slice.depth + d) * width + line % width] = 0;
}

using Pack = void (*)(const Factor &, Part, double, const Slice &, std::int64_t, double *);

Pack pack_of(cudaDataType type) {
  switch (type) {
  case CUDA_R_8I:
    return pack<CUDA_R_8I>;
  case CUDA_R_16F:
    return pack<CUDA_R_16F>;
  case CUDA_R_16BF:
    return pack<CUDA_R_16BF>;
  case CUDA_R_32F:
    return pack<CUDA_R_32F>;
  case CUDA_R_64F:
    return pack<CUDA_R_64F>;
  case CUDA_C_32F:
    return pack<CUDA_C_32F>;
  default:
    return pack<CUDA_C_64F>;
  }
}

/// The buffers of a thread.
struct Workspace {
  alignas(kVectorBytes) std::array<double, kTile * kDepth> a, b;
  alignas(kVectorBytes) std::array<double, kTile * kTile> real, imaginary;
};

/// A tile of C: these rows and columns of a product.
struct Tile {
  const Product *product;
  std::int64_t row, column, rows, columns;
};

/// Adds the product of one part of A and one of B to sums, in panels of kRows x kColumns.
void add_part(const Tile &tile, Part a_part, Part b_part, double sign, Workspace &space, double *sums) {
  const Product &product = *tile.product;
  for (std::int64_t k = 0; k < product.k; k += kDepth) {
    const std::int64_t depth = std::min(kDepth, product.k - k);
    const Factor &a = product.a, &b = product.b;
    pack_of(a.type)(a, a_part, sign, {a.index(tile.row, k), a.index(1, 0), a.index(0, 1), tile.rows, depth},
                    kRows, space.a.data());
    pack_of(b.type)(b, b_part, 1,
                    {b.index(k, tile.column), b.index(0, 1), b.index(1, 0), tile.columns, depth}, kColumns,
                    space.b.data());
    for (std::int64_t j = 0; j < tile.columns; j += kColumns)
      for (std::int64_t i = 0; i < tile.rows; i += kRows)
        add_products(&space.a[std::size_t(i * depth)], &space.b[std::size_t(j * depth)], depth,
                     &sums[std::size_t(j * kTile + i * kColumns)]);
  }
}

void compute(const Tile &tile, Complex alpha, Complex beta, Workspace &space) {
  const Product &product = *tile.product;
  const std::int64_t used = rounded_up(tile.columns, kColumns) * kTile;
  std::fill_n(space.real.begin(), used, 0.0);
  std::fill_n(space.imaginary.begin(), used, 0.0);
  const bool a_is_complex = is_complex(product.a.type), b_is_complex = is_complex(product.b.type);
  if (alpha != 0.0) {
    add_part(tile, Part::real, Part::real, 1, space, space.real.data());
    if (a_is_complex && b_is_complex)
      add_part(tile, Part::imaginary, Part::imaginary, -1, space, space.real.data());
    if (b_is_complex)
      add_part(tile, Part::real, Part::imaginary, 1, space, space.imaginary.data());
    if (a_is_complex)
      add_part(tile, Part::imaginary, Part::real, 1, space, space.imaginary.data());
  }
  const bool is_real = !is_complex(product.type);
  for (std::int64_t j = 0; j < tile.columns; ++j)
    for (std::int64_t i = 0; i < tile.rows; ++i) {
      const std::int64_t row = tile.row + i, column = tile.column + j, at = row + column * product.ld;
      if (product.includes && !product.includes(row, column))
        continue;
      const auto sum = std::size_t(j / kColumns * kColumns * kTile + i / kRows * kRows * kColumns +
                                   j % kColumns * kRows + i % kRows);
      // A complex multiplication by a real number would make NaNs of infinities.
      Complex value = is_real ? Complex(alpha.real() * space.real[sum])
                              : alpha * Complex(space.real[sum], space.imaginary[sum]);
      if (alpha == 0.0)
        value = 0;
      if (beta != 0.0) {
        const Complex old = load(product.type, product.c, at);
        value += is_real ? Complex(beta.real() * old.real()) : beta * old;
      }
      store(product.type, product.c, at, value);
    }
}

} // namespace

void multiply(const std::vector<Product> &products, Complex alpha, Complex beta, unsigned threads) {
  std::vector<Tile> tiles;
  double work = 0;
  for (const Product &product : products) {
    work += double(product.m) * double(product.n) * double(product.k);
    for (std::int64_t column = 0; column < product.n; column += kTile)
      for (std::int64_t row = 0; row < product.m; row += kTile)
        tiles.push_back(
            {&product, row, column, std::min(kTile, product.m - row), std::min(kTile, product.n - column)});
  }
  std::atomic<std::size_t> next{0};
  const auto run = [&] {
    thread_local const auto space = std::make_unique<Workspace>();
    for (std::size_t i; (i = next++) < tiles.size();)
      compute(tiles[i], alpha, beta, *space);
  };
  const std::size_t wanted = threads ? threads : std::max(1u, std::thread::hardware_concurrency());
  const std::size_t used = work < kWorthThreads ? 1 : std::min(wanted, tiles.size());
  std::vector<std::jthread> others;
  for (std::size_t i = 1; i < used; ++i)
    others.emplace_back(run);
  run();
}

} // namespace ladder::libraries
