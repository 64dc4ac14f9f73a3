// Discrete Fourier transforms of any length, in double precision.
#pragma once

#include <complex>
#include <cstdint>
#include <vector>

namespace ladder::libraries {

/// Transforms one line of numbers in place, without a scale; `sign` is that of the exponent, -1 for forward.
class Fourier {
public:
  Fourier(std::int64_t length, int sign);
  void transform(std::complex<double> *line) const;

private:
  void power_of_two(std::complex<double> *line) const;

  std::int64_t length_, padded_;             ///< padded: a power of two, the length itself if it is one
  std::vector<std::complex<double>> roots_;  ///< of the padded length, exp(sign 2 pi i k / padded)
  std::vector<std::complex<double>> chirp_;  ///< exp(sign pi i k^2 / length); Bluestein's
  std::vector<std::complex<double>> filter_; ///< the transform of the chirp's conjugate
};

/// Transforms a dense array of these sizes in place, the last index fastest.
void transform(const std::vector<std::int64_t> &sizes, std::vector<std::complex<double>> &values, int sign);

} // namespace ladder::libraries
