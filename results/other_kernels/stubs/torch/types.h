// Stands for torch's headers: host code of the sources compiles against it, and none of that runs.
#pragma once

#include <cassert>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <iostream>
#include <stdexcept>

namespace torch {

enum Dtype { kFloat32, kHalf };
enum DeviceType { kCUDA };

struct Device {
  explicit Device(DeviceType) {}
};

struct Options {
  Dtype dtype() const { return kFloat32; }
};

inline std::ostream &operator<<(std::ostream &out, Options) { return out; }

struct Tensor {
  std::int64_t size(int) const { return 0; }
  Options options() const { return {}; }
  template <typename T = void> T *data_ptr() const { return nullptr; }
  Tensor to(Device) const { return {}; }
};

inline Tensor zeros_like(Tensor) { return {}; }
inline Tensor zeros(std::initializer_list<std::int64_t>) { return {}; }
inline Tensor full(std::initializer_list<std::int64_t>, double) { return {}; }

} // namespace torch
