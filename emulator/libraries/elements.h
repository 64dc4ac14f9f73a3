// Numbers of the types that libraries compute with. All arithmetic is that of doubles, which is exact enough
// for every narrower type; results are rounded once.
#pragma once

#include "instructions/half_type.h"
#include "runtime/work/cuda_api.h"

#include <library_types.h>

#include <complex>
#include <cstdint>
#include <cstring>

namespace ladder::libraries {

using Complex = std::complex<double>;

/// The size of an element; 0 for a type that no library here has.
constexpr std::size_t bytes_of(cudaDataType type) {
  switch (type) {
  case CUDA_R_8I:
    return 1;
  case CUDA_R_16F:
  case CUDA_R_16BF:
    return 2;
  case CUDA_R_32F:
  case CUDA_R_32I:
    return 4;
  case CUDA_R_64F:
  case CUDA_C_32F:
    return 8;
  case CUDA_C_64F:
    return 16;
  default:
    return 0;
  }
}

constexpr bool is_complex(cudaDataType type) { return type == CUDA_C_32F || type == CUDA_C_64F; }

template <typename T> T element(const void *data, std::int64_t index) {
  T value;
  std::memcpy(&value, static_cast<const char *>(data) + index * std::int64_t(sizeof(T)), sizeof value);
  return value;
}

template <typename T> void set_element(void *data, std::int64_t index, const T &value) {
  std::memcpy(static_cast<char *>(data) + index * std::int64_t(sizeof(T)), &value, sizeof value);
}

inline Complex load(cudaDataType type, const void *data, std::int64_t index) {
  switch (type) {
  case CUDA_R_8I:
    return element<std::int8_t>(data, index);
  case CUDA_R_16F:
    return instructions::Half::to_float(element<std::uint16_t>(data, index));
  case CUDA_R_16BF:
    return instructions::BFloat::to_float(element<std::uint16_t>(data, index));
  case CUDA_R_32F:
    return element<float>(data, index);
  case CUDA_R_32I:
    return element<std::int32_t>(data, index);
  case CUDA_R_64F:
    return element<double>(data, index);
  case CUDA_C_32F:
    return Complex(element<std::complex<float>>(data, index));
  default:
    return element<Complex>(data, index);
  }
}

/// Integers wrap.
inline void store(cudaDataType type, void *data, std::int64_t index, Complex value) {
  const double real = value.real();
  switch (type) {
  case CUDA_R_8I:
    return set_element(data, index, std::int8_t(std::int64_t(real)));
  case CUDA_R_16F:
    return set_element(data, index,
                       std::uint16_t(instructions::Half::from_float(instructions::to_odd(real))));
  case CUDA_R_16BF:
    return set_element(data, index,
                       std::uint16_t(instructions::BFloat::from_float(instructions::to_odd(real))));
  case CUDA_R_32F:
    return set_element(data, index, float(real));
  case CUDA_R_32I:
    return set_element(data, index, std::int32_t(std::int64_t(real)));
  case CUDA_R_64F:
    return set_element(data, index, real);
  case CUDA_C_32F:
    return set_element(data, index, std::complex<float>(value));
  default:
    return set_element(data, index, value);
  }
}

} // namespace ladder::libraries
