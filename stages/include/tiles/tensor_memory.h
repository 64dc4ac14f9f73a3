// Tensor memory (sm_100a) and the products that accumulate in it: tcgen05. PTX manual, "TensorCore 5th
// Generation Family Instructions".
//
//   tmem::mma_ABt(s, q, k, false);   // one thread issues s = q k^T
//   tmem::commit(barrier);           // the same thread: the barrier's phase completes with the product
//   barrier.wait(parity);            // all threads
//   tmem::fence_after_sync();
//   tmem::load(registers, s);        // each warp its rows
//   tmem::wait_loads(registers);
//
// Before another thread overwrites the tile: wait_loads, fence_before_sync, a barrier, and there
// fence_after_sync.
#pragma once

#include "warpgroup.h"

namespace tiles::tmem {

/// kCols columns of fp32 in tensor memory, from column `address` on. Row r is in lane r.
template <int kCols> struct Tile {
  static constexpr int rows = 128, cols = kCols;
  uint32_t address;

  template <int kPart> __device__ Tile<kPart> columns(int first) const { return {address + first}; }
};

/// Operand A of 16-bit elements in tensor memory, two per column.
template <Element T, int kCols> struct OperandTile {
  using Elem = T;
  static constexpr int rows = 128, cols = kCols;
  uint32_t address;
};

/// Allocates kColumns columns, a power of two from 32 on, and stores the address in shared memory, where it
/// is valid after a barrier. Called by one warp, once: the block may not allocate again, so that the next
/// block of the multiprocessor can.
template <int kColumns> __device__ inline void allocate(uint32_t &address) {
  asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(
                   ptx::shared_address(&address)),
               "n"(kColumns)
               : "memory");
  asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;");
}
/// Called by one warp, after a barrier behind all accesses.
template <int kColumns> __device__ inline void deallocate(uint32_t address) {
  asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(address), "n"(kColumns));
}

/// Orders the thread's finished accesses to tensor memory before a barrier or an arrival.
__device__ inline void fence_before_sync() {
  asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
}
/// Orders the thread's next accesses to tensor memory after a barrier or a wait.
__device__ inline void fence_after_sync() { asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory"); }

namespace detail {

using tiles::detail::Inner;

/// The instruction descriptor of 128 x kN x 16 products with fp32 results. PTX manual, "Instruction
/// descriptor".
template <typename T, int kN, Inner kB> __device__ constexpr uint32_t instruction_descriptor() {
  constexpr uint32_t type = std::is_same_v<T, __half> ? 0 : 1, transposes_b = kB == Inner::rows;
  return 1u << 4 | type << 7 | type << 10 | transposes_b << 16 | (kN >> 3) << 17 | (128 >> 4) << 24;
}

/// A matrix descriptor is wgmma's with bits 46 to 48 set to 1.
template <Inner kInner, SharedMemoryTile X> __device__ inline uint64_t descriptor(const X &operand, int k) {
  return tiles::detail::descriptor<kInner>(operand, k) | uint64_t(1) << 46;
}

template <Inner kB, int kN, typename A, SharedMemoryTile B>
__device__ inline void mma(Tile<kN> d, const A &a, const B &b, bool add) {
  constexpr int k_length = tiles::detail::inner_length<kB, B>;
  static_assert(A::rows == 128 && A::cols == k_length && tiles::detail::outer_length<kB, B> == kN,
                "tmem: expected dst 128 x n, a 128 x k, b k x n");
  static_assert(std::is_same_v<typename A::Elem, typename B::Elem>, "tmem: expected a and b of one type");
  constexpr uint32_t form = instruction_descriptor<typename A::Elem, kN, kB>();
#pragma unroll
  for (int k = 0; k < k_length; k += 16) {
    const uint64_t b_k = descriptor<kB>(b, k);
    const int add_k = add || k > 0;
    if constexpr (SharedMemoryTile<A>)
      asm volatile("{.reg .pred add;"
                   "setp.ne.b32 add, %4, 0;"
                   "tcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, %3, add;}" ::"r"(d.address),
                   "l"(descriptor<Inner::cols>(a, k)), "l"(b_k), "r"(form), "r"(add_k)
                   : "memory");
    else
      asm volatile("{.reg .pred add;"
                   "setp.ne.b32 add, %4, 0;"
                   "tcgen05.mma.cta_group::1.kind::f16 [%0], [%1], %2, %3, add;}" ::"r"(d.address),
                   "r"(a.address + k / 2), "l"(b_k), "r"(form), "r"(add_k)
                   : "memory");
  }
}

} // namespace detail

// One thread issues d = a b, or d += a b if `add`. Products of one thread execute in order.
template <int kN, SharedMemoryTile A, SharedMemoryTile B>
__device__ inline void mma_ABt(Tile<kN> d, const A &a, const B &b, bool add) {
  detail::mma<detail::Inner::cols>(d, a, b, add);
}
template <int kN, typename A, SharedMemoryTile B>
__device__ inline void mma_AB(Tile<kN> d, const A &a, const B &b, bool add) {
  detail::mma<detail::Inner::rows>(d, a, b, add);
}
/// One arrival at the barrier when the thread's products up to here are complete.
__device__ inline void commit(Barrier &barrier) {
  asm volatile(
      "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(barrier.address())
      : "memory");
}

/// The first of the 16 rows of a tile that belong to the calling warp, one of the first eight of its block. A
/// warp reaches 32 lanes, by its number modulo 4; two warps share them.
__device__ inline int warp_row() {
  const int warp = uniform(threadIdx.x / 32);
  return warp % 4 * 32 + warp / 4 * 16;
}

/// Issues the load of the warp's 16 rows.
template <RegisterTile D> __device__ inline void load(D &dst, Tile<D::cols> src) {
  static_assert(D::rows == 16 && D::row_layout && D::cols % 32 == 0,
                "tmem: expected a tile of 16 rows per warp");
  auto &values = reinterpret_cast<float (&)[D::cols / 2]>(dst.pairs);
#pragma unroll
  for (int col = 0; col < D::cols; col += 32) {
    float *const v = values + col / 2;
    asm volatile(
        "tcgen05.ld.sync.aligned.16x256b.x4.b32 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, "
        "%13, %14, %15}, [%16];"
        : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3]), "=f"(v[4]), "=f"(v[5]), "=f"(v[6]), "=f"(v[7]),
          "=f"(v[8]), "=f"(v[9]), "=f"(v[10]), "=f"(v[11]), "=f"(v[12]), "=f"(v[13]), "=f"(v[14]), "=f"(v[15])
        : "r"(src.address + (warp_row() << 16) + col));
  }
}
/// Waits for the warp's loads; `tile` is the last one's destination, which the compiler may not use before.
template <RegisterTile D> __device__ inline void wait_loads(D &tile) {
  asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
  tiles::detail::fence_operand(tile);
}

