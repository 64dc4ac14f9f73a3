// wgmma: "Asynchronous Warpgroup Level Matrix Instructions" of the PTX manual.
//
// D (64 x N) = A * B + D by the four warps of a warpgroup; warp w has rows 16w .. 16w + 15 of A and D. With P
// elements per 32 bits, k is 8 * P: two 16-byte chunks. 8 rows of a chunk are what a fragment register holds,
// so operands from shared memory and from registers share one path (see mma.cpp).
#include "instructions/wgmma.h"
#include "instructions/addressing.h"
#include "instructions/fragments.h"
#include "instructions/matrix_descriptor.h"
#include "instructions/mma.h"
#include "instructions/mma_avx512.h"
#include "machine/warpgroup.h"

#include <string>

namespace ladder::instructions {

using machine::Block;
using machine::CarryOut;
using machine::FaultError;
using machine::FaultKind;
using machine::Instruction;
using machine::kAllLanes;
using machine::Product;
using machine::Warp;
using machine::WholeProduct;
using program::Operand;
using ptx::Type;

namespace {

constexpr int kChunksOfK = 2, kRowGroups = 8;
constexpr std::uint32_t kMostN = 256;
constexpr std::uint32_t kImageBytes = 128; ///< 8 rows of a chunk
constexpr std::uint32_t kFragmentRegisters = 4;

// Flags. op[0] is N; op[1] and op[2] are the slots of the descriptors, op[3] that of scale-d.
constexpr std::uint32_t kSaturate = 1u << 1;
constexpr std::uint32_t kNegateA = 1u << 2;
constexpr std::uint32_t kNegateB = 1u << 3;
constexpr std::uint32_t kScaleNegated = 1u << 6;

// --- the product

/// Gathers 8 rows of a chunk in the layout of a fragment register.
void gather(const std::uint8_t *shared, const OperandPlaces &places, std::uint32_t group, std::uint32_t c,
            std::uint32_t *image) {
  places.for_rows(group, c, [&](std::uint32_t row, std::uint32_t address) {
    std::memcpy(reinterpret_cast<std::uint8_t *>(image) + 16 * row, shared + address, 16);
  });
}

void transpose_halves(std::uint32_t *image) {
  std::uint16_t from[64], to[64];
  std::memcpy(from, image, sizeof from);
  for (int row = 0; row < 8; ++row)
    for (int column = 0; column < 8; ++column)
      to[8 * column + row] = from[8 * row + column];
  std::memcpy(image, to, sizeof to);
}

/// Rows 8 * group .. + 7 of A's chunk c.
void gather_a(Block &block, const Instruction &in, const WholeProduct &product, std::uint32_t group,
              std::uint32_t c, std::uint32_t *image) {
  if (in.flags & kWgmmaAInRegisters) {
    // Register r holds rows 8 * (r mod 2) .. + 7 and chunk r / 2.
    const std::vector<std::uint32_t> &fragments = product[group / 2]->a_fragments;
    std::memcpy(image, fragments.data() + (group % 2 + 2 * c) * 32, kImageBytes);
    return;
  }
  const bool mn_major = in.flags & kWgmmaTransposesA;
  gather(block.shared_memory(), OperandPlaces(product[0]->a, mn_major), group, c, image);
  if (mn_major)
    transpose_halves(image);
}

template <typename Elements, typename Value>
void read_a(Block &block, const Instruction &in, const WholeProduct &product,
            Value (&a)[kRowGroups][kChunksOfK][32 * Elements::kPerRegister]) {
  for (std::uint32_t group = 0; group < kRowGroups; ++group)
    for (std::uint32_t c = 0; c < kChunksOfK; ++c) {
      alignas(64) std::uint32_t image[kImageBytes / 4];
      gather_a(block, in, product, group, c, image);
      Elements::unpack(image, a[group][c]);
      if (in.flags & kNegateA)
        for (Value &value : a[group][c])
          value = -value;
    }
}

/// b[j] holds columns 8j .. 8j + 7, row by row along k.
template <typename Elements, typename Value>
void read_b(Block &block, const Instruction &in, const WholeProduct &product, Value *b) {
  constexpr int kWidth = 4 * Elements::kPerRegister;
  const bool mn_major = in.flags & kWgmmaTransposesB;
  const OperandPlaces places(product[0]->b, mn_major);
  for (std::uint32_t group = 0; group < in.op[0] / 8; ++group)
    for (std::uint32_t c = 0; c < kChunksOfK; ++c, b += 8 * kWidth) {
      alignas(64) std::uint32_t image[kImageBytes / 4];
      gather(block.shared_memory(), places, group, c, image);
      if (mn_major) {
        Elements::unpack(image, b);
      } else {
        alignas(64) Value rows[8 * kWidth];
        Elements::unpack(image, rows);
        transpose<kWidth>(rows, b);
      }
      if (in.flags & kNegateB)
        for (int i = 0; i < 8 * kWidth; ++i)
          b[i] = -b[i];
    }
}

/// More holds the slots of D, then those of A.
template <typename ElementsA, typename ElementsB, typename Accumulator>
void carry_out(Block &block, const WholeProduct &product) {
  using Value = typename Accumulator::Value;
  constexpr int kWidth = 4 * ElementsA::kPerRegister, kK = kWidth * kChunksOfK;
  constexpr int kEach = Accumulator::kRegistersOf8Rows;
  const Instruction &in = *product[0]->instruction;
  alignas(64) Value a[kRowGroups][kChunksOfK][8 * kWidth], b[kMostN * kK], sums[64];
  read_a<ElementsA>(block, in, product, a);
  read_b<ElementsB>(block, in, product, b);
  keep_in_memory(a);
  keep_in_memory(b);
  alignas(64) static constexpr std::uint32_t kZeros[32] = {};
  const auto *const zeros = reinterpret_cast<const Value *>(kZeros);
  const std::uint32_t *const slots = block.code().more.data() + in.more_begin;
  const int columns = int(in.op[0] / 8);
  for (int group = 0; group < kRowGroups; ++group) {
    const Product &part = *product[std::size_t(group / 2)];
    for (int j = 0; j < columns; ++j) {
      for (int row = 0; row < 8; row += kRowsAtOnce)
        multiply_rows<kWidth, kChunksOfK>(a[group][0] + row * kWidth, kWidth, 8 * kWidth, b + j * 8 * kK, 8,
                                          sums + row * 8, 8);
      Value *d[kEach];
      const Value *c[kEach];
      for (int r = 0; r < kEach; ++r) {
        const std::uint32_t slot = slots[(2 * j + group % 2) * kEach + r];
        d[r] = reinterpret_cast<Value *>(part.frame->registers + slot);
        c[r] = part.accumulates ? d[r] : zeros;
      }
      Accumulator::finish(d, c, sums, in.flags & kSaturate);
    }
  }
}

/// The same for 16-bit floats with f32 accumulators on AVX-512.
template <HalfFormat Format> void carry_out_halves(Block &block, const WholeProduct &product) {
  static const HalfProduct &halves = *half_product_avx512(Format);
  constexpr std::uint32_t kWords = kImageBytes / 4;
  const Instruction &in = *product[0]->instruction;
  const bool mn_major = in.flags & kWgmmaTransposesB;
  const OperandPlaces places(product[0]->b, mn_major);
  const std::uint32_t columns = in.op[0] / 8;
  alignas(64) std::uint32_t images[kMostN / 8 * kChunksOfK * kWords];
  for (std::uint32_t i = 0; i < columns * kChunksOfK; ++i) {
    gather(block.shared_memory(), places, i / kChunksOfK, i % kChunksOfK, images + i * kWords);
    if (mn_major)
      transpose_halves(images + i * kWords);
  }
  alignas(64) float b[kMostN * 16];
  const bool negates = bool(in.flags & kNegateA) != bool(in.flags & kNegateB);
  halves.unpack(images, int(columns) * kChunksOfK, negates, b);

  const std::uint32_t *const slots = block.code().more.data() + in.more_begin;
  for (std::uint32_t warp = 0; warp < machine::kWarpsOfGroup; ++warp) {
    alignas(64) std::uint32_t a[kFragmentRegisters * kWords];
    for (std::uint32_t r = 0; r < kFragmentRegisters; ++r)
      gather_a(block, in, product, 2 * warp + r % 2, r / 2, a + r * kWords);
    const Product &part = *product[warp];
    float *d[kMostN / 2];
    for (std::uint32_t i = 0; i < columns * 4; ++i)
      d[i] = reinterpret_cast<float *>(part.frame->registers + slots[i]);
    halves.multiply(a, b, int(columns), d, part.accumulates);
  }
}

// --- issue, commit, wait

std::uint64_t descriptor(Warp &warp, std::uint32_t slot) {
  const std::uint64_t *const values = warp.lanes<std::uint64_t>(slot);
  std::uint64_t differ = 0;
  for (int lane = 1; lane < 32; ++lane)
    differ |= values[lane] ^ values[0];
  for (int lane = 1; differ && lane < 32; ++lane)
    if (values[lane] != values[0])
      throw FaultError(FaultKind::bad_operand, "a matrix descriptor is not the same in all lanes of a warp",
                       lane);
  return values[0];
}

/// Throws unless the whole operand lies in the block's shared memory.
void check_places(Block &block, std::uint64_t descriptor, bool mn_major, std::uint32_t groups,
                  const char *name) {
  const OperandPlaces places(descriptor, mn_major);
  const std::uint32_t first = block.shared_first() & machine::kOffsetInBlock,
                      end = block.shared_end() & machine::kOffsetInBlock;
  if (places.begin() >= first && places.end(groups) <= end)
    return;
  std::uint32_t lowest = ~0u, highest = 0;
  for (std::uint32_t group = 0; group < groups; ++group)
    for (std::uint32_t c = 0; c < kChunksOfK; ++c)
      for (std::uint32_t row = 0; row < 8; ++row) {
        const std::uint32_t address = places.chunk(group, row, c);
        lowest = std::min(lowest, address);
        highest = std::max(highest, address);
      }
  if (lowest >= first && highest + 16 <= end)
    return;
  const MatrixDescriptor &at = places.descriptor();
  const bool below = lowest < first;
  throw FaultError(
      FaultKind::out_of_bounds,
      std::string("operand ") + name + " of a wgmma extends beyond the block's shared memory (bytes " +
          std::to_string(block.shared_begin() & machine::kOffsetInBlock) + " to " + std::to_string(end) +
          "): its descriptor has start " + std::to_string(at.start) + ", leading offset " +
          std::to_string(at.leading) + ", stride offset " + std::to_string(at.stride) +
          (at.swizzle == Swizzle::none
               ? ", no swizzle"
               : ", swizzle of " + std::to_string(swizzle_span(at.swizzle)) + " bytes"))
      .at(below ? lowest : highest);
}

machine::Warpgroup &group_of(Warp &warp) {
  machine::Warpgroup *const group = warp.block().warpgroup(warp.index());
  if (!group)
    throw FaultError(FaultKind::bad_operand,
                     "wgmma in a warpgroup of " + std::to_string(warp.block().warps().size() % 4) +
                         " warps: warp " + std::to_string(warp.index()) +
                         " is not in a full warpgroup of four (" +
                         std::to_string(warp.block().thread_count()) + " threads per block)");
  return *group;
}

/// An H200 counts 16 + N / 4 wavefronts per product with A in shared memory and N / 4 with A in registers, in
/// every layout and without conflicts: one per 128 bytes of operands. Measured only with 16-bit operands.
void count(Warp &warp, const Instruction &in) {
  machine::AccessCounters &counters = warp.access(in, machine::AccessKind::matrix_operand);
  ++counters.executed;
  if (!(in.flags & kWgmmaHalves)) {
    ++counters.unmodelled;
    return;
  }
  if (warp.index() % machine::kWarpsOfGroup != 0)
    return; // the four warps' operands are read once
  constexpr std::uint64_t kWavefrontsOfA = 16;
  const std::uint64_t wavefronts = (in.flags & kWgmmaAInRegisters ? 0 : kWavefrontsOfA) + in.op[0] / 4;
  counters.wavefronts += wavefronts;
  counters.passes += wavefronts;
}

/// Keeps the operands for reports of their place in shared memory.
void note_operands(Warp &warp, const Instruction &in, const Product &product) {
  if (warp.index() % machine::kWarpsOfGroup != 0)
    return;
  Block &block = warp.block();
  machine::ProductOperands operands;
  if (!(in.flags & kWgmmaAInRegisters))
    operands.a = {product.a, bool(in.flags & kWgmmaTransposesA), kRowGroups};
  operands.b = {product.b, bool(in.flags & kWgmmaTransposesB), in.op[0] / 8};
  operands.block = block.linear_index();
  operands.warp = warp.index();
  block.counters().note(std::uint32_t(&in - block.code().instructions.data()), operands);
}

void issue(Warp &warp, const Instruction &in) {
  if (!whole_warp(warp))
    return;
  count(warp, in);
  machine::Warpgroup &group = group_of(warp);
  Block &block = warp.block();
  Product product;
  product.instruction = &in;
  product.frame = warp.shared_frame();
  product.b = descriptor(warp, in.op[2]);
  check_places(block, product.b, in.flags & kWgmmaTransposesB, in.op[0] / 8, "B");
  const std::uint32_t *const slots = warp.more(in);
  const std::uint32_t d_count = in.op[4];
  if (in.flags & kWgmmaAInRegisters) {
    product.a_fragments.resize(kFragmentRegisters * 32);
    for (std::uint32_t r = 0; r < kFragmentRegisters; ++r)
      std::memcpy(product.a_fragments.data() + r * 32, warp.lanes<std::uint32_t>(slots[d_count + r]),
                  kImageBytes);
  } else {
    product.a = descriptor(warp, in.op[1]);
    check_places(block, product.a, in.flags & kWgmmaTransposesA, kRowGroups, "A");
  }
  const std::uint32_t scale = warp.predicate(in.op[3]) ^ (in.flags & kScaleNegated ? ~0u : 0u);
  if (scale != 0 && scale != kAllLanes)
    throw FaultError(FaultKind::bad_operand, "scale-d is not the same in all lanes of a warp");
  product.accumulates = scale;
  note_operands(warp, in, product);
  group.issue(warp, std::move(product), slots, d_count);
}

/// ptxas inserts missing fences, so this changes no result.
void fence(Warp &warp, const Instruction &) {
  if (whole_warp(warp))
    group_of(warp);
}

void commit(Warp &warp, const Instruction &) {
  if (whole_warp(warp))
    group_of(warp).commit(warp);
}

void wait(Warp &warp, const Instruction &in) {
  if (whole_warp(warp) && !group_of(warp).wait(warp, std::size_t(in.imm)))
    warp.wait_for(machine::describe_missing_products);
}

// --- binding

template <typename A, typename B> CarryOut by_accumulator(Type d) {
  if constexpr (std::is_same_v<A, F16Elements> || std::is_same_v<A, BF16Elements>) {
    constexpr HalfFormat kFormat = std::is_same_v<A, F16Elements> ? HalfFormat::f16 : HalfFormat::bf16;
    if (d == Type::f32 && half_product_avx512(kFormat))
      return carry_out_halves<kFormat>;
  }
  if (d == Type::f32)
    return carry_out<A, B, PairAccumulator<F32Elements>>;
  if constexpr (!std::is_same_v<A, BF16Elements> && !std::is_same_v<A, TF32Elements>)
    if (d == Type::f16)
      return carry_out<A, B, HalfAccumulator>;
  return nullptr;
}

template <typename A> CarryOut float8_form(std::string_view b, Type d) {
  return b == "e4m3" ? by_accumulator<A, Float8Elements<E4M3>>(d)
                     : by_accumulator<A, Float8Elements<E5M2>>(d);
}

template <typename A> CarryOut byte_form(Type b) {
  using C = PairAccumulator<S32Elements>;
  return b == Type::s8 ? carry_out<A, S8Elements, C> : carry_out<A, U8Elements, C>;
}

/// The product's function and K; nullptr for an invalid combination of types.
std::pair<CarryOut, unsigned> find_form(const Binder &binder) {
  const Type d = binder.type(0);
  std::vector<std::string_view> kinds;
  for (const std::string &modifier : binder.source.modifiers)
    if (modifier == "e4m3" || modifier == "e5m2")
      kinds.push_back(modifier);
  if (kinds.size() == 2)
    return {kinds[0] == "e4m3" ? float8_form<Float8Elements<E4M3>>(kinds[1], d)
                               : float8_form<Float8Elements<E5M2>>(kinds[1], d),
            32};
  const Type a = binder.type(1), b = binder.type(2);
  const auto is_byte = [](Type type) { return type == Type::s8 || type == Type::u8; };
  if (is_byte(a) && is_byte(b) && d == Type::s32)
    return {a == Type::s8 ? byte_form<S8Elements>(b) : byte_form<U8Elements>(b), 32};
  if (a != b)
    return {nullptr, 0};
  if (a == Type::f16)
    return {by_accumulator<F16Elements, F16Elements>(d), 16};
  if (a == Type::bf16)
    return {by_accumulator<BF16Elements, BF16Elements>(d), 16};
  if (a == Type::tf32)
    return {by_accumulator<TF32Elements, TF32Elements>(d), 8};
  return {nullptr, 0};
}

/// N of m64nNkK; 0 if there is no valid shape.
std::uint32_t columns_of(const Binder &binder, unsigned k) {
  const std::string end = "k" + std::to_string(k);
  for (const std::string &modifier : binder.source.modifiers)
    if (modifier.starts_with("m64n") && modifier.ends_with(end)) {
      const std::string digits = modifier.substr(4, modifier.size() - 4 - end.size());
      if (digits.empty() || digits.size() > 3 || digits.find_first_not_of("0123456789") != std::string::npos)
        return 0;
      const auto n = std::uint32_t(std::stoi(digits));
      return n >= 8 && n <= kMostN && n % 8 == 0 ? n : 0;
    }
  return 0;
}

std::int64_t constant(const Binder &binder, std::size_t i, std::initializer_list<std::int64_t> allowed,
                      const char *name) {
  const Operand &operand = binder.operand(i);
  if (operand.kind == Operand::Kind::integer)
    for (const std::int64_t value : allowed)
      if (std::int64_t(operand.bits) == value)
        return value;
  binder.unsupported(std::string(name) + " is not one of the allowed constants");
}

bool bind_product(Binder &binder) {
  for (const std::string_view word : {"sp", "b1"})
    if (binder.has(word))
      binder.unsupported("." + std::string(word));
  const auto [function, k] = find_form(binder);
  const std::uint32_t n = function ? columns_of(binder, k) : 0;
  if (n == 0)
    binder.unsupported("this shape and these types");

  machine::Instruction &out = binder.out;
  const Operand &d = binder.operand(0), &a = binder.operand(1);
  const std::uint32_t d_count = binder.type(0) == Type::f16 ? n / 4 : n / 2;
  if (d.kind != Operand::Kind::vector || d.elements.size() != d_count)
    binder.unsupported("the number of D's registers is not " + std::to_string(d_count));
  std::vector<std::uint32_t> slots;
  for (const Operand &element : d.elements)
    slots.push_back(binder.destination_slot(element, Type::b32));
  binder.note_accumulators(slots);
  const bool in_registers = a.kind == Operand::Kind::vector;
  if (in_registers) {
    if (a.elements.size() != kFragmentRegisters)
      binder.unsupported("the number of A's registers is not 4");
    for (const Operand &element : a.elements)
      slots.push_back(binder.source_slot(element, Type::b32));
    out.flags |= kWgmmaAInRegisters;
  } else {
    out.op[1] = binder.source_slot(a, Type::b64);
  }
  out.op[0] = n;
  out.op[2] = binder.source_slot(2, Type::b64);
  const Binder::Predicate scale = binder.predicate(binder.operand(3));
  out.op[3] = scale.offset;
  out.op[4] = d_count;
  out.flags |= (scale.negated ? kScaleNegated : 0) | (binder.has("satfinite") ? kSaturate : 0);
  const bool is_integer = binder.type(0) == Type::s32;
  if (!is_integer) {
    out.flags |= constant(binder, 4, {1, -1}, "imm-scale-a") < 0 ? kNegateA : 0;
    out.flags |= constant(binder, 5, {1, -1}, "imm-scale-b") < 0 ? kNegateB : 0;
  }
  if (k == 16) { // only 16-bit operands may be transposed
    out.flags |= kWgmmaHalves;
    std::size_t i = 6;
    if (!in_registers)
      out.flags |= constant(binder, i++, {0, 1}, "imm-trans-a") ? kWgmmaTransposesA : 0;
    out.flags |= constant(binder, i, {0, 1}, "imm-trans-b") ? kWgmmaTransposesB : 0;
  }
  binder.set_more(slots);
  out.imm = std::int64_t(reinterpret_cast<std::uintptr_t>(function));
  out.execute = issue;
  return true;
}

bool bind_wgmma(Binder &binder) {
  needs_target(binder, {"sm_90a"});
  if (binder.has("mma_async"))
    return bind_product(binder);
  if (binder.has("fence")) {
    binder.out.execute = fence;
  } else if (binder.has("commit_group")) {
    binder.out.execute = commit;
  } else if (binder.has("wait_group")) {
    const Operand &pending = binder.operand(0);
    if (pending.kind != Operand::Kind::integer || pending.bits > 7)
      binder.unsupported("the number of groups is not a constant from 0 to 7");
    binder.out.imm = std::int64_t(pending.bits);
    binder.out.execute = wait;
  } else {
    return false;
  }
  return true;
}

constexpr TableEntry kTable[] = {{"wgmma", bind_wgmma}};

} // namespace

std::vector<OperandChunk> operand_chunks(Warp &warp, const Instruction &in) {
  std::vector<OperandChunk> chunks;
  const auto add = [&](std::uint32_t slot, bool mn_major, std::uint32_t groups) {
    const OperandPlaces places(warp.lanes<std::uint64_t>(slot)[0], mn_major);
    for (std::uint32_t group = 0; group < groups; ++group)
      for (std::uint32_t c = 0; c < kChunksOfK; ++c)
        for (std::uint32_t row = 0; row < 8; ++row)
          chunks.push_back({warp.block().shared_base_address() + places.chunk(group, row, c),
                            places.descriptor().swizzle});
  };
  if (!(in.flags & kWgmmaAInRegisters))
    add(in.op[1], in.flags & kWgmmaTransposesA, kRowGroups);
  add(in.op[2], in.flags & kWgmmaTransposesB, in.op[0] / 8);
  return chunks;
}

std::span<const TableEntry> wgmma_table() { return kTable; }

} // namespace ladder::instructions
