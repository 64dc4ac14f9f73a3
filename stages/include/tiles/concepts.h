// What operations ask of their operands. An operand of the wrong kind fails a concept. One of the right kind
// with a wrong layout, type or size fails a static_assert that says what was given, what is wanted and which
// call to insert; the compiler's note below it has the sizes.
#pragma once

#include "tiles/register_tile.h"
#include "tiles/shared_tile.h"

namespace tiles {

template <typename X> inline constexpr bool is_register_tile = false;
template <typename T, int kRows, int kCols, Layout kLayout>
inline constexpr bool is_register_tile<RegTile<T, kRows, kCols, kLayout>> = true;

template <typename X> inline constexpr bool is_register_vector = false;
template <typename T, int kLength, Along kAlong>
inline constexpr bool is_register_vector<RegVec<T, kLength, kAlong>> = true;

template <typename X> inline constexpr bool is_shared_tile = false;
template <typename T, int kRows, int kCols, Placement kPlacement>
inline constexpr bool is_shared_tile<SharedTile<T, kRows, kCols, kPlacement>> = true;

template <typename X> inline constexpr bool is_shared_part = false;
template <typename S, int kRows, int kCols>
inline constexpr bool is_shared_part<SharedPart<S, kRows, kCols>> = true;

template <typename X> inline constexpr bool is_shared_vector = false;
template <typename T, int kLength> inline constexpr bool is_shared_vector<SharedVec<T, kLength>> = true;

template <typename X>
concept RegisterTile = is_register_tile<std::remove_const_t<X>>;
template <typename X>
concept RegisterVector = is_register_vector<std::remove_const_t<X>>;
template <typename X>
concept InRegisters = RegisterTile<X> || RegisterVector<X>;
template <typename X>
concept SharedMemoryTile = is_shared_tile<std::remove_const_t<X>>;
/// A shared tile or a part of one: what fragments are loaded from.
template <typename X>
concept InSharedMemory = SharedMemoryTile<X> || is_shared_part<std::remove_const_t<X>>;
template <typename X>
concept SharedMemoryVector = is_shared_vector<std::remove_const_t<X>>;
template <typename X>
concept AnyTile = RegisterTile<X> || InSharedMemory<X>;

template <typename X> inline constexpr bool is_fragments8 = false;
template <int kCols> inline constexpr bool is_fragments8<Fragments8<kCols>> = true;
/// What wgmma takes: a tile, or fragments of 8-bit elements.
template <typename X>
concept Operand = AnyTile<X> || is_fragments8<std::remove_const_t<X>>;

template <typename X, Layout kLayout>
concept InLayout = RegisterTile<X> && X::layout == kLayout;

template <typename A, typename B>
concept SameElement = std::is_same_v<typename A::Elem, typename B::Elem>;
template <typename A, typename B>
concept SameSize = A::rows == B::rows && A::cols == B::cols;
template <typename A, typename B>
concept SameLayout = RegisterTile<A> && RegisterTile<B> && A::layout == B::layout;

/// Two register operands that hold the same places in the same registers, as elementwise operations need.
template <typename A, typename B>
concept SamePlaces =
    (RegisterTile<A> && RegisterTile<B> && SameSize<A, B> && A::layout == B::layout) ||
    (RegisterVector<A> && RegisterVector<B> && A::length == B::length && A::along == B::along);

namespace detail {

/// Whether two operands of an elementwise operation match; explains why not if they do not.
template <InRegisters D, InRegisters S> __device__ constexpr bool require_same_places() {
  static_assert(RegisterTile<D> == RegisterTile<S>,
                "given a tile and a vector, wanted two of a kind: sub_row, mul_row, div_row, add_col, "
                "sub_col and mul_col take a tile and a vector");
  if constexpr (RegisterTile<D> && RegisterTile<S>) {
    static_assert(SameSize<D, S>, "given tiles of different sizes, wanted the same rows and cols");
    static_assert(!SameSize<D, S> || SameLayout<D, S>, "given a row-layout and a col-layout tile, wanted the "
                                                       "same layout: insert swap_layout(other, tile) first");
  }
  if constexpr (RegisterVector<D> && RegisterVector<S>) {
    static_assert(D::length == S::length, "given vectors of different lengths, wanted the same length");
    static_assert(D::length != S::length || D::along == S::along,
                  "given a vector along a tile's lines and one along its span, wanted the same: insert "
                  "copy(other, vector) first");
  }
  return SamePlaces<D, S>;
}

} // namespace detail

} // namespace tiles