/// Issues the store of the warp's 16 rows.
template <RegisterTile S> __device__ inline void store(Tile<S::cols> dst, const S &src) {
  static_assert(S::rows == 16 && S::row_layout && S::cols % 32 == 0,
                "tmem: expected a tile of 16 rows per warp");
  const auto *const values = reinterpret_cast<const float *>(src.pairs);
#pragma unroll
  for (int col = 0; col < S::cols; col += 32) {
    const float *const v = values + col / 2;
    asm volatile(
        "tcgen05.st.sync.aligned.16x256b.x4.b32 [%0], {%1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, "
        "%12, %13, %14, %15, %16};" ::"r"(dst.address + (warp_row() << 16) + col),
        "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3]), "f"(v[4]), "f"(v[5]), "f"(v[6]), "f"(v[7]), "f"(v[8]),
        "f"(v[9]), "f"(v[10]), "f"(v[11]), "f"(v[12]), "f"(v[13]), "f"(v[14]), "f"(v[15])
        : "memory");
  }
}
/// The same for an operand: a pair of elements per column.
template <Element T, int kCols>
__device__ inline void store(OperandTile<T, kCols> dst, const RegTile<T, 16, kCols> &src) {
  static_assert(kCols % 32 == 0, "tmem: expected a multiple of 32 columns");
  const auto *const words = reinterpret_cast<const uint32_t *>(src.pairs);
#pragma unroll
  for (int col = 0; col < kCols; col += 32) {
    const uint32_t *const w = words + col / 4;
    asm volatile("tcgen05.st.sync.aligned.16x128b.x4.b32 [%0], {%1, %2, %3, %4, %5, %6, %7, %8};" ::"r"(
                     dst.address + (warp_row() << 16) + col / 2),
                 "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]), "r"(w[4]), "r"(w[5]), "r"(w[6]), "r"(w[7])
                 : "memory");
  }
}
/// Waits for the warp's stores.
__device__ inline void wait_stores() { asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory"); }

} // namespace tiles::tmem
