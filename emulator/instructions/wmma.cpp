// wmma.load, wmma.store and wmma.mma: "Warp Level Matrix Instructions: wmma" of the PTX manual.
//
// The manual leaves open which lane holds which element. Here a fragment is the matrix in row-major order,
// dealt out register by register: register r of lane l holds elements (32 r + l) P .. + P - 1, with P
// elements per register. The f16 fragments of A and B have more registers than they need; the spare ones
// repeat from the first element.
//
// Loads and stores count as the accesses that ptxas generates for sm_75 to sm_90. The matrix in memory, as
// lines (rows or columns), is split into blocks of 8 lines. If a lane's elements are neighbours in memory (A
// by rows, B by columns, C and D of 16 rows by rows), lane l accesses line l / 4 from element unit * (l % 4)
// on, `unit` elements at once: 2 for C and D, 4 bytes' worth for A and B, 1 for f64. Otherwise lane l
// accesses element l / 4 of lines unit * (l % 4) + j, one line after another; 16-bit elements never need
// this, as they are transposed in registers. 16-bit A and B in shared memory, and 8-bit ones in lane order,
// use ldmatrix.
#include "instructions/addressing.h"
#include "instructions/mma.h"
#include "instructions/mma_avx512.h"
#include "instructions/multiply.h"
#include "machine/address_space.h"

#include <algorithm>
#include <string>

