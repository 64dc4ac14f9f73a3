// ldmatrix, stmatrix, movmatrix: "Warp Level Matrix Instructions" of the PTX manual.
//
// A matrix is 8 rows of 8 16-bit elements. Lane 4 * r + t of a register holds elements 2t and 2t + 1 of row
// r, so its lanes in order are the rows in order.
#include "instructions/addressing.h"
#include "instructions/mma.h"
#include "instructions/whole_warp_access.h"

#include <cstring>
#include <string>

namespace ladder::instructions {

using machine::AccessKind;
using machine::Handler;
using machine::Instruction;
using machine::kAllLanes;
using machine::SharedCostCache;
using machine::Warp;
using program::Operand;
using ptx::Type;

namespace {

/// to = from transposed, both 8 x 8.
[[gnu::always_inline]] inline void transpose(const std::uint16_t *from, std::uint16_t *to) {
  // Three rounds, each interleaving row i with row i + 4, transpose the matrix.
  typedef std::uint16_t Row [[gnu::vector_size(16)]];
  constexpr Row kLow = {0, 8, 1, 9, 2, 10, 3, 11}, kHigh = {4, 12, 5, 13, 6, 14, 7, 15};
  Row rows[8], next[8];
  std::memcpy(rows, from, sizeof rows);
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 4; ++i) {
      next[2 * i] = __builtin_shuffle(rows[i], rows[i + 4], kLow);
      next[2 * i + 1] = __builtin_shuffle(rows[i], rows[i + 4], kHigh);
    }
    std::memcpy(rows, next, sizeof rows);
  }
  std::memcpy(to, rows, sizeof rows);
}

constexpr std::uint32_t kHalvesOfMatrix = 64;

/// Checks and counts the rows that the first 8 * Matrices lanes address, with a new pattern.
template <int Matrices>
[[gnu::noinline]] void resolve_rows(Warp &warp, const Instruction &in, AccessKind kind, Direction direction,
                                    LaneAccess &rows) {
  constexpr int kRows = 8 * Matrices;
  constexpr std::uint32_t kLanes = Matrices == 4 ? kAllLanes : (1u << kRows) - 1;
  resolve(warp, address_space(in.flags), address_base(in.flags), in.op[0], in.imm, kLanes, 16, 16, direction,
          rows);
  if (const std::uint32_t other = kLanes & ~rows.shared_lanes)
    throw machine::FaultError(machine::FaultKind::bad_operand, "a matrix row outside shared memory",
                              std::countr_zero(other));
  remember_shared(warp, in, kind, SharedCostCache::Op::matrix, rows.shared, kRows, Matrices, 16);
}

/// Calls transfer(row) with a function from a lane to its row.
template <int Matrices, typename Transfer>
[[gnu::always_inline]] inline void with_matrix_rows(Warp &warp, const Instruction &in, AccessKind kind,
                                                    Direction direction, Transfer transfer) {
  if (std::uint32_t begin; repeats_shared<8 * Matrices>(warp, in, begin)) {
    std::uint8_t *const base = warp.block().shared_base();
    const std::uint32_t *const offsets = warp.block().pattern(in).shared_offsets();
    transfer([&](int lane) { return base + std::uint32_t(begin + offsets[lane]); });
    return;
  }
  LaneAccess rows;
  resolve_rows<Matrices>(warp, in, kind, direction, rows);
  transfer([&](int lane) { return rows.at<std::uint8_t>(lane); });
}

/// op[0] the rows' addresses, op[1..4] the registers.
template <int Matrices, bool Transposed> void load_matrix(Warp &warp, const Instruction &in) {
  if (!whole_warp(warp))
    return;
  with_matrix_rows<Matrices>(warp, in, AccessKind::ldmatrix, Direction::read, [&](auto row_of) {
    for (int matrix = 0; matrix < Matrices; ++matrix) {
      std::uint16_t halves[kHalvesOfMatrix];
      auto *const to = warp.lanes<std::uint16_t>(in.op[1 + matrix]);
      for (int row = 0; row < 8; ++row)
        std::memcpy((Transposed ? halves : to) + 8 * row, row_of(8 * matrix + row), 16);
      if constexpr (Transposed)
        transpose(halves, to);
    }
  });
}

