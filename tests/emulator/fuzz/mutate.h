// Inputs for fuzzing: valid ones with a few changes. The same seed gives the same inputs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

namespace fuzz {

class Random {
public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}
  std::uint64_t next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_;
  }
  /// 0 to n - 1; 0 for n = 0.
  std::size_t below(std::size_t n) { return n ? next() % n : 0; }

private:
  std::uint64_t state_;
};

inline std::string read_file(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    throw std::runtime_error("cannot read " + path);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// A random piece of at most `most` bytes.
inline std::string piece(const std::string &text, Random &random, std::size_t most) {
  const std::size_t begin = random.below(text.size());
  return text.substr(begin, random.below(most) + 1);
}

/// A number that is unexpected as a size, offset or count.
inline std::string hostile_number(Random &random) {
  static const char *const numbers[] = {"0",          "-1",         "1",
                                        "31",         "32",         "33",
                                        "65536",      "2147483647", "2147483648",
                                        "4294967295", "4294967296", "9223372036854775807",
                                        "0xffffffff", "0x10000000", "18446744073709551615"};
  return numbers[random.below(std::size(numbers))];
}

/// Replaces the first number after a random position, if there is one.
inline void replace_number(std::string &text, Random &random) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto begin =
      std::find_if(text.begin() + std::ptrdiff_t(random.below(text.size())), text.end(), is_digit);
  const auto end = std::find_if_not(begin, text.end(), is_digit);
  text.replace(begin, end, hostile_number(random));
}

inline void change_once(std::string &text, const std::vector<std::string> &seeds, Random &random) {
  const std::size_t at = random.below(text.size());
  switch (random.below(8)) {
  case 0:
    text[at] = char(random.next());
    break;
  case 1:
    text[at] ^= char(1 << random.below(8));
    break;
  case 2:
    text.resize(at + 1);
    break;
  case 3:
    text.erase(at, random.below(32) + 1);
    break;
  case 4:
    text.insert(at, piece(text, random, 64));
    break;
  case 5:
    text.insert(at, piece(seeds[random.below(seeds.size())], random, 128));
    break;
  default:
    replace_number(text, random);
  }
}

inline std::string mutated(const std::vector<std::string> &seeds, Random &random) {
  std::string text = seeds[random.below(seeds.size())];
  for (std::size_t changes = random.below(4) + 1; changes > 0 && !text.empty(); --changes)
    change_once(text, seeds, random);
  return text;
}

/// The same, but changes only numbers, so that most results are still valid programs.
inline std::string renumbered(const std::vector<std::string> &seeds, Random &random) {
  std::string text = seeds[random.below(seeds.size())];
  for (std::size_t changes = random.below(3) + 1; changes > 0; --changes)
    replace_number(text, random);
  return text;
}

} // namespace fuzz
