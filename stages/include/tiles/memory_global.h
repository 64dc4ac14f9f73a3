// Transfers between global memory and registers or shared memory. Rows beyond the end of a matrix are read as
// zeros and not written.
#pragma once

#include "tiles/concepts.h"
#include "tiles/memory_shared.h"

namespace tiles {

/// A contiguous row-major matrix of `rows` rows of kCols elements, at a multiple of 16 bytes. T may be const.
template <typename T, int kCols>
  requires Element<std::remove_const_t<T>>
struct GlobalMatrix {
  using Elem = std::remove_const_t<T>;
  static constexpr int cols = kCols, stride = kCols;
  T *data;
  int rows;

  __device__ T *at(int row, int col) const { return data + int64_t(row) * stride + col; }
};

/// The same with `stride` elements, a multiple of 16 bytes, from one row to the next: columns of a wider
/// matrix.
template <typename T, int kCols>
  requires Element<std::remove_const_t<T>>
struct StridedMatrix {
  using Elem = std::remove_const_t<T>;
  static constexpr int cols = kCols;
  T *data;
  int rows, stride;

  __device__ T *at(int row, int col) const { return data + int64_t(row) * stride + col; }
};

/// A matrix whose width is known only at run time: tiles cover some of its rows and some of its columns. The
/// stride, and for loads and stores also cols, are multiples of 16 bytes.
template <typename T>
  requires Element<std::remove_const_t<T>>
struct WideMatrix {
  using Elem = std::remove_const_t<T>;
  T *data;
  int rows, cols, stride;

