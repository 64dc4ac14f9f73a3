// mma.sync: "Warp Level Matrix Instructions" of the PTX manual.
//
// All shapes with 8 columns follow one pattern. With P elements per register and W = 4 * P, register r of A
// holds rows 8 * (r mod 2) .. + 7 and columns W * (r / 2) .. + W - 1; register r of B holds rows W * r .. + W
// - 1. In both, lane 4 * g + t has row (of A) or column (of B) g and elements t * P .. t * P + P - 1 along k.
// So a register of A, read lane by lane, is a tile of 8 rows of W elements, and a register of B is such a
// tile transposed.
#include "instructions/mma.h"

#include "instructions/fragments.h"
#include "instructions/mma_avx512.h"

#include <string>

namespace ladder::instructions {

using machine::FaultError;
using machine::FaultKind;
using machine::Handler;
using machine::Instruction;
using machine::kAllLanes;
using machine::Warp;
using program::Operand;
using ptx::Type;

bool whole_warp(Warp &warp) {
  if (warp.active() == kAllLanes) [[likely]]
    return true;
  if (!warp.converge(kAllLanes))
    return false;
  if (warp.active() != kAllLanes)
    throw FaultError(FaultKind::bad_operand, "a warp-wide instruction executed by only " +
                                                 std::to_string(std::popcount(warp.active())) +
                                                 " of its 32 lanes");
  return true;
}

namespace {

constexpr std::uint32_t kSaturate = 1;
constexpr std::uint32_t kCrossed = 2; ///< a register of D is also a different register of C

// --- the product

/// D = A * B + C, of shape M x 8 x K. More holds the slots of D, A, B and C.
template <typename ElementsA, typename ElementsB, typename Accumulator, int M, int K>
void mma(Warp &warp, const Instruction &in) {
  using Value = typename Accumulator::Value;
  constexpr int kWidth = 4 * ElementsA::kPerRegister;
  constexpr int kRowBlocks = M / 8, kTilesOfK = K / kWidth;
  constexpr int kRegistersA = kRowBlocks * kTilesOfK, kRegistersB = kTilesOfK;
  constexpr int kRegistersC = kRowBlocks * Accumulator::kRegistersOf8Rows;
  if (!whole_warp(warp))
    return;
  const std::uint32_t *const d_slots = warp.more(in), *const a_slots = d_slots + kRegistersC,
                             *const b_slots = a_slots + kRegistersA, *const c_slots = b_slots + kRegistersB;

  alignas(64) Value a[kRegistersA][8 * kWidth], b_lanes[8 * kWidth], b[K * 8], product[M * 8];
  for (int r = 0; r < kRegistersA; ++r)
    ElementsA::unpack(warp.lanes<std::uint32_t>(a_slots[r]), a[r]);
  for (int r = 0; r < kRegistersB; ++r) {
    ElementsB::unpack(warp.lanes<std::uint32_t>(b_slots[r]), b_lanes);
    transpose<kWidth>(b_lanes, b + r * kWidth * 8);
  }
  keep_in_memory(a);
  keep_in_memory(b);
#pragma GCC unroll 1
  for (int block = 0; block < kRowBlocks; ++block)
#pragma GCC unroll 1
    for (int row = 0; row < 8; row += kRowsAtOnce)
      multiply_rows<kWidth, kTilesOfK>(a[block] + row * kWidth, kWidth, kRowBlocks * 8 * kWidth, b, 8,
                                       product + (block * 8 + row) * 8, 8);

  Value *d[kRegistersC];
  const Value *c[kRegistersC];
  for (int r = 0; r < kRegistersC; ++r) {
    d[r] = warp.lanes<Value>(d_slots[r]);
    c[r] = warp.lanes<Value>(c_slots[r]);
  }
  [[maybe_unused]] Value copies[kRegistersC][32];
  if (in.flags & kCrossed)
    for (int r = 0; r < kRegistersC; ++r) {
      std::memcpy(copies[r], c[r], sizeof copies[r]);
      c[r] = copies[r];
    }
  for (int block = 0; block < kRowBlocks; ++block) {
    constexpr int kEach = Accumulator::kRegistersOf8Rows;
    Accumulator::finish(d + block * kEach, c + block * kEach, product + block * 64, in.flags & kSaturate);
  }
}

// --- binding

struct Form {
  Handler handler = nullptr;
  int d = 0, a = 0, b = 0; ///< registers; C has as many as D
};

template <typename A, typename B, typename Accumulator, int M, int K> Form form() {
  constexpr int kTiles = K / (4 * A::kPerRegister), kBlocks = M / 8;
  return {mma<A, B, Accumulator, M, K>, kBlocks * Accumulator::kRegistersOf8Rows, kBlocks * kTiles, kTiles};
}

template <typename Elements, int M, int K> Form float_form(Type accumulator) {
  if (accumulator == Type::f32) {
    Form found = form<Elements, Elements, PairAccumulator<F32Elements>, M, K>();
    if constexpr (Elements::kPerRegister == 2) {
      constexpr bool kIsF16 = std::is_same_v<Elements, F16Elements>;
      if (const Handler faster = mma_avx512(kIsF16 ? HalfFormat::f16 : HalfFormat::bf16, K))
        found.handler = faster;
    }
    return found;
  }
  if constexpr (std::is_same_v<Elements, F16Elements>)
    if (accumulator == Type::f16)
      return form<Elements, Elements, HalfAccumulator, M, K>();
  return {};
}

template <int M, int K> Form byte_form(Type a, Type b) {
  using C = PairAccumulator<S32Elements>;
  if (a == Type::s8)
    return b == Type::s8 ? form<S8Elements, S8Elements, C, M, K>() : form<S8Elements, U8Elements, C, M, K>();
  return b == Type::s8 ? form<U8Elements, S8Elements, C, M, K>() : form<U8Elements, U8Elements, C, M, K>();
}

template <class A, class B, int K> Form float8_form(Type accumulator) {
  using ElementsA = Float8Elements<A>;
  using ElementsB = Float8Elements<B>;
  return accumulator == Type::f32   ? form<ElementsA, ElementsB, PairAccumulator<F32Elements>, 16, K>()
         : accumulator == Type::f16 ? form<ElementsA, ElementsB, HalfAccumulator, 16, K>()
                                    : Form{};
}

template <int K> Form float8_form(std::string_view a, std::string_view b, Type accumulator) {
  if (a == "e4m3")
    return b == "e4m3" ? float8_form<E4M3, E4M3, K>(accumulator) : float8_form<E4M3, E5M2, K>(accumulator);
  return b == "e4m3" ? float8_form<E5M2, E4M3, K>(accumulator) : float8_form<E5M2, E5M2, K>(accumulator);
}

/// 8-bit floats, which are not PTX register types.
Form find_float8_form(const Binder &binder) {
  std::vector<std::string_view> kinds;
  for (const std::string &modifier : binder.source.modifiers)
    if (modifier == "e4m3" || modifier == "e5m2")
      kinds.push_back(modifier);
  if (kinds.size() != 2 || binder.source.types.size() != 2 || binder.type(0) != binder.type(1))
    return {};
  since(binder, 89);
  if (binder.has("m16n8k32"))
    return float8_form<32>(kinds[0], kinds[1], binder.type(0));
  if (binder.has("m16n8k16"))
    return float8_form<16>(kinds[0], kinds[1], binder.type(0));
  return {};
}

bool is_byte(Type type) { return type == Type::s8 || type == Type::u8; }

Form find_form(const Binder &binder, Type d, Type a, Type b, Type c) {
  const auto shape = [&](std::string_view name) { return binder.has(name); };
  if (d != c)
    return {};
  if (a == Type::f16 && b == Type::f16) {
    if (shape("m16n8k16"))
      return float_form<F16Elements, 16, 16>(d);
    if (shape("m16n8k8"))
      return float_form<F16Elements, 16, 8>(d);
  }
  if (a == Type::bf16 && b == Type::bf16) {
    if (shape("m16n8k16"))
      return float_form<BF16Elements, 16, 16>(d);
    if (shape("m16n8k8"))
      return float_form<BF16Elements, 16, 8>(d);
  }
  if (a == Type::tf32 && b == Type::tf32) {
    if (shape("m16n8k8"))
      return float_form<TF32Elements, 16, 8>(d);
    if (shape("m16n8k4"))
      return float_form<TF32Elements, 16, 4>(d);
  }
  if (is_byte(a) && is_byte(b) && d == Type::s32) {
    if (shape("m16n8k32"))
      return byte_form<16, 32>(a, b);
    if (shape("m16n8k16"))
      return byte_form<16, 16>(a, b);
    if (shape("m8n8k16"))
      return byte_form<8, 16>(a, b);
  }
  if (a == Type::f64 && b == Type::f64 && d == Type::f64) {
    using C = PairAccumulator<F64Elements>;
    if (shape("m8n8k4"))
      return form<F64Elements, F64Elements, C, 8, 4>();
    if (shape("m16n8k4"))
      return form<F64Elements, F64Elements, C, 16, 4>();
    if (shape("m16n8k8"))
      return form<F64Elements, F64Elements, C, 16, 8>();
    if (shape("m16n8k16"))
      return form<F64Elements, F64Elements, C, 16, 16>();
  }
  return {};
}

} // namespace

bool bind_mma(Binder &binder) {
  for (const std::string &modifier : binder.source.modifiers)
    if (modifier.starts_with("sp") || modifier == "xor" || modifier == "and" || modifier == "block_scale" ||
        modifier.starts_with("kind"))
      binder.unsupported("." + modifier);
  Form found;
  if (binder.has("row") && binder.has("col"))
    found = binder.source.types.size() == 4
                ? find_form(binder, binder.type(0), binder.type(1), binder.type(2), binder.type(3))
                : find_float8_form(binder);
  if (!found.handler)
    binder.unsupported("this shape and these types");

  std::vector<std::uint32_t> slots;
  const int counts[] = {found.d, found.a, found.b, found.d};
  const bool wide = binder.type(0) == Type::f64;
  for (std::size_t i = 0; i < 4; ++i) {
    const Operand &operand = binder.operand(i);
    const bool is_vector = operand.kind == Operand::Kind::vector;
    if (int(is_vector ? operand.elements.size() : 1) != counts[i])
      binder.unsupported("operand " + std::to_string(i + 1) + " has another number of registers");
    // Programs use different register types (b32 or f32 for an accumulator); only the width matters.
    for (int r = 0; r < counts[i]; ++r) {
      const Operand &element = is_vector ? operand.elements[std::size_t(r)] : operand;
      const Type type = wide ? Type::f64 : element.kind == Operand::Kind::float32 ? Type::f32 : Type::b32;
      slots.push_back(i == 0 ? binder.destination_slot(element, type) : binder.source_slot(element, type));
    }
  }
  binder.set_more(slots);
  binder.out.flags = binder.has("satfinite") ? kSaturate : 0;
  const auto d = slots.begin(), c = slots.end() - found.d;
  for (int i = 0; i < found.d; ++i)
    for (int j = 0; j < found.d; ++j)
      if (i != j && d[i] == c[j])
        binder.out.flags |= kCrossed;
  binder.out.execute = found.handler;
  return true;
}

} // namespace ladder::instructions
