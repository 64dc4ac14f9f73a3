// Undefined values: the bits of registers and the bytes of memory that hold values from memory never written.
#pragma once

#include "machine/warp.h"
#include "program/program.h"

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>

namespace ladder::sanitizer {

/// Bytes of memory that were written with undefined values. Usually there are none.
class UndefinedBytes {
public:
  bool empty() const { return origins_.empty(); }
  /// Byte i is undefined if bit i of `mask` is set, else defined. `bytes` is at most 32.
  void set(std::uint64_t address, unsigned bytes, std::uint32_t mask, std::uint32_t origin);
  void clear(std::uint64_t address, std::uint64_t bytes);
  std::uint32_t mask(std::uint64_t address, unsigned bytes) const;
  void copy(std::uint64_t destination, std::uint64_t source, std::uint64_t bytes);
  struct Found {
    std::uint64_t first = 0, bytes = 0; ///< address of the first one, number of all
    std::uint32_t origin = 0;           ///< of the first
  };
  std::optional<Found> find(std::uint64_t address, std::uint64_t bytes) const;

private:
  std::map<std::uint64_t, std::uint32_t> origins_; ///< by address
};

/// Undefined bits of a register in each lane.
using LaneBits = std::array<std::uint64_t, 32>;

/// Registers of a warp that hold undefined bits. Usually there are none.
class UndefinedRegisters {
public:
  struct Value {
    LaneBits bits{};
    std::uint32_t origin = 0; ///< the load that read them: an index in Code::instructions
  };
  bool empty() const { return values_.empty(); }
  /// nullptr if all bits are defined.
  const Value *find(const machine::Frame &frame, std::uint32_t offset) const;
  /// Replaces the bits of these lanes.
  void set(const machine::Frame &frame, std::uint32_t offset, std::uint32_t lanes, const LaneBits &bits,
           std::uint32_t origin);
  /// The call has ended; its frame may be reused.
  void forget(const machine::Frame &frame);

private:
  std::map<std::pair<const machine::Frame *, std::uint32_t>, Value> values_; ///< by offset in the frame
};

/// One lane's source operand.
struct Input {
  std::uint64_t value = 0, undefined = 0;
};

/// The undefined bits, among `all`, of an instruction's result in a lane with these operands.
using Rule = std::uint64_t (*)(const program::Instruction &source, std::span<const Input> inputs,
                               std::uint64_t all);
/// Exact for bit operations and selections. For other instructions, one undefined bit makes the whole result
/// undefined, or its half of a packed result.
Rule rule_of(const program::Instruction &source);

inline bool is_signed(ptx::Type type) { return type >= ptx::Type::s8 && type <= ptx::Type::s64; }

/// The low `count` bits.
inline std::uint64_t low_bits(unsigned count) {
  return count >= 64 ? ~std::uint64_t(0) : (std::uint64_t(1) << count) - 1;
}

} // namespace ladder::sanitizer