  __device__ T *at(int row, int col) const { return data + int64_t(row) * stride + col; }
};

template <typename X> inline constexpr bool is_global_matrix = false;
template <typename T, int kCols> inline constexpr bool is_global_matrix<GlobalMatrix<T, kCols>> = true;
template <typename T, int kCols> inline constexpr bool is_global_matrix<StridedMatrix<T, kCols>> = true;
template <typename X>
concept AnyGlobalMatrix = is_global_matrix<std::remove_const_t<X>>;

/// `length` contiguous elements.
template <typename T>
  requires Element<std::remove_const_t<T>>
struct GlobalVec {
  T *data;
  int length;
};

namespace detail {

template <typename X, typename Matrix> __device__ constexpr bool require_element_of() {
  constexpr bool element = std::is_same_v<typename X::Elem, typename Matrix::Elem>;
  static_assert(element, "given a tile and a global matrix of different element types, expected the same: "
                         "insert copy(other, tile)");
  return element;
}
template <typename X, typename Matrix> __device__ constexpr bool require_row_of() {
  static_assert(X::cols == Matrix::cols,
                "given a tile and a global matrix of different widths, expected the same cols");
  return require_element_of<X, Matrix>() && X::cols == Matrix::cols;
}

/// Row and column of the first 16-byte chunk of a shared tile that `thread` copies.
template <SharedMemoryTile S> __device__ inline int2 first_chunk(int thread) {
  constexpr int row_chunks = S::row_bytes / 16;
  return {thread / row_chunks, thread % row_chunks * int(16 / sizeof(typename S::Elem))};
}

/// Calls f(address in shared memory, down, right) for each 16-byte chunk of a shared tile that `thread` of
/// kThreads copies, `down` rows and `right` columns from its first one. Adjacent threads copy adjacent
/// chunks, 8 of them a 128-byte line: no conflict, for any width of the tile.
template <int kThreads, SharedMemoryTile S, typename F>
__device__ inline void for_each_chunk(S &tile, int thread, F f) {
  using Byte = std::conditional_t<std::is_const_v<S>, const char, char>;
  constexpr int row_chunks = S::row_bytes / 16, block_chunks = S::block_bytes / 16,
                chunks = S::cols / S::block_cols * block_chunks;
  // Constants take no registers. If kThreads chunks are whole periods of the swizzle, a thread's next chunk
  // is a constant number of bytes further; if they are whole rows of one block, a constant number of rows.
  constexpr bool whole_rounds = kThreads * 16 % 1024 == 0;
  constexpr bool whole_rows = chunks == block_chunks || block_chunks % kThreads == 0;
#pragma unroll
  for (int first = 0; first < chunks; first += kThreads) {
    const int chunk = first + thread;
    if (chunks % kThreads != 0 && chunk >= chunks)
      break;
    const int byte = whole_rounds ? S::swizzle(16 * thread) + 16 * first : S::swizzle(16 * chunk);
    const int down = whole_rows ? first % block_chunks / row_chunks
                                : chunk % block_chunks / row_chunks - thread / row_chunks;
    const int right = (whole_rows ? first : chunk) / block_chunks * S::block_cols;
    f(reinterpret_cast<Byte *>(tile.data) + byte, down, right);
  }
}

template <int kThreads, SharedMemoryTile D, AnyGlobalMatrix M>
__device__ inline void load_chunks(D &dst, const M &src, int first_row, int thread) {
  const auto [row, col] = first_chunk<D>(thread);
  const auto *first = src.at(first_row + row, col);
  for_each_chunk<kThreads>(dst, thread, [&](auto *smem, int down, int right) {
    const bool valid = first_row + row + down < src.rows;
    const auto *chunk = first + down * src.stride + right;
    ptx::store_shared(smem, valid ? *reinterpret_cast<const uint4 *>(chunk) : uint4{});
  });
}

template <int kThreads, SharedMemoryTile D, AnyGlobalMatrix M>
__device__ inline void load_chunks_async(D &dst, const M &src, int first_row, int thread) {
  const auto [row, col] = first_chunk<D>(thread);
  const auto *first = src.at(first_row + row, col);
  for_each_chunk<kThreads>(dst, thread, [&](auto *smem, int down, int right) {
    ptx::copy_async_16(smem, first + down * src.stride + right, first_row + row + down < src.rows);
  });
}

template <int kThreads, SharedMemoryVector D, typename T>
__device__ inline void load_vector_async(D &dst, const GlobalVec<T> &src, int first, int thread) {
  static_assert(std::is_same_v<typename D::Elem, std::remove_const_t<T>>,
                "given a shared and a global vector of different element types, expected the same");
  constexpr int entries = 16 / sizeof(T);
#pragma unroll
  for (int at = 0; at < D::length; at += kThreads * entries)
    if (const int entry = at + thread * entries; entry < D::length)
      ptx::copy_async_16(dst.data + entry, src.data + first + entry, first + entry < src.length);
}

template <int kThreads, SharedMemoryTile D, typename T>
__device__ inline void load_chunks_async(D &dst, const WideMatrix<T> &src, int first_row, int first_col,
                                         int thread) {
  auto [row, col] = first_chunk<D>(thread);
  row += first_row;
  col += first_col;
  const T *first = src.at(row, col);
  for_each_chunk<kThreads>(dst, thread, [&](auto *smem, int down, int right) {
    ptx::copy_async_16(smem, first + down * src.stride + right,
                       row + down < src.rows && col + right < src.cols);
  });
}

template <int kThreads, SharedMemoryTile S, AnyGlobalMatrix M>
__device__ inline void store_chunks(const M &dst, const S &src, int first_row, int thread) {
  const auto [row, col] = first_chunk<S>(thread);
  auto *first = dst.at(first_row + row, col);
  for_each_chunk<kThreads>(src, thread, [&](auto *smem, int down, int right) {
    if (first_row + row + down < dst.rows)
      *reinterpret_cast<uint4 *>(first + down * dst.stride + right) = ptx::load_shared<uint4>(smem);
  });
}

} // namespace detail

/// dst = src's rows from first_row on, through registers.
template <SharedMemoryTile D, AnyGlobalMatrix M>
__device__ inline void load(D &dst, const M &src, int first_row = 0) {
  if constexpr (detail::require_row_of<D, M>())
    detail::load_chunks<32>(dst, src, first_row, lane_id());
}

/// The same with cp.async: issues the copies and does not wait. After async_commit(), async_wait<n>() waits
/// for all copy groups of the calling thread except the last n; a barrier must follow.
template <SharedMemoryTile D, AnyGlobalMatrix M>
__device__ inline void load_async(D &dst, const M &src, int first_row = 0) {
  if constexpr (detail::require_row_of<D, M>())
    detail::load_chunks_async<32>(dst, src, first_row, lane_id());
}

/// Issues dst = src's entries from `first` on. `first` and src's length are multiples of 16 bytes.
template <SharedMemoryVector D, typename T>
__device__ inline void load_async(D &dst, const GlobalVec<T> &src, int first = 0) {
  detail::load_vector_async<32>(dst, src, first, lane_id());
}

/// Issues dst = the tile of src from (first_row, first_col) on; first_col is a multiple of 16 bytes. Elements
/// beyond the last row or column read as zero.
template <SharedMemoryTile D, typename T>
__device__ inline void load_async(D &dst, const WideMatrix<T> &src, int first_row, int first_col) {
  detail::load_chunks_async<32>(dst, src, first_row, first_col, lane_id());
}

__device__ inline void async_commit() { ptx::copy_async_commit(); }
template <int kPending = 0> __device__ inline void async_wait() { ptx::copy_async_wait<kPending>(); }

/// dst's rows from first_row on = src.
template <AnyGlobalMatrix M, SharedMemoryTile S>
__device__ inline void store(const M &dst, const S &src, int first_row = 0) {
  if constexpr (detail::require_row_of<S, M>())
    detail::store_chunks<32>(dst, src, first_row, lane_id());
}

/// dst = src's rows from first_row on, directly into registers.
template <RegisterTile D, AnyGlobalMatrix M>
__device__ inline void load(D &dst, const M &src, int first_row = 0) {
  if constexpr (!detail::require_row_of<D, M>())
    return;
  using Elem = typename D::Elem;
  detail::for_each_place<D>([&](int i, int j, int pair, int row, int col) {
    Pair<Elem> &to = dst.pairs[i][j][pair];
    row += first_row;
    if constexpr (D::row_layout) {
      to = row < src.rows ? *reinterpret_cast<const Pair<Elem> *>(src.at(row, col)) : Pair<Elem>{};
    } else {
      const float first = row < src.rows ? to_float(*src.at(row, col)) : 0.f;
      const float second = row + 1 < src.rows ? to_float(*src.at(row + 1, col)) : 0.f;
      to = pack<Elem>({first, second});
    }
  });
}

/// dst's rows from first_row and columns from first_col on = src.
template <AnyGlobalMatrix M, RegisterTile S>
__device__ inline void store(const M &dst, const S &src, int first_row = 0, int first_col = 0) {
  if constexpr (!detail::require_element_of<S, M>())
    return;
  using T = typename M::Elem;
  detail::for_each_place<S>([&](int i, int j, int pair, int row, int col) {
    row += first_row;
    col += first_col;
    if constexpr (S::row_layout) {
      if (row < dst.rows)
        *reinterpret_cast<Pair<T> *>(dst.at(row, col)) = src.pairs[i][j][pair];
    } else {
      const float2 values = unpack<T>(src.pairs[i][j][pair]);
      if (row < dst.rows)
        *dst.at(row, col) = from_float<T>(values.x);
      if (row + 1 < dst.rows)
        *dst.at(row + 1, col) = from_float<T>(values.y);
    }
  });
}

namespace detail {

/// Calls f(address in dst, value of src) for each value of the tile that lies within dst; the tile's first
/// value is at (first_row, first_col).
template <typename T, RegisterTile S, typename F>
__device__ inline void for_each_within(const WideMatrix<T> &dst, const S &src, int first_row, int first_col,
                                       F f) {
  for_each_place<S>([&](int i, int j, int pair, int row, int col) {
    const float2 values = unpack<typename S::Elem>(src.pairs[i][j][pair]);
    row += first_row;
    col += first_col;
    if (row < dst.rows && col < dst.cols)
      f(dst.at(row, col), values.x);
    if (row + !S::row_layout < dst.rows && col + S::row_layout < dst.cols)
      f(dst.at(row + !S::row_layout, col + S::row_layout), values.y);
  });
}

} // namespace detail

/// The tile of dst from (first_row, first_col) on = src. A row-layout tile is stored two values at a time:
/// dst.cols and first_col are even.
template <typename T, RegisterTile S>
__device__ inline void store(const WideMatrix<T> &dst, const S &src, int first_row, int first_col) {
  if constexpr (S::row_layout) {
    if constexpr (detail::require_element_of<S, WideMatrix<T>>())
      detail::for_each_place<S>([&](int i, int j, int pair, int row, int col) {
        row += first_row;
        col += first_col;
        if (row < dst.rows && col < dst.cols)
          *reinterpret_cast<Pair<T> *>(dst.at(row, col)) = src.pairs[i][j][pair];
      });
  } else {
    detail::for_each_within(dst, src, first_row, first_col,
                            [](T *place, float value) { *place = from_float<T>(value); });
  }
}

/// The tile of dst from (first_row, first_col) on += src, atomically per value. The order of the additions,
/// and with it the last bits, is not determined.
template <RegisterTile S>
__device__ inline void atomic_add(const WideMatrix<float> &dst, const S &src, int first_row, int first_col) {
  detail::for_each_within(dst, src, first_row, first_col,
                          [](float *place, float value) { ptx::atomic_add(place, value); });
}

/// dst = src's entries from `first` on; entries beyond the end are 0.
template <RegisterVector D, typename T>
__device__ inline void load(D &dst, const GlobalVec<T> &src, int first = 0) {
#pragma unroll
  for (int i = 0; i < D::length / 16; i++)
#pragma unroll
    for (int slot = 0; slot < D::per_lane; slot++) {
      const int entry = first + 16 * i + D::entry(slot);
      dst.values[i][slot] =
          from_float<typename D::Elem>(entry < src.length ? to_float(src.data[entry]) : 0.f);
    }
}

/// dst's entries from `first` on = src; one lane stores each entry.
template <typename T, RegisterVector S>
__device__ inline void store(const GlobalVec<T> &dst, const S &src, int first = 0) {
  const bool owner = S::along == Along::lines ? lane_id() % 4 == 0 : lane_id() < 4;
#pragma unroll
  for (int i = 0; i < S::length / 16; i++)
#pragma unroll
    for (int slot = 0; slot < S::per_lane; slot++)
      if (const int entry = first + 16 * i + S::entry(slot); owner && entry < dst.length)
        dst.data[entry] = from_float<T>(to_float(src.values[i][slot]));
}

} // namespace tiles
