// The wgmma instructions of sm_90a as functions: asynchronous products of a warpgroup, with 64 rows. PTX
// manual, "Asynchronous warpgroup level matrix instructions".
#pragma once

#include "types.h"

namespace tiles::ptx {

/// Orders a warp's writes to registers before the wgmma instructions that read them.
__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

/// Commits the products issued since the last commit as a group.
__device__ inline void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

/// Waits for all groups except the last kPending.
template <int kPending> __device__ inline void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

/// Issues acc = a b, or acc += a b, a 64 x kN product summed over 16; acc has kN / 2 registers per thread.
/// `ss`: both operands are in shared memory, given by descriptors. `rs`: a is in registers, as fragments of
/// mma_m16n8k16. kTransA and kTransB are 1 where the 16 run along the shared tile's rows, 0 along its
/// columns. Products of 8-bit elements are summed over 32, along the columns only.
template <typename T, int kN> struct Wgmma;
template <int kN> constexpr bool has_wgmma = kN % 16 == 0 && kN >= 32 && (kN <= 192 || kN == 256);

// Inline PTX numbers and lists all its operands: here eight registers at a time.
#define TILES_TEXT_16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define TILES_TEXT_24 TILES_TEXT_16 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define TILES_TEXT_32 TILES_TEXT_24 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define TILES_TEXT_40 TILES_TEXT_32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define TILES_TEXT_48 TILES_TEXT_40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define TILES_TEXT_56 TILES_TEXT_48 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define TILES_TEXT_64 TILES_TEXT_56 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define TILES_TEXT_72 TILES_TEXT_64 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define TILES_TEXT_80 TILES_TEXT_72 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define TILES_TEXT_88 TILES_TEXT_80 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define TILES_TEXT_96 TILES_TEXT_88 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define TILES_TEXT_104 TILES_TEXT_96 ", %96, %97, %98, %99, %100, %101, %102, %103"
#define TILES_TEXT_112 TILES_TEXT_104 ", %104, %105, %106, %107, %108, %109, %110, %111"
#define TILES_TEXT_120 TILES_TEXT_112 ", %112, %113, %114, %115, %116, %117, %118, %119"
#define TILES_TEXT_128 TILES_TEXT_120 ", %120, %121, %122, %123, %124, %125, %126, %127"
#define TILES_EIGHT(i)                                                                                       \
  "+f"(acc[i]), "+f"(acc[i + 1]), "+f"(acc[i + 2]), "+f"(acc[i + 3]), "+f"(acc[i + 4]), "+f"(acc[i + 5]),    \
      "+f"(acc[i + 6]), "+f"(acc[i + 7])
#define TILES_ACC_16 TILES_EIGHT(0), TILES_EIGHT(8)
#define TILES_ACC_24 TILES_ACC_16, TILES_EIGHT(16)
#define TILES_ACC_32 TILES_ACC_24, TILES_EIGHT(24)
#define TILES_ACC_40 TILES_ACC_32, TILES_EIGHT(32)
#define TILES_ACC_48 TILES_ACC_40, TILES_EIGHT(40)
#define TILES_ACC_56 TILES_ACC_48, TILES_EIGHT(48)
#define TILES_ACC_64 TILES_ACC_56, TILES_EIGHT(56)
#define TILES_ACC_72 TILES_ACC_64, TILES_EIGHT(64)
#define TILES_ACC_80 TILES_ACC_72, TILES_EIGHT(72)
#define TILES_ACC_88 TILES_ACC_80, TILES_EIGHT(80)
#define TILES_ACC_96 TILES_ACC_88, TILES_EIGHT(88)
#define TILES_ACC_104 TILES_ACC_96, TILES_EIGHT(96)
#define TILES_ACC_112 TILES_ACC_104, TILES_EIGHT(104)
#define TILES_ACC_120 TILES_ACC_112, TILES_EIGHT(112)
#define TILES_ACC_128 TILES_ACC_120, TILES_EIGHT(120)

// kElement, kN, its registers, and the numbers of the operands after them.
#define TILES_WGMMA(T, kElement, kN, kRegisters, p0, p1, p2, p3, p4, p5, p6)                                 \
  template <> struct Wgmma<T, kN> {                                                                          \
    template <int kTransA, int kTransB>                                                                      \
    __device__ static void ss(float (&acc)[kN / 2], uint64_t a, uint64_t b, bool add) {                      \
      asm volatile("{.reg .pred add; setp.ne.b32 add, " p2 ", 0;"                                            \
                   "wgmma.mma_async.sync.aligned.m64n" #kN "k16.f32." kElement "." kElement                  \
                   " {" TILES_TEXT_##kRegisters "}, " p0 ", " p1 ", add, 1, 1, " p3 ", " p4 ";}"             \
                   : TILES_ACC_##kRegisters                                                                  \
                   : "l"(a), "l"(b), "r"(int(add)), "n"(kTransA), "n"(kTransB));                             \
    }                                                                                                        \
    template <int kTransB>                                                                                   \
    __device__ static void rs(float (&acc)[kN / 2], const uint32_t (&a)[4], uint64_t b, bool add) {          \
      asm volatile("{.reg .pred add; setp.ne.b32 add, " p5 ", 0;"                                            \
                   "wgmma.mma_async.sync.aligned.m64n" #kN "k16.f32." kElement "." kElement                  \
                   " {" TILES_TEXT_##kRegisters "}, {" p0 ", " p1 ", " p2 ", " p3 "}, " p4                   \
                                                ", add, 1, 1, " p6 ";}"                                      \
                   : TILES_ACC_##kRegisters                                                                  \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(add)), "n"(kTransB));       \
    }                                                                                                        \
  };
#define TILES_WGMMA_BOTH(...)                                                                                \
  TILES_WGMMA(__half, "f16", __VA_ARGS__)                                                                    \
  TILES_WGMMA(__nv_bfloat16, "bf16", __VA_ARGS__)

TILES_WGMMA_BOTH(32, 16, "%16", "%17", "%18", "%19", "%20", "%21", "%22")
TILES_WGMMA_BOTH(48, 24, "%24", "%25", "%26", "%27", "%28", "%29", "%30")
TILES_WGMMA_BOTH(64, 32, "%32", "%33", "%34", "%35", "%36", "%37", "%38")
TILES_WGMMA_BOTH(80, 40, "%40", "%41", "%42", "%43", "%44", "%45", "%46")
TILES_WGMMA_BOTH(96, 48, "%48", "%49", "%50", "%51", "%52", "%53", "%54")
TILES_WGMMA_BOTH(112, 56, "%56", "%57", "%58", "%59", "%60", "%61", "%62")
TILES_WGMMA_BOTH(128, 64, "%64", "%65", "%66", "%67", "%68", "%69", "%70")
TILES_WGMMA_BOTH(144, 72, "%72", "%73", "%74", "%75", "%76", "%77", "%78")
TILES_WGMMA_BOTH(160, 80, "%80", "%81", "%82", "%83", "%84", "%85", "%86")
TILES_WGMMA_BOTH(176, 88, "%88", "%89", "%90", "%91", "%92", "%93", "%94")
TILES_WGMMA_BOTH(192, 96, "%96", "%97", "%98", "%99", "%100", "%101", "%102")
TILES_WGMMA_BOTH(256, 128, "%128", "%129", "%130", "%131", "%132", "%133", "%134")

// The same for e4m3.
#define TILES_WGMMA_E4M3(kN, kRegisters, p0, p1, p2, p3, p4, p5)                                             \
  template <> struct Wgmma<E4M3, kN> {                                                                       \
    template <int kTransA, int kTransB>                                                                      \
    __device__ static void ss(float (&acc)[kN / 2], uint64_t a, uint64_t b, bool add) {                      \
      asm volatile("{.reg .pred add; setp.ne.b32 add, " p2 ", 0;"                                            \
                   "wgmma.mma_async.sync.aligned.m64n" #kN "k32.f32.e4m3.e4m3"                               \
                   " {" TILES_TEXT_##kRegisters "}, " p0 ", " p1 ", add, 1, 1;}"                             \
                   : TILES_ACC_##kRegisters                                                                  \
                   : "l"(a), "l"(b), "r"(int(add)));                                                         \
    }                                                                                                        \
    template <int kTransB>                                                                                   \
    __device__ static void rs(float (&acc)[kN / 2], const uint32_t (&a)[4], uint64_t b, bool add) {          \
      asm volatile("{.reg .pred add; setp.ne.b32 add, " p5 ", 0;"                                            \
                   "wgmma.mma_async.sync.aligned.m64n" #kN "k32.f32.e4m3.e4m3"                               \
                   " {" TILES_TEXT_##kRegisters "}, {" p0 ", " p1 ", " p2 ", " p3 "}, " p4 ", add, 1, 1;}"   \
                   : TILES_ACC_##kRegisters                                                                  \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(add)));                     \
    }                                                                                                        \
  };

TILES_WGMMA_E4M3(32, 16, "%16", "%17", "%18", "%19", "%20", "%21")
TILES_WGMMA_E4M3(64, 32, "%32", "%33", "%34", "%35", "%36", "%37")
TILES_WGMMA_E4M3(128, 64, "%64", "%65", "%66", "%67", "%68", "%69")
TILES_WGMMA_E4M3(256, 128, "%128", "%129", "%130", "%131", "%132", "%133")
template <typename T, int kN>
constexpr bool has_wgmma_of =
    std::is_same_v<T, E4M3> ? kN == 32 || kN == 64 || kN == 128 || kN == 256 : has_wgmma<kN>;

#undef TILES_WGMMA_E4M3
#undef TILES_WGMMA_BOTH
#undef TILES_WGMMA

} // namespace tiles::ptx
