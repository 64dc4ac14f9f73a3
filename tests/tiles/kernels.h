// One device function for each family of operations: it takes tiles, applies every operation of the family
// and gives each result behind the last one. The Python tests instantiate them for types, layouts and sizes
// and know the same order.
#pragma once

#include "tiles/tiles.h"

namespace tests {

using namespace tiles;

extern __shared__ __align__(128) unsigned char smem[];

// Tiles and vectors come and go as they lie in registers: for each pair or value that a lane has, those of
// the 32 lanes one behind the other. Python knows from types.h which place of the matrix each is. So these
// kernels need none of the library's loads and stores.

template <typename T> struct In {
  const T *next;

  template <RegisterTile R> __device__ void get(R &tile) {
#pragma unroll
    for (auto &line : tile.pairs)
#pragma unroll
      for (auto &block : line)
#pragma unroll
        for (auto &pair : block) {
          pair = reinterpret_cast<const Pair<T> *>(next)[threadIdx.x];
          next += 64;
        }
  }
  template <RegisterVector V> __device__ void get(V &vec) {
#pragma unroll
    for (auto &block : vec.values)
#pragma unroll
      for (auto &value : block) {
        value = next[threadIdx.x];
        next += 32;
      }
  }
};

template <typename T> struct Out {
  T *next;

  template <RegisterTile R> __device__ void put(const R &tile) {
#pragma unroll
    for (auto &line : tile.pairs)
#pragma unroll
      for (auto &block : line)
#pragma unroll
        for (auto &pair : block) {
          reinterpret_cast<Pair<T> *>(next)[threadIdx.x] = pair;
          next += 64;
        }
  }
  template <RegisterVector V> __device__ void put(const V &vec) {
#pragma unroll
    for (auto &block : vec.values)
#pragma unroll
      for (auto &value : block) {
        next[threadIdx.x] = value;
        next += 32;
      }
  }
};

template <typename T, Layout kLayout, int kRows, int kCols> __device__ void unary(const T *in, T *out) {
  In<T> source{in};
  Out<T> result{out};
  RegTile<T, kRows, kCols, kLayout> a, x;
  source.get(a);
  zero(x), result.put(x);
  neg_infty(x), result.put(x);
  copy(x, a), result.put(x);
  exp(x, a), result.put(x);
  exp2(x, a), result.put(x);
  mul(a, a, a); // what is not negative has logarithms and roots
  log(x, a), result.put(x);
  rsqrt(x, a), result.put(x);
}

template <typename T, Layout kLayout, int kRows, int kCols> __device__ void binary(const T *in, T *out) {
  In<T> source{in};
  Out<T> result{out};
  RegTile<T, kRows, kCols, kLayout> a, b, x;
  source.get(a);
  source.get(b);
  add(x, a, b), result.put(x);
  sub(x, a, b), result.put(x);
  mul(x, a, b), result.put(x);
  max(x, a, b), result.put(x);
  add(x, a, 0.75f), result.put(x);
  mul(x, a, 0.75f), result.put(x);
  add(a, a, b), result.put(a); // in place
}

template <typename T, Layout kLayout, int kRows, int kCols> __device__ void by_vector(const T *in, T *out) {
  In<T> source{in};
  Out<T> result{out};
  RegTile<T, kRows, kCols, kLayout> a, x;
  typename decltype(a)::ColVec column;
  typename decltype(a)::RowVec row;
  source.get(a);
  source.get(column);
  source.get(row);
  sub_row(x, a, column), result.put(x);
  mul_row(x, a, column), result.put(x);
  div_row(x, a, column), result.put(x);
  add_col(x, a, row), result.put(x);
  sub_col(x, a, row), result.put(x);
  mul_col(x, a, row), result.put(x);
}

template <typename T, Layout kLayout, int kRows, int kCols> __device__ void reductions(const T *in, T *out) {
  In<T> source{in};
  Out<T> result{out};
  RegTile<T, kRows, kCols, kLayout> a;
  typename decltype(a)::ColVec column, x;
  source.get(a);
  source.get(column);
  row_max(x, a), result.put(x);
  row_sum(x, a), result.put(x);
  row_max(x, a, column), result.put(x);
  row_sum(x, a, column), result.put(x);
  if constexpr (kLayout == Layout::row && std::is_same_v<T, float>) {
    row_max_in_lane(x, a), max_over_lanes(x), result.put(x);
    zero(x), row_sum_in_lane(x, a, x), sum_over_lanes(x), result.put(x);
  }
  // Whether any row's largest is above the column by so much: one answer a lane, all the same.
  row_max(x, a);
  out = result.next;
  out[threadIdx.x] = from_float<T>(any_above(x, column, 1.f));
  out[32 + threadIdx.x] = from_float<T>(any_above(x, column, 1e4f));
}

template <typename T, Layout kLayout, int kRows, int kCols>
__device__ void conversions(const T *in, T *out, float *out_f32, __half *out_f16, __nv_bfloat16 *out_bf16) {
  constexpr Layout kOther = kLayout == Layout::row ? Layout::col : Layout::row;
  In<T> source{in};
  Out<T> result{out};
  RegTile<T, kRows, kCols, kLayout> a;
  source.get(a);
  RegTile<float, kRows, kCols, kLayout> a_f32;
  copy(a_f32, a), Out<float>{out_f32}.put(a_f32);
  RegTile<__half, kRows, kCols, kLayout> a_f16;
  copy(a_f16, a), Out<__half>{out_f16}.put(a_f16);
  RegTile<__nv_bfloat16, kRows, kCols, kLayout> a_bf16;
  copy(a_bf16, a), Out<__nv_bfloat16>{out_bf16}.put(a_bf16);
  RegTile<T, kRows, kCols, kOther> swapped;
  swap_layout(swapped, a), result.put(swapped);
  auto &turned = transposed(a);
  static_assert(std::is_same_v<std::remove_reference_t<decltype(turned)>, RegTile<T, kCols, kRows, kOther>>);
  result.put(turned);
}

template <typename T, Layout kLayout, int kRows, int kCols>
__device__ void masks(const T *in, T *out, int first, int second) {
  In<T> source{in};
  Out<T> result{out};
  RegTile<T, kRows, kCols, kLayout> a, x;
  source.get(a);
  make_causal(x, a), result.put(x);
  make_causal(x, a, first, second), result.put(x);
  tril(x, a, first), result.put(x);
  triu(x, a, first), result.put(x);
  tril(x, a, -second, 2.f), result.put(x);
  triu(x, a, -second, 2.f), result.put(x);
  right_fill(x, a, first), result.put(x);
  right_fill(x, a, second, 2.f), result.put(x);
  make_causal_t(x, a), result.put(x);
  make_causal_t(x, a, first, second), result.put(x);
  lower_fill(x, a, first), result.put(x);
  lower_fill(x, a, second, 2.f), result.put(x);
}

/// Vectors of the tile's rows and of its columns: maps, another type, the other spread over the lanes, shared
/// memory.
template <typename T, Layout kLayout, int kRows, int kCols>
__device__ void vectors(const T *in, const T *plain, T *out, float *out_f32, int length) {
  constexpr Layout kOther = kLayout == Layout::row ? Layout::col : Layout::row;
  using Column = typename RegTile<T, kRows, kCols, kLayout>::ColVec;
  using Row = typename RegTile<T, kRows, kCols, kLayout>::RowVec;
  In<T> source{in};
  Out<T> result{out};
  Column a, x;
  Row b, y;
  source.get(a);
  source.get(b);
  exp2(x, a), result.put(x);
  mul(x, a, a), result.put(x);
  add(x, a, -0.5f), result.put(x);
  typename RegTile<T, kRows, kCols, kOther>::ColVec a_other;
  copy(a_other, a), result.put(a_other);
  typename RegTile<T, kRows, kCols, kOther>::RowVec b_other;
  copy(b_other, b), result.put(b_other);
  copy(y, b_other), result.put(y);
  typename RegTile<float, kRows, kCols, kLayout>::ColVec a_f32;
  copy(a_f32, a), Out<float>{out_f32}.put(a_f32);

  SharedAllocator allocator(smem);
  auto &a_smem = allocator.allocate<SharedVec<T, kRows + 16>>();
  auto &b_smem = allocator.allocate<SharedVec<T, kCols>>();
  store(a_smem, a, 16);
  store(b_smem, b);
  __syncwarp();
  load(x, a_smem, 16), result.put(x);
  load(y, b_smem), result.put(y);

  // Past the end: zeros come in, nothing goes out.
  load(x, GlobalVec<const T>{plain, length}), result.put(x);
  neg_infty(x);
  store(GlobalVec<T>{result.next, length}, x);
}

/// Every way between global memory, shared memory and registers; of the matrix in global memory, `rows` rows
/// are there. The results are in the order of the matrix, but for the first, which shows what a load puts
/// where.
template <typename T, Layout kLayout, int kRows, int kCols>
__device__ void memory(const T *in, T *out, int rows) {
  const GlobalMatrix<const T, kCols> ragged{in, rows}, whole{in, kRows};
  SharedAllocator allocator(smem);
  auto &tile_smem = allocator.allocate<SharedTile<T, kRows, kCols>>();
  auto &tall_smem = allocator.allocate<SharedTile<T, kRows + 16, kCols>>();
  RegTile<T, kRows, kCols, kLayout> x;
  const auto result = [&](int i, int valid_rows = kRows) {
    return GlobalMatrix<T, kCols>{out + i * kRows * kCols, valid_rows};
  };

  load(x, ragged); // global -> registers
  Out<T>{out}.put(x);
  load(tile_smem, ragged); // global -> shared
  __syncwarp();
  load(x, tile_smem); // shared -> registers
  store(result(1), x);
  __syncwarp();
  zero(x);
  store(tile_smem, x);
  __syncwarp();
  load_async(tile_smem, ragged); // global -> shared, asynchronously
  async_commit();
  async_wait();
  __syncwarp();
  load(x, tile_smem);
  store(result(2), x);
  load(x, whole);
  store(tall_smem, x, 16); // registers -> shared, at an offset
  __syncwarp();
  load(x, tall_smem, 16);
  store(result(3), x);
  store(tile_smem, x);
  __syncwarp();
  store(result(4, rows), tile_smem); // shared -> global
  store(result(5, rows), x);         // registers -> global
  load(x, whole, rows);              // from a row on
  store(result(6), x);
}

enum class Place { registers, shared };

/// dst = op(a) op(b) + c, with a and b each in registers or in shared memory.
template <char kA, char kB, Place kPlaceA, Place kPlaceB, typename T, int kM, int kN, int kK>
__device__ void mma(const T *a_gmem, const T *b_gmem, const float *c_gmem, float *out) {
  // A capital letter stands for the matrix as it is, a small one for its transpose.
  constexpr int a_rows = kA == 'A' ? kM : kK, a_cols = kA == 'A' ? kK : kM, b_rows = kB == 'B' ? kK : kN,
                b_cols = kB == 'B' ? kN : kK;
  RegTile<T, a_rows, a_cols, kA == 'A' ? Layout::row : Layout::col> a;
  RegTile<T, b_rows, b_cols, kB == 'B' ? Layout::col : Layout::row> b;
  RegTile<float, kM, kN> c, dst, product;
  SharedAllocator allocator(smem);
  auto &a_smem = allocator.allocate<SharedTile<T, a_rows, a_cols>>();
  auto &b_smem = allocator.allocate<SharedTile<T, b_rows, b_cols>>();
  load(a_smem, GlobalMatrix<const T, a_cols>{a_gmem, a_rows});
  load(b_smem, GlobalMatrix<const T, b_cols>{b_gmem, b_rows});
  load(c, GlobalMatrix<const float, kN>{c_gmem, kM});
  if constexpr (kPlaceA == Place::registers)
    load(a, GlobalMatrix<const T, a_cols>{a_gmem, a_rows});
  if constexpr (kPlaceB == Place::registers)
    load(b, GlobalMatrix<const T, b_cols>{b_gmem, b_rows});
  __syncwarp();
  const auto multiply_add = [](auto &to, const auto &x, const auto &y, const auto &...addend) {
    if constexpr (kA == 'A' && kB == 'B')
      mma_AB(to, x, y, addend...);
    else if constexpr (kA == 'A')
      mma_ABt(to, x, y, addend...);
    else if constexpr (kB == 'B')
      mma_AtB(to, x, y, addend...);
    else
      mma_AtBt(to, x, y, addend...);
  };
  const auto multiply = [&](const auto &x, const auto &y) {
    multiply_add(dst, x, y, c);
    multiply_add(product, x, y);
  };
  const auto with_a = [&](const auto &x) {
    if constexpr (kPlaceB == Place::registers)
      multiply(x, b);
    else
      multiply(x, b_smem);
  };
  if constexpr (kPlaceA == Place::registers)
    with_a(a);
  else
    with_a(a_smem);
  store(GlobalMatrix<float, kN>{out, kM}, dst);
  store(GlobalMatrix<float, kN>{out + kM * kN, kM}, product);
}

/// Two groups of kWarps warps side by side, each with matrices of its own: together, and each warp its slice.
template <typename T, Layout kLayout, int kWarps, int kRows, int kCols>
__device__ void groups(const T *in, T *out, int rows) {
  using G = group<kWarps>;
  constexpr int height = kWarps * kRows, results = 5;
  const int g = threadIdx.x / G::threads, barrier = 1 + g;
  in += g * height * kCols;
  out += g * results * height * kCols;
  SharedAllocator allocator(smem);
  auto &tile_smem = allocator.allocate<SharedTile<T, height, kCols>, 2>()[g];
  const GlobalMatrix<const T, kCols> ragged{in, rows};
  const auto result = [&](int i) { return GlobalMatrix<T, kCols>{out + i * height * kCols, height}; };
  RegTile<T, kRows, kCols, kLayout> x;

  G::load(tile_smem, ragged);
  G::sync(barrier);
  G::store(result(0), tile_smem);
  G::load(x, tile_smem);
  G::store(result(1), x);
  G::sync(barrier);
  G::load_async(tile_smem, ragged);
  async_commit();
  async_wait();
  G::sync(barrier);
  G::load(x, tile_smem);
  G::store(result(2), x);
  G::sync(barrier);
  mul(x, x, -1.f);
  G::store(tile_smem, x);
  G::sync(barrier);
  G::store(result(3), tile_smem);
  G::load(x, ragged);
  G::store(result(4), x);
}

} // namespace tests