template <int Matrices, bool Transposed> void store_matrix(Warp &warp, const Instruction &in) {
  if (!whole_warp(warp))
    return;
  with_matrix_rows<Matrices>(warp, in, AccessKind::stmatrix, Direction::write, [&](auto row_of) {
    for (int matrix = 0; matrix < Matrices; ++matrix) {
      std::uint16_t halves[kHalvesOfMatrix];
      const auto *from = warp.lanes<std::uint16_t>(in.op[1 + matrix]);
      if constexpr (Transposed) {
        transpose(from, halves);
        from = halves;
      }
      for (int row = 0; row < 8; ++row)
        std::memcpy(row_of(8 * matrix + row), from + 8 * row, 16);
    }
  });
}

void move_matrix(Warp &warp, const Instruction &in) {
  if (!whole_warp(warp))
    return;
  std::uint16_t halves[kHalvesOfMatrix];
  transpose(warp.lanes<std::uint16_t>(in.op[1]), halves);
  std::memcpy(warp.lanes<std::uint16_t>(in.op[0]), halves, sizeof halves);
}

// --- binding

struct Handlers {
  Handler plain, transposed;
};

template <int Matrices> Handlers handlers(bool loads) {
  if (loads)
    return {load_matrix<Matrices, false>, load_matrix<Matrices, true>};
  return {store_matrix<Matrices, false>, store_matrix<Matrices, true>};
}

template <bool loads> bool bind_matrix_access(Binder &binder) {
  if (!binder.has("m8n8") || !binder.has("b16"))
    binder.unsupported("matrices other than 8 x 8 of 16-bit elements");
  const unsigned matrices = binder.has("x1") ? 1 : binder.has("x2") ? 2 : binder.has("x4") ? 4 : 0;
  if (matrices == 0)
    binder.unsupported("the number of matrices");
  const Space space = space_of(binder);
  if (space != Space::shared && space != Space::generic)
    binder.unsupported("matrices outside shared memory");

  const Operand &registers = binder.operand(loads ? 0 : 1);
  const bool is_vector = registers.kind == Operand::Kind::vector;
  if ((is_vector ? registers.elements.size() : 1) != matrices)
    binder.unsupported("the number of registers differs from the number of matrices");
  for (unsigned i = 0; i < matrices; ++i) {
    const Operand &element = is_vector ? registers.elements[i] : registers;
    binder.out.op[1 + i] =
        loads ? binder.destination_slot(element, Type::b32) : binder.source_slot(element, Type::b32);
  }
  const Binder::Address place = binder.address(binder.operand(loads ? 1 : 0));
  binder.out.op[0] = place.slot;
  binder.out.imm = place.offset;
  binder.out.flags = address_flags(place.base, space);
  const Handlers found = matrices == 1   ? handlers<1>(loads)
                         : matrices == 2 ? handlers<2>(loads)
                                         : handlers<4>(loads);
  binder.out.execute = binder.has("trans") ? found.transposed : found.plain;
  return true;
}

bool bind_movmatrix(Binder &binder) {
  if (!binder.has("m8n8") || !binder.has("b16") || !binder.has("trans"))
    binder.unsupported("matrices other than 8 x 8 of 16-bit elements");
  binder.out.op[0] = binder.destination_slot(0, Type::b32);
  binder.out.op[1] = binder.source_slot(1, Type::b32);
  binder.out.execute = move_matrix;
  return true;
}

constexpr TableEntry kTable[] = {
    {"ldmatrix", bind_matrix_access<true>},
    {"stmatrix", bind_matrix_access<false>},
    {"movmatrix", bind_movmatrix},
    {"mma", bind_mma},
};

} // namespace

std::span<const TableEntry> matrix_table() { return kTable; }

} // namespace ladder::instructions
