// A fat binary like those that nvcc puts into programs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace fuzz {

class BinaryImage {
public:
  enum class Damage { none, magic, version, container, newer, compressed, entry_size, text };

  BinaryImage(const std::string &ptx, Damage damage = Damage::none) {
    const std::string text = damage == Damage::text ? ptx.substr(0, ptx.size() / 2) : ptx;
    put<std::uint32_t>(damage == Damage::container ? 7 : 0xba55ed50);
    put<std::uint16_t>(1);
    put<std::uint16_t>(16);
    put<std::uint64_t>(64 + text.size());
    put<std::uint16_t>(1); // PTX
    put<std::uint16_t>(0x101);
    put<std::uint32_t>(64);
    put<std::uint64_t>(damage == Damage::entry_size ? ~std::uint64_t(0) : text.size());
    put<std::uint32_t>(0);
    put<std::uint32_t>(0);
    put<std::uint16_t>(0);
    put<std::uint16_t>(8);
    put<std::uint32_t>(damage == Damage::newer ? 100 : 80);
    put<std::uint32_t>(0);
    put<std::uint32_t>(0);
    put<std::uint64_t>(0);
    put<std::uint64_t>(0);
    put<std::uint64_t>(damage == Damage::compressed ? text.size() : 0);
    bytes_.insert(bytes_.end(), text.begin(), text.end());
    wrapper_ = {damage == Damage::magic ? 1 : 0x466243b1, damage == Damage::version ? 2 : 1, bytes_.data(),
                nullptr};
  }
  BinaryImage(const BinaryImage &) = delete;

  /// The argument of __cudaRegisterFatBinary. Lives as long as this object.
  void *wrapper() { return &wrapper_; }

private:
  template <typename T> void put(T value) {
    const auto *const begin = reinterpret_cast<const unsigned char *>(&value);
    bytes_.insert(bytes_.end(), begin, begin + sizeof value);
  }

  std::vector<unsigned char> bytes_;
  struct {
    std::int32_t magic, version;
    const void *data, *prelinked;
  } wrapper_{};
};

} // namespace fuzz
