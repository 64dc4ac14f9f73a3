#include "libraries/fourier.h"

#include <algorithm>
#include <bit>
#include <numbers>
#include <utility>

namespace ladder::libraries {

namespace {

using Complex = std::complex<double>;

Complex root(std::int64_t k, std::int64_t of, int sign) {
  return std::polar(1.0, sign * 2 * std::numbers::pi * double(k) / double(of));
}

/// Complex products without the checks for infinities that std::complex makes.
Complex product(const Complex &a, const Complex &b) {
  return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
}

} // namespace

Fourier::Fourier(std::int64_t length, int sign) : length_(length), padded_(length) {
  const auto size = std::uint64_t(length);
  if (!std::has_single_bit(size))
    padded_ = std::int64_t(std::bit_ceil(2 * size));
  for (std::int64_t k = 0; k < padded_; ++k)
    roots_.push_back(root(k, padded_, sign));
  if (padded_ == length_)
    return;
  // A transform is a convolution with a chirp (Bluestein, 1970).
  for (std::int64_t k = 0; k < length_; ++k)
    chirp_.push_back(root(k * k % (2 * length_), 2 * length_, sign));
  filter_.resize(std::size_t(padded_));
  for (std::int64_t k = 0; k < length_; ++k)
    filter_[std::size_t(k)] = filter_[std::size_t((padded_ - k) % padded_)] =
        std::conj(chirp_[std::size_t(k)]);
  power_of_two(filter_.data());
}

void Fourier::power_of_two(Complex *line) const {
  const auto size = std::uint64_t(padded_);
  for (std::uint64_t i = 1, reversed = 0; i < size; ++i) {
    std::uint64_t bit = size / 2;
    for (; reversed & bit; bit /= 2)
      reversed ^= bit;
    reversed ^= bit;
    if (i < reversed)
      std::swap(line[i], line[reversed]);
  }
  for (std::uint64_t half = 1; half < size; half *= 2)
    for (std::uint64_t begin = 0; begin < size; begin += 2 * half)
      for (std::uint64_t k = 0; k < half; ++k) {
        const Complex upper = line[begin + k];
        const Complex lower = product(line[begin + half + k], roots_[k * (size / (2 * half))]);
        line[begin + k] = upper + lower;
        line[begin + half + k] = upper - lower;
      }
}

void Fourier::transform(Complex *line) const {
  if (padded_ == length_)
    return power_of_two(line);
  std::vector<Complex> work(static_cast<std::size_t>(padded_));
  for (std::size_t k = 0; k < std::size_t(length_); ++k)
    work[k] = product(line[k], chirp_[k]);
  power_of_two(work.data());
  for (std::size_t k = 0; k < work.size(); ++k)
    work[k] = product(work[k], filter_[k]);
  // The inverse transform is the forward one backwards.
  power_of_two(work.data());
  std::reverse(work.begin() + 1, work.end());
  for (std::size_t k = 0; k < std::size_t(length_); ++k)
    line[k] = product(work[k], chirp_[k]) / double(padded_);
}

void transform(const std::vector<std::int64_t> &sizes, std::vector<Complex> &values, int sign) {
  std::int64_t stride = 1;
  const auto all = std::int64_t(values.size());
  for (auto size = sizes.rbegin(); size != sizes.rend(); stride *= *size++) {
    if (*size == 1)
      continue;
    const Fourier fourier(*size, sign);
    std::vector<Complex> line(static_cast<std::size_t>(*size));
    for (std::int64_t begin = 0; begin < all; begin += stride * *size)
      for (std::int64_t first = begin; first < begin + stride; ++first) {
        for (std::int64_t i = 0; i < *size; ++i)
          line[std::size_t(i)] = values[std::size_t(first + i * stride)];
        fourier.transform(line.data());
        for (std::int64_t i = 0; i < *size; ++i)
          values[std::size_t(first + i * stride)] = line[std::size_t(i)];
      }
  }
}

} // namespace ladder::libraries
