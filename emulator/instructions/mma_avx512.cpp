#include "instructions/mma_avx512.h"

#if defined(__x86_64__)

#include "instructions/mma.h"
#include "instructions/multiply.h"
#include "machine/warp.h"

#include <array>
#include <cstdint>
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized" // GCC 12 warns about its own _mm512_undefined_ps
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>

#define LADDER_AVX512 [[gnu::target("avx512f,avx512bw,avx512vl,avx512dq")]]

namespace ladder::instructions {

using machine::Instruction;
using machine::Warp;

namespace {

// A vector holds the 16 rows of a column in an order that makes fragments cheap: element 4 * i + j is row 4 *
// j + i.

/// Permutation to four columns of eight rows, from two registers of four rows of eight columns.
template <int First>
constexpr auto kEightRows = [] {
  std::array<std::uint16_t, 32> places{};
  for (std::size_t column = 0; column < 4; ++column)
    for (std::size_t i = 0; i < 4; ++i)
      for (std::size_t j = 0; j < 2; ++j)
        places[8 * column + 2 * i + j] = std::uint16_t(32 * j + 8 * i + First + column);
  return places;
}();

/// Permutation to two columns of 16 rows, from two registers with four columns of eight rows each, as 32-bit
/// words.
template <int First>
constexpr auto kSixteenRows = [] {
  std::array<std::uint32_t, 16> places{};
  for (std::size_t column = 0; column < 2; ++column)
    for (std::size_t i = 0; i < 4; ++i)
      for (std::size_t j = 0; j < 2; ++j)
        places[8 * column + 2 * i + j] = std::uint32_t(16 * j + 4 * (First + column) + i);
  return places;
}();

template <HalfFormat Format> LADDER_AVX512 inline __m512 to_floats(__m256i halves) {
  if constexpr (Format == HalfFormat::f16)
    return _mm512_cvtph_ps(halves);
  else
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

/// Two columns of A, from `low` (rows 0 to 7) and `high` (8 to 15).
template <HalfFormat Format, int First>
LADDER_AVX512 inline void two_columns(__m512i low, __m512i high, __m512 *columns) {
  const __m512i both = _mm512_permutex2var_epi32(low, _mm512_loadu_si512(kSixteenRows<First>.data()), high);
  columns[0] = to_floats<Format>(_mm512_castsi512_si256(both));
  columns[1] = to_floats<Format>(_mm512_extracti64x4_epi64(both, 1));
}

/// Eight columns of A, from two registers of the fragment.
template <HalfFormat Format>
LADDER_AVX512 inline void eight_columns(const std::uint32_t *low, const std::uint32_t *high,
                                        __m512 *columns) {
  const __m512i rows0 = _mm512_load_si512(low), rows4 = _mm512_load_si512(low + 16);
  const __m512i rows8 = _mm512_load_si512(high), rows12 = _mm512_load_si512(high + 16);
  const __m512i left = _mm512_loadu_si512(kEightRows<0>.data()),
                right = _mm512_loadu_si512(kEightRows<4>.data());
  const __m512i low_left = _mm512_permutex2var_epi16(rows0, left, rows4);
  const __m512i low_right = _mm512_permutex2var_epi16(rows0, right, rows4);
  const __m512i high_left = _mm512_permutex2var_epi16(rows8, left, rows12);
  const __m512i high_right = _mm512_permutex2var_epi16(rows8, right, rows12);
  two_columns<Format, 0>(low_left, high_left, columns);
  two_columns<Format, 2>(low_left, high_left, columns + 2);
  two_columns<Format, 0>(low_right, high_right, columns + 4);
  two_columns<Format, 2>(low_right, high_right, columns + 6);
}

/// Adds C to the sums of four even or odd columns and transposes them to rows of the fragment: D = C + sums.
LADDER_AVX512 inline void four_columns(__m512 t0, __m512 t1, __m512 t2, __m512 t3, const float *const *c,
                                       __m512 *out) {
  const __m512d low01 = _mm512_castps_pd(_mm512_unpacklo_ps(t0, t1));
  const __m512d low23 = _mm512_castps_pd(_mm512_unpacklo_ps(t2, t3));
  const __m512d high01 = _mm512_castps_pd(_mm512_unpackhi_ps(t0, t1));
  const __m512d high23 = _mm512_castps_pd(_mm512_unpackhi_ps(t2, t3));
  const __m512 rows[4] = {_mm512_castpd_ps(_mm512_unpacklo_pd(low01, low23)),
                          _mm512_castpd_ps(_mm512_unpackhi_pd(low01, low23)),
                          _mm512_castpd_ps(_mm512_unpacklo_pd(high01, high23)),
                          _mm512_castpd_ps(_mm512_unpackhi_pd(high01, high23))};
  for (int i = 0; i < 4; ++i)
    out[i] = _mm512_add_ps(_mm512_load_ps(c[i / 2] + 16 * (i % 2)), rows[i]);
}

template <HalfFormat Format, int K> LADDER_AVX512 void mma(Warp &warp, const Instruction &in) {
  if (!whole_warp(warp))
    return;
  constexpr int kTiles = K / 8;
  const std::uint32_t *const d_slots = warp.more(in), *const a_slots = d_slots + 4,
                             *const b_slots = a_slots + 2 * kTiles, *const c_slots = b_slots + kTiles;
  alignas(64) float b[kTiles][64]; // [column][k]
#pragma GCC unroll 2
  for (int tile = 0; tile < kTiles; ++tile) {
    const std::uint32_t *const b_lanes = warp.lanes<std::uint32_t>(b_slots[tile]);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i)
      _mm512_store_ps(b[tile] + 16 * i, to_floats<Format>(_mm256_load_si256(
                                            reinterpret_cast<const __m256i *>(b_lanes + 8 * i))));
  }
  keep_in_memory(b); // broadcast from memory instead of shuffling registers

  __m512 sums[8] = {};
#pragma GCC unroll 1
  for (int tile = 0; tile < kTiles; ++tile) {
    __m512 columns[8];
    eight_columns<Format>(warp.lanes<std::uint32_t>(a_slots[2 * tile]),
                          warp.lanes<std::uint32_t>(a_slots[2 * tile + 1]), columns);
#pragma GCC unroll 8
    for (int k = 0; k < 8; ++k)
#pragma GCC unroll 8
      for (int n = 0; n < 8; ++n)
        sums[n] = _mm512_fmadd_ps(columns[k], _mm512_set1_ps(b[tile][8 * n + k]), sums[n]);
  }
  // Registers 0 and 2 hold the even columns of rows 0 to 7 and 8 to 15, registers 1 and 3 the odd ones.
  const float *const even[2] = {warp.lanes<float>(c_slots[0]), warp.lanes<float>(c_slots[2])};
  const float *const odd[2] = {warp.lanes<float>(c_slots[1]), warp.lanes<float>(c_slots[3])};
  __m512 out[8];
  four_columns(sums[0], sums[2], sums[4], sums[6], even, out);
  four_columns(sums[1], sums[3], sums[5], sums[7], odd, out + 4);
  for (int i = 0; i < 8; ++i) // D may be C in another order, so write only after all reads
    _mm512_store_ps(warp.lanes<float>(d_slots[i / 4 + 2 * (i % 4 / 2)]) + 16 * (i % 2), out[i]);
}

template <HalfFormat Format>
LADDER_AVX512 void unpack_images(const std::uint32_t *images, int count, bool negate, float *values) {
  const __m512 sign = _mm512_set1_ps(negate ? -0.0f : 0.0f);
  for (int i = 0; i < 4 * count; ++i)
    _mm512_store_ps(values + 16 * i,
                    _mm512_xor_ps(sign, to_floats<Format>(_mm256_load_si256(
                                            reinterpret_cast<const __m256i *>(images + 8 * i)))));
}

template <HalfFormat Format>
LADDER_AVX512 void multiply_images(const std::uint32_t *a, const float *b, int groups, float *const *d,
                                   bool accumulates) {
  alignas(64) static constexpr float kZeros[32] = {};
  __m512 columns[16];
  eight_columns<Format>(a, a + 32, columns);
  eight_columns<Format>(a + 64, a + 96, columns + 8);
  for (int group = 0; group < groups; ++group, b += 128, d += 4) {
    __m512 sums[8] = {};
#pragma GCC unroll 16
    for (int k = 0; k < 16; ++k)
#pragma GCC unroll 8
      for (int n = 0; n < 8; ++n)
        sums[n] = _mm512_fmadd_ps(columns[k], _mm512_set1_ps(b[k / 8 * 64 + 8 * n + k % 8]), sums[n]);
    const float *const even[2] = {accumulates ? d[0] : kZeros, accumulates ? d[2] : kZeros};
    const float *const odd[2] = {accumulates ? d[1] : kZeros, accumulates ? d[3] : kZeros};
    __m512 out[8];
    four_columns(sums[0], sums[2], sums[4], sums[6], even, out);
    four_columns(sums[1], sums[3], sums[5], sums[7], odd, out + 4);
    for (int i = 0; i < 8; ++i)
      _mm512_store_ps(d[i / 4 + 2 * (i % 4 / 2)] + 16 * (i % 2), out[i]);
  }
}

/// Row `row` of a fragment of wmma.cpp: 16 values of 2 or 4 bytes.
template <typename Value>
LADDER_AVX512 inline Value *fragment_row(Warp &warp, const std::uint32_t *slots, int row) {
  constexpr int kRows = 8 / sizeof(Value); // per register
  return warp.lanes<Value>(slots[row / kRows]) + row % kRows * 16;
}

template <HalfFormat Format>
LADDER_AVX512 inline __m512 half_row(Warp &warp, const std::uint32_t *slots, int row) {
  const auto *const halves = fragment_row<std::uint16_t>(warp, slots, row);
  return to_floats<Format>(_mm256_load_si256(reinterpret_cast<const __m256i *>(halves)));
}

template <HalfFormat Format> LADDER_AVX512 void wmma(Warp &warp, const Instruction &in) {
  if (!whole_warp(warp))
    return;
  const std::uint32_t *const d_slots = warp.more(in), *const a_slots = d_slots + 8,
                             *const b_slots = a_slots + 4, *const c_slots = b_slots + 4;
  alignas(64) float a[256];
  for (int row = 0; row < 16; ++row)
    _mm512_store_ps(a + 16 * row, half_row<Format>(warp, a_slots, row));
  keep_in_memory(a); // broadcast from memory instead of shuffling registers
  __m512 sums[16];
#pragma GCC unroll 16
  for (__m512 &sum : sums)
    sum = _mm512_setzero_ps();
#pragma GCC unroll 1
  for (int k = 0; k < 16; ++k) {
    const __m512 b = half_row<Format>(warp, b_slots, k);
#pragma GCC unroll 16
    for (int row = 0; row < 16; ++row)
      sums[row] = _mm512_fmadd_ps(_mm512_set1_ps(a[16 * row + k]), b, sums[row]);
  }
  // D may be C in another order, so write only after all reads.
#pragma GCC unroll 16
  for (int row = 0; row < 16; ++row)
    sums[row] = _mm512_add_ps(_mm512_load_ps(fragment_row<float>(warp, c_slots, row)), sums[row]);
#pragma GCC unroll 16
  for (int row = 0; row < 16; ++row)
    _mm512_store_ps(fragment_row<float>(warp, d_slots, row), sums[row]);
}

bool has_avx512() {
  static const bool has = __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                          __builtin_cpu_supports("avx512dq");
  return has;
}

} // namespace

const HalfProduct *half_product_avx512(HalfFormat format) {
  static constexpr HalfProduct kF16{unpack_images<HalfFormat::f16>, multiply_images<HalfFormat::f16>},
      kBF16{unpack_images<HalfFormat::bf16>, multiply_images<HalfFormat::bf16>};
  return !has_avx512() ? nullptr : format == HalfFormat::f16 ? &kF16 : &kBF16;
}

machine::Handler mma_avx512(HalfFormat format, int k) {
  if (!has_avx512())
    return nullptr;
  if (format == HalfFormat::f16)
    return k == 16 ? mma<HalfFormat::f16, 16> : mma<HalfFormat::f16, 8>;
  return k == 16 ? mma<HalfFormat::bf16, 16> : mma<HalfFormat::bf16, 8>;
}

machine::Handler wmma_avx512(HalfFormat format) {
  if (!has_avx512())
    return nullptr;
  return format == HalfFormat::f16 ? wmma<HalfFormat::f16> : wmma<HalfFormat::bf16>;
}

} // namespace ladder::instructions

#else

namespace ladder::instructions {

machine::Handler mma_avx512(HalfFormat, int) { return nullptr; }
machine::Handler wmma_avx512(HalfFormat) { return nullptr; }
const HalfProduct *half_product_avx512(HalfFormat) { return nullptr; }

} // namespace ladder::instructions

#endif