namespace ladder::instructions {

using machine::AccessKind;
using machine::FaultError;
using machine::FaultKind;
using machine::Handler;
using machine::Instruction;
using machine::Warp;
using program::Operand;
using ptx::Type;

namespace {

struct Shape {
  int m, n, k;
};

Shape find_shape(const Binder &binder) {
  const struct {
    std::string_view name;
    Shape shape;
  } known[] = {
      {"m16n16k16", {16, 16, 16}}, {"m32n8k16", {32, 8, 16}}, {"m8n32k16", {8, 32, 16}},
      {"m16n16k8", {16, 16, 8}},   {"m8n8k4", {8, 8, 4}},
  };
  for (const auto &[name, shape] : known)
    if (binder.has(name))
      return shape;
  binder.unsupported("this shape");
}

/// One of A, B, C and D.
struct Fragment {
  int rows = 0, columns = 0;
  unsigned element_bytes = 0;
  unsigned registers = 0; ///< in the instruction
  unsigned distinct = 0;  ///< leading registers that hold all elements
};

/// `which` is 'a', 'b', 'c' or 'd'.
Fragment fragment(const Binder &binder, Shape shape, char which, Type type) {
  Fragment result;
  result.rows = which == 'b' ? shape.k : shape.m;
  result.columns = which == 'a' ? shape.k : shape.n;
  result.element_bytes = type == Type::tf32 ? 4 : ptx::type_bytes(type);
  const bool is_input = which == 'a' || which == 'b';
  const bool is_supported =
      is_input ? (shape.k == 16 &&
                  (type == Type::f16 || type == Type::bf16 || type == Type::s8 || type == Type::u8)) ||
                     (shape.k == 8 && type == Type::tf32) || (shape.k == 4 && type == Type::f64)
               : (shape.k == 16 && (type == Type::f16 || type == Type::f32 || type == Type::s32)) ||
                     (shape.k == 8 && type == Type::f32) || (shape.k == 4 && type == Type::f64);
  if (!is_supported)
    binder.unsupported("this shape and these types");
  const unsigned register_bytes = type == Type::f64 ? 8 : 4;
  result.distinct = unsigned(result.rows * result.columns) * result.element_bytes / (32 * register_bytes);
  result.registers = is_input && type == Type::f16 ? 8 : result.distinct;
  return result;
}

// --- load and store

// Operands: op[0] the address, op[1] the stride in elements, op[2] log2 of the element size in bytes, op[3]
// rows, op[4] columns, op[5] the number of distinct registers. More holds the number of registers, then their
// slots.
constexpr std::uint32_t kColumnMajor = 1u << kAddressFlagBits;
constexpr std::uint32_t kWide = 1u << (kAddressFlagBits + 1); ///< 64-bit registers

constexpr std::uint32_t kAcross = 1u << (kAddressFlagBits + 2);   ///< a lane's elements are in several lines
constexpr std::uint32_t kMatrices = 1u << (kAddressFlagBits + 3); ///< uses ldmatrix
constexpr int kUnitShift = kAddressFlagBits + 4;                  ///< 3 bits: elements accessed at once

constexpr std::size_t kMostBytes = 16 * 32 * 4;

/// Host address of [address, address + bytes) if it is contiguous and cheap to find; else nullptr.
std::uint8_t *find_whole(Warp &warp, Space space, std::uint64_t address, std::uint64_t bytes,
                         Direction direction) {
  const std::uint64_t window = space == Space::generic ? address & machine::kWindowMask : 0;
  if (space == Space::shared || window == machine::kSharedWindow) {
    const machine::Block &block = warp.block();
    const std::uint64_t at = address - window;
    const bool inside =
        at >= block.shared_begin() && at < block.shared_end() && bytes <= block.shared_end() - at;
    return inside ? warp.block().shared_base() + at : nullptr;
  }
  if ((space == Space::global || space == Space::generic) && window == 0 &&
      warp.remembered_range(address, bytes, direction == Direction::write))
    return reinterpret_cast<std::uint8_t *>(address);
  return nullptr;
}

/// Copies by vectors, which the compiler does not use for memcpy.
template <std::size_t Bytes>
[[gnu::always_inline]] inline void copy_vectors(std::uint8_t *to, const std::uint8_t *from) {
  typedef std::uint8_t Bytes32 [[gnu::vector_size(32)]];
  for (std::size_t i = 0; i < Bytes; i += sizeof(Bytes32)) {
    Bytes32 vector;
    std::memcpy(&vector, from + i, sizeof vector);
    std::memcpy(to + i, &vector, sizeof vector);
  }
}

/// memcpy of a line or a register; constant sizes in common cases are much faster.
[[gnu::always_inline]] inline void copy(std::uint8_t *to, const std::uint8_t *from, std::size_t bytes) {
  if (bytes == 32)
    copy_vectors<32>(to, from);
  else if (bytes == 64)
    copy_vectors<64>(to, from);
  else if (bytes == 128)
    copy_vectors<128>(to, from);
  else
    std::memcpy(to, from, bytes);
}

/// A fragment in memory.
struct Lines {
  std::uint64_t address, pitch; ///< address of the first line; distance between lines
  std::uint32_t lines, length;  ///< number of lines; elements per line
  bool in_shared;
};

/// The sum over all accesses of one execution.
struct FragmentCost {
  machine::SharedCost shared;
  unsigned sectors = 0;
};

constexpr std::uint32_t kMatrixRowBytes = 16, kMatrixRows = 8, kMatricesAtOnce = 4;

/// The number of accesses of one execution.
std::uint32_t accesses(const Instruction &in, const Lines &at) {
  const std::uint32_t elements = at.lines * at.length;
  if (in.flags & kMatrices) {
    constexpr std::uint32_t kBytesAtOnce = kMatrixRowBytes * kMatrixRows * kMatricesAtOnce;
    return ((elements << in.op[2]) + kBytesAtOnce - 1) / kBytesAtOnce;
  }
  const std::uint32_t at_once = in.flags & kAcross ? 1 : in.flags >> kUnitShift & 7;
  return elements / (32 * at_once);
}

void add_shared(Warp &warp, const Instruction &in, FragmentCost &sum, machine::SharedCostCache::Op op,
                const machine::LaneAddresses &addresses, std::uint32_t lanes, unsigned width) {
  machine::Block &block = warp.block();
  const machine::SharedCost cost = machine::SharedCostCache::compute(op, addresses, lanes, width);
  block.counters().note(std::uint32_t(&in - block.code().instructions.data()),
                        {op, width, lanes, addresses, cost, block.linear_index(), warp.index()});
  sum.shared.wavefronts += cost.wavefronts;
  sum.shared.passes += cost.passes;
  sum.shared.conflicts += cost.conflicts;
  sum.shared.ideal += cost.ideal;
}

FragmentCost matrices_cost(Warp &warp, const Instruction &in, const Lines &at) {
  constexpr std::uint32_t kRows = kMatrixRows;
  const std::uint32_t down = at.lines / kRows, all = down * ((at.length << in.op[2]) / kMatrixRowBytes);
  FragmentCost sum;
  for (std::uint32_t first = 0; first < all; first += kMatricesAtOnce) {
    const std::uint32_t count = std::min(all - first, kMatricesAtOnce);
    machine::LaneAddresses rows;
    rows.fill(std::uint32_t(at.address));
    for (std::uint32_t i = 0; i < kRows * count; ++i) {
      const std::uint32_t matrix = first + i / kRows, line = matrix % down * kRows + i % kRows;
      rows[i] = std::uint32_t(at.address + line * at.pitch + matrix / down * kMatrixRowBytes);
    }
    const std::uint32_t lanes = count == kMatricesAtOnce ? machine::kAllLanes : (1u << (kRows * count)) - 1;
    add_shared(warp, in, sum, machine::SharedCostCache::Op::matrix, rows, lanes, count);
  }
  return sum;
}

FragmentCost lanes_cost(Warp &warp, const Instruction &in, const Lines &at, bool writes) {
  const bool across = in.flags & kAcross;
  const std::uint32_t unit = in.flags >> kUnitShift & 7;
  const unsigned bytes = (across ? 1 : unit) << in.op[2];
  FragmentCost sum;
  for (std::uint32_t line = 0; line < at.lines; line += across ? 4 * unit : 8)
    for (std::uint32_t element = 0; element < at.length; element += across ? 8 : 4 * unit)
      for (std::uint32_t j = 0; j < (across ? unit : 1); ++j) {
        std::uint64_t addresses[32];
        machine::LaneAddresses shared;
        for (std::uint32_t lane = 0; lane < 32; ++lane) {
          const std::uint32_t own_line = line + (across ? unit * (lane % 4) + j : lane / 4),
                              own_element = element + (across ? lane / 4 : unit * (lane % 4));
          addresses[lane] = at.address + own_line * at.pitch + (std::uint64_t(own_element) << in.op[2]);
          shared[lane] = std::uint32_t(addresses[lane]);
        }
        if (at.in_shared) {
          add_shared(warp, in, sum,
                     writes ? machine::SharedCostCache::Op::store : machine::SharedCostCache::Op::load,
                     shared, machine::kAllLanes, bytes);
        } else {
          sum.sectors += global_sectors(addresses, machine::kAllLanes, bytes);
        }
      }
  return sum;
}

AccessKind kind_of(const Instruction &in, const Lines &at, bool writes) {
  if (in.flags & kMatrices)
    return AccessKind::ldmatrix;
  if (at.in_shared)
    return writes ? AccessKind::shared_store : AccessKind::shared_load;
  return writes ? AccessKind::global_store : AccessKind::global_load;
}

/// Counts all accesses of one execution as one hit of the instruction's pattern: their cost depends only on
/// the addresses of the lines.
template <class Word>
void count_lines(Warp &warp, const Instruction &in, const Lines &at, bool writes, Word period) {
  alignas(64) Word lines[32];
  for (Word line = 0; line < 32; ++line)
    lines[line] = Word(at.address) + line * Word(at.pitch);
  machine::Block &block = warp.block();
  const AccessKind kind = kind_of(in, at, writes);
  if (Word base; block.pattern(in).kind == kind && block.pattern(in).fits<32>(lines, Word(0), period, base)) {
    block.pattern(in).hit();
    return;
  }
  const FragmentCost sum =
      in.flags & kMatrices ? matrices_cost(warp, in, at) : lanes_cost(warp, in, at, writes);
  machine::AccessPattern &pattern = block.renew_pattern(in, kind);
  if constexpr (sizeof(Word) == 4)
    pattern.remember(lines, 32, 0, sum.shared);
  else
    pattern.remember(lines, 0, sum.sectors, nullptr);
  pattern.accesses_per_hit = accesses(in, at);
}

void count_fragment(Warp &warp, const Instruction &in, const Lines &at, bool writes) {
  if (at.in_shared)
    count_lines(warp, in, at, writes, machine::AccessPattern::kBankPeriod);
  else
    count_lines(warp, in, at, writes, machine::AccessPattern::kSectorPeriod);
}

/// From lane 0 on: a vector that was written as two cannot be read at once.
template <class Word> [[gnu::always_inline]] inline bool all_equal(const Word *lanes) {
  Word differ = 0;
  for (int lane = 0; lane < 32; ++lane)
    differ |= lanes[lane] ^ lanes[0];
  return differ == 0;
}

/// Calls move(host address, line, bytes) for each line of the matrix.
template <typename Move>
[[gnu::always_inline]] inline void for_lines(Warp &warp, const Instruction &in, Direction direction,
                                             Move move) {
  const bool column_major = in.flags & kColumnMajor;
  const unsigned bytes = 1u << in.op[2];
  const std::uint32_t lines = column_major ? in.op[4] : in.op[3], length = column_major ? in.op[3] : in.op[4];
  std::uint64_t addresses[32];
  lane_addresses(warp, address_base(in.flags), in.op[0], in.imm, addresses);
  const std::uint32_t *const strides = warp.lanes<std::uint32_t>(in.op[1]);
  const bool same = all_equal(addresses) && all_equal(strides);
  for (int lane = 1; !same && lane < 32; ++lane)
    if (addresses[lane] != addresses[0] || strides[lane] != strides[0])
      throw FaultError(FaultKind::bad_operand,
                       "the address or stride of a matrix is not the same in all lanes", lane);
  const std::uint64_t pitch = std::uint64_t(strides[0]) * bytes;
  constexpr std::uint64_t kAlignment = 16;
  if (addresses[0] % kAlignment || pitch % kAlignment)
    throw FaultError(FaultKind::misaligned,
                     "a matrix whose rows or columns do not begin at multiples of 16 bytes", 0)
        .at(addresses[0]);

  const Space space = address_space(in.flags);
  constexpr std::uint64_t kMostPitch = 1u << 24;
  std::uint8_t *const whole =
      pitch > kMostPitch
          ? nullptr
          : find_whole(warp, space, addresses[0], (lines - 1) * pitch + length * bytes, direction);
  for (std::uint32_t line = 0; line < lines; ++line)
    move(whole ? whole + line * pitch
               : resolve_lane(warp, space, 0, addresses[0] + line * pitch, length * bytes, direction),
         line, length * bytes);

  const bool in_shared =
      space == Space::shared ||
      (space == Space::generic && (addresses[0] & machine::kWindowMask) == machine::kSharedWindow);
  count_fragment(warp, in, {addresses[0], pitch, lines, length, in_shared}, direction == Direction::write);
}

template <typename T>
void transpose(const std::uint8_t *from, std::uint8_t *to, std::uint32_t lines, std::uint32_t length) {
  for (std::uint32_t line = 0; line < lines; ++line)
    for (std::uint32_t i = 0; i < length; ++i)
      std::memcpy(to + (i * lines + line) * sizeof(T), from + (line * length + i) * sizeof(T), sizeof(T));
}

void transpose(const std::uint8_t *from, std::uint8_t *to, std::uint32_t lines, std::uint32_t length,
               unsigned bytes) {
  switch (bytes) {
  case 1:
    return transpose<std::uint8_t>(from, to, lines, length);
  case 2:
    return transpose<std::uint16_t>(from, to, lines, length);
  case 4:
    return transpose<std::uint32_t>(from, to, lines, length);
  default:
    return transpose<std::uint64_t>(from, to, lines, length);
  }
}

/// Rows are copied straight into the registers.
template <bool ColumnMajor> void load_fragment(Warp &warp, const Instruction &in) {
  if (!whole_warp(warp))
    return;
  const std::uint32_t *const slots = warp.more(in) + 1, registers = slots[-1], distinct = in.op[5];
  const std::uint32_t shift = in.flags & kWide ? 8 : 7, register_bytes = 1u << shift;
  const auto in_register = [&](std::uint32_t byte) {
    return warp.lanes<std::uint8_t>(slots[byte >> shift]) + (byte & (register_bytes - 1));
  };
  std::uint8_t lines[ColumnMajor ? kMostBytes : 1], elements[ColumnMajor ? kMostBytes : 1];
  for_lines(warp, in, Direction::read,
            [&](const std::uint8_t *host, std::uint32_t line, std::uint32_t bytes) {
              copy(ColumnMajor ? lines + line * bytes : in_register(line * bytes), host, bytes);
            });
  if constexpr (ColumnMajor) {
    transpose(lines, elements, in.op[4], in.op[3], 1u << in.op[2]);
    for (std::uint32_t r = 0; r < distinct; ++r)
      copy(in_register(r << shift), elements + (r << shift), register_bytes);
  }
  for (std::uint32_t r = distinct; r < registers; ++r)
    copy(in_register(r << shift), in_register((r - distinct) << shift), register_bytes);
}

void store_fragment(Warp &warp, const Instruction &in) {
  if (!whole_warp(warp))
    return;
  std::uint8_t lines[kMostBytes], elements[kMostBytes];
  const std::uint32_t *const more = warp.more(in);
  const std::size_t register_bytes = in.flags & kWide ? 256 : 128;
  for (std::uint32_t r = 0; r < in.op[5]; ++r)
    copy(elements + r * register_bytes, warp.lanes<std::uint8_t>(more[1 + r]), register_bytes);
  const std::uint8_t *from = elements;
  if (in.flags & kColumnMajor) {
    transpose(elements, lines, in.op[3], in.op[4], 1u << in.op[2]);
    from = lines;
  }
  for_lines(warp, in, Direction::write, [&](std::uint8_t *host, std::uint32_t line, std::uint32_t bytes) {
    copy(host, from + line * bytes, bytes);
  });
}

// --- the product

constexpr std::uint32_t kSaturate = 1;

/// Unpacks a fragment's registers to `count` values in row-major order.
template <typename Elements>
void unpack_fragment(Warp &warp, const std::uint32_t *slots, int count, typename Elements::Value *values) {
  constexpr int kValues = 32 * Elements::kPerRegister;
  for (int r = 0; r * kValues < count; ++r)
    Elements::unpack(warp.lanes<std::uint32_t>(slots[r]), values + r * kValues);
}

/// product = a * b, in row-major order.
template <int M, int N, int K, typename T> void multiply_tiles(const T *a, const T *b, T *product) {
#pragma GCC unroll 1
  for (int row = 0; row < M; row += kRowsAtOnce)
#pragma GCC unroll 1
    for (int column = 0; column < N; column += 8)
      multiply_rows<K, 1>(a + row * K, K, 0, b + column, N, product + row * N + column, N);
}

/// More holds the slots of the distinct registers of D, A, B and C.
template <typename ElementsA, typename ElementsB, typename ElementsC, typename ElementsD, int M, int N, int K>
void multiply(Warp &warp, const Instruction &in) {
  using Value = typename ElementsC::Value;
  if (!whole_warp(warp))
    return;
  constexpr auto registers = [](int elements, int a_register) { return elements / (32 * a_register); };
  const std::uint32_t *const d_slots = warp.more(in);
  const std::uint32_t *const a_slots = d_slots + registers(M * N, ElementsD::kPerRegister);
  const std::uint32_t *const b_slots = a_slots + registers(M * K, ElementsA::kPerRegister);
  const std::uint32_t *const c_slots = b_slots + registers(K * N, ElementsB::kPerRegister);
  alignas(64) Value a[M * K], b[K * N], c[M * N], product[M * N];
  unpack_fragment<ElementsA>(warp, a_slots, M * K, a);
  unpack_fragment<ElementsB>(warp, b_slots, K * N, b);
  unpack_fragment<ElementsC>(warp, c_slots, M * N, c);
  keep_in_memory(a);
  keep_in_memory(b);
  multiply_tiles<M, N, K>(a, b, product);
  for (int i = 0; i < M * N; ++i)
    c[i] = add_products(c[i], product[i], in.flags & kSaturate);
  constexpr int kValues = 32 * ElementsD::kPerRegister;
  for (int r = 0; r * kValues < M * N; ++r)
    ElementsD::pack(c + r * kValues, warp.lanes<std::uint32_t>(d_slots[r]));
}

// --- binding

template <typename A, typename B, typename C, typename D> Handler handler_of_shape(Shape shape) {
  if constexpr (std::is_same_v<A, TF32Elements>) {
    return multiply<A, B, C, D, 16, 16, 8>;
  } else if constexpr (std::is_same_v<A, F64Elements>) {
    return multiply<A, B, C, D, 8, 8, 4>;
  } else {
    if (shape.m == 32)
      return multiply<A, B, C, D, 32, 8, 16>;
    if (shape.m == 8)
      return multiply<A, B, C, D, 8, 32, 16>;
    if constexpr (std::is_same_v<C, F32Elements> && std::is_same_v<D, F32Elements>)
      if (const Handler faster =
              wmma_avx512(std::is_same_v<A, F16Elements> ? HalfFormat::f16 : HalfFormat::bf16))
        return faster;
    return multiply<A, B, C, D, 16, 16, 16>;
  }
}

Handler find_handler(Shape shape, Type d, Type a, Type b, Type c) {
  if (a != b)
    return nullptr;
  switch (a) {
  case Type::f16:
    if (d == Type::f16)
      return c == Type::f16 ? handler_of_shape<F16Elements, F16Elements, F16Elements, F16Elements>(shape)
                            : handler_of_shape<F16Elements, F16Elements, F32Elements, F16Elements>(shape);
    return c == Type::f16 ? handler_of_shape<F16Elements, F16Elements, F16Elements, F32Elements>(shape)
                          : handler_of_shape<F16Elements, F16Elements, F32Elements, F32Elements>(shape);
  case Type::bf16:
    return handler_of_shape<BF16Elements, BF16Elements, F32Elements, F32Elements>(shape);
  case Type::tf32:
    return handler_of_shape<TF32Elements, TF32Elements, F32Elements, F32Elements>(shape);
  case Type::s8:
    return handler_of_shape<S8Elements, S8Elements, S32Elements, S32Elements>(shape);
  case Type::u8:
    return handler_of_shape<U8Elements, U8Elements, S32Elements, S32Elements>(shape);
  case Type::f64:
    return handler_of_shape<F64Elements, F64Elements, F64Elements, F64Elements>(shape);
  default:
    return nullptr;
  }
}

/// The operand's registers; rejects any number but the fragment's.
std::vector<const Operand *> registers_of(Binder &binder, const Operand &operand, const Fragment &fragment) {
  std::vector<const Operand *> registers;
  if (operand.kind == Operand::Kind::vector)
    for (const Operand &element : operand.elements)
      registers.push_back(&element);
  else
    registers.push_back(&operand);
  if (registers.size() != fragment.registers)
    binder.unsupported("the number of registers differs from the fragment's");
  return registers;
}

Type register_type(const Fragment &fragment, const Operand &operand) {
  if (fragment.element_bytes == 8)
    return Type::f64;
  return operand.kind == Operand::Kind::float32 ? Type::f32 : Type::b32;
}

bool bind_memory(Binder &binder, bool loads) {
  const Shape shape = find_shape(binder);
  char which = 0;
  for (const char each : {'a', 'b', 'c', 'd'})
    if (binder.has(std::string_view(&each, 1)))
      which = each;
  if (which == 0 || which == (loads ? 'd' : 'c'))
    binder.unsupported("a matrix other than A, B, C and D");
  const Fragment matrix = fragment(binder, shape, which, binder.type());
  const Space space = space_of(binder);
  if (space != Space::shared && space != Space::global && space != Space::generic)
    binder.unsupported("matrices outside global and shared memory");
  const bool column_major = binder.has("col");

  machine::Instruction &out = binder.out;
  std::vector<std::uint32_t> more{matrix.registers};
  for (const Operand *const each : registers_of(binder, binder.operand(loads ? 0 : 1), matrix))
    more.push_back(loads ? binder.destination_slot(*each, register_type(matrix, *each))
                         : binder.source_slot(*each, register_type(matrix, *each)));
  binder.set_more(more);
  const Binder::Address place = binder.address(binder.operand(loads ? 1 : 0));
  out.op[0] = place.slot;
  out.imm = place.offset;
  if (binder.operand_count() > 2) {
    out.op[1] = binder.source_slot(2, Type::u32);
  } else {
    Operand stride;
    stride.kind = Operand::Kind::integer;
    stride.bits = std::uint64_t(column_major ? matrix.rows : matrix.columns);
    out.op[1] = binder.source_slot(stride, Type::u32);
  }
  out.op[2] = std::uint32_t(std::countr_zero(matrix.element_bytes));
  out.op[3] = std::uint32_t(matrix.rows);
  out.op[4] = std::uint32_t(matrix.columns);
  out.op[5] = matrix.distinct;
  const bool is_input = which == 'a' || which == 'b';
  // Products of 8 rows are computed transposed.
  const bool lies_as_held = column_major == (is_input ? which == 'b' : shape.m == 8 && shape.n == 32);
  const unsigned unit = !is_input ? 2 : std::max(4 / matrix.element_bytes, 1u);
  const bool by_matrices = space == Space::shared && is_input &&
                           (matrix.element_bytes == 2 || (matrix.element_bytes == 1 && lies_as_held));
  out.flags = address_flags(place.base, space) | (column_major ? kColumnMajor : 0) |
              (matrix.element_bytes == 8 ? kWide : 0) |
              (lies_as_held || matrix.element_bytes == 2 ? 0 : kAcross) | (by_matrices ? kMatrices : 0) |
              unit << kUnitShift;
  out.execute = !loads ? store_fragment : column_major ? load_fragment<true> : load_fragment<false>;
  return true;
}

bool bind_multiply(Binder &binder) {
  const Shape shape = find_shape(binder);
  // Two types are D and C of an f16 product; otherwise D, A, B and C are all named.
  Type d, a, b, c;
  if (binder.source.types.size() == 2) {
    d = binder.type(0), c = binder.type(1);
    a = b = Type::f16;
  } else {
    d = binder.type(0), a = binder.type(1), b = binder.type(2), c = binder.type(3);
  }
  const Fragment fragments[] = {fragment(binder, shape, 'd', d), fragment(binder, shape, 'a', a),
                                fragment(binder, shape, 'b', b), fragment(binder, shape, 'c', c)};
  binder.out.execute = find_handler(shape, d, a, b, c);
  if (!binder.out.execute || ((d == Type::s32) != (a == Type::s8 || a == Type::u8)) ||
      (a != Type::f16 && d != c))
    binder.unsupported("these types");
  std::vector<std::uint32_t> slots;
  for (std::size_t i = 0; i < 4; ++i) {
    const auto registers = registers_of(binder, binder.operand(i), fragments[i]);
    for (unsigned r = 0; r < fragments[i].distinct; ++r) {
      const Type type = register_type(fragments[i], *registers[r]);
      slots.push_back(i == 0 ? binder.destination_slot(*registers[r], type)
                             : binder.source_slot(*registers[r], type));
    }
  }
  binder.set_more(slots);
  binder.out.flags = binder.has("satfinite") ? kSaturate : 0;
  return true;
}

bool bind_wmma(Binder &binder) {
  if (binder.has("load"))
    return bind_memory(binder, true);
  if (binder.has("store"))
    return bind_memory(binder, false);
  if (binder.has("mma"))
    return bind_multiply(binder);
  return false;
}

constexpr TableEntry kTable[] = {{"wmma", bind_wmma}};

} // namespace

std::span<const TableEntry> wmma_table() { return kTable; }

} // namespace ladder::instructions
