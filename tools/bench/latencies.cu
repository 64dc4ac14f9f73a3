// Measures the parameters of the model of time, one at a time, in cycles of an SM's clock.
//
//   latencies
//
// prints a line per parameter: its name in emulator/timing/parameters.def, and the value. It takes sm_90;
// compile it with -arch=sm_90a.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <vector>

namespace {

constexpr int kRepeats = 256;
/// Instructions in a row. ptxas moves them past a reading of the clock, but not out of a loop that it does
/// not unroll.
constexpr int kUnrolled = 64;

void check(cudaError_t error) {
  if (error == cudaSuccess)
    return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
  std::exit(1);
}

__device__ std::uint32_t shared_address(const void *pointer) {
  return std::uint32_t(__cvta_generic_to_shared(pointer));
}

// A chain in which each instruction needs the result of the one before: cycles per instruction.
#define CHAIN(name, setup, instruction, sink)                                                                \
  __global__ void name(long long *cycles, int *out, int zero) {                                              \
    setup;                                                                                                   \
    for (int warm = 0; warm < 2; ++warm) {                                                                   \
      const long long begin = clock64();                                                                     \
      _Pragma("unroll 1") for (int round = zero; round < kRepeats / kUnrolled; ++round)                      \
          _Pragma("unroll") for (int i = 0; i < kUnrolled; ++i) instruction;                                 \
      *cycles = clock64() - begin;                                                                           \
    }                                                                                                        \
    *out = sink;                                                                                             \
  }

CHAIN(fixed_chain, float x = float(zero), asm volatile("fma.rn.f32 %0, %0, %0, %0;" : "+f"(x)), int(x))
CHAIN(xu_chain, float x = float(zero), asm volatile("ex2.approx.ftz.f32 %0, %0;" : "+f"(x)), int(x))
CHAIN(shuffle_chain, int x = zero + int(threadIdx.x),
      asm volatile("shfl.sync.bfly.b32 %0, %0, 1, 31, -1;" : "+r"(x)), x)
CHAIN(shared_chain, __shared__ int word; word = int(shared_address(&word)); __syncwarp();
      int x = word, asm volatile("ld.shared.b32 %0, [%0];" : "+r"(x)), x)
CHAIN(matrix_chain, __shared__ alignas(128) int tile[32]; tile[threadIdx.x & 31] = int(shared_address(tile));
      __syncwarp(); int x = tile[0] + zero,
                    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%0];" : "+r"(x)), x)
CHAIN(mma_chain, float s[4] = {};
      const int a = zero,
      asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %4, %4, %4}, "
                   "{%4, %4}, {%0, %1, %2, %3};" : "+f"(s[0]),
                   "+f"(s[1]), "+f"(s[2]), "+f"(s[3]) : "r"(a)),
      int(s[0] + s[1] + s[2] + s[3]))
CHAIN(barrier_chain, const int x = zero, asm volatile("bar.sync 0;" :: : "memory"), x)
CHAIN(fence_chain, const int x = zero, asm volatile("fence.proxy.async.shared::cta;" :: : "memory"), x)
CHAIN(
    mbarrier_chain, __shared__ std::uint64_t barrier; const std::uint32_t at = shared_address(&barrier);
    if (threadIdx.x == 0) asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(at) : "memory");
    __syncwarp();
    int x = zero,
    asm volatile("{\n\t.reg .pred done;\n\tmbarrier.arrive.shared.b64 _, [%1];\n"
                 "AGAIN%=:\n\tmbarrier.try_wait.parity.shared.b64 done, [%1], %0;\n\t@!done bra AGAIN%=;\n\t"
                 "xor.b32 %0, %0, 1;\n\t}" : "+r"(x) : "r"(at) : "memory"),
    x)

// Taken branches: a loop whose body is one dependent addition and the branch.
__global__ void branch_chain(long long *cycles, int *out, int rounds) {
  int x = rounds;
  const long long begin = clock64();
  asm volatile("{\n\t.reg .pred more;\nLOOP:\n\tadd.s32 %0, %0, -1;\n\tsetp.ne.s32 more, %0, 0;\n\t@more bra "
               "LOOP;\n\t}"
               : "+r"(x));
  *cycles = clock64() - begin;
  *out = x;
}

// Four warps of each quarter repeat independent instructions: cycles per instruction of a quarter.
#define THROUGHPUT(name, type, instruction)                                                                  \
  __global__ void name(long long *cycles, int *out, int zero) {                                              \
    type x[8];                                                                                               \
    for (int i = 0; i < 8; ++i)                                                                              \
      x[i] = type(zero + i);                                                                                 \
    __syncthreads();                                                                                         \
    const long long begin = clock64();                                                                       \
    _Pragma("unroll 1") for (int round = zero; round < kRepeats / kUnrolled; ++round)                        \
        _Pragma("unroll") for (int i = 0; i < kUnrolled; ++i) {                                              \
      type &y = x[i % 8];                                                                                    \
      instruction;                                                                                           \
    }                                                                                                        \
    __syncthreads();                                                                                         \
    *cycles = clock64() - begin;                                                                             \
    type all = 0;                                                                                            \
    for (int i = 0; i < 8; ++i)                                                                              \
      all += x[i];                                                                                           \
    *out = int(all);                                                                                         \
  }
THROUGHPUT(fma_many, float, asm volatile("fma.rn.f32 %0, %0, %0, %0;" : "+f"(y)))
THROUGHPUT(alu_many, float, asm volatile("max.f32 %0, %0, 0f3f800000;" : "+f"(y)))
THROUGHPUT(xu_many, float, asm volatile("ex2.approx.ftz.f32 %0, %0;" : "+f"(y)))

__global__ void mma_many(long long *cycles, int *out, int a) {
  float s[8][4] = {};
  __syncthreads();
  const long long begin = clock64();
#pragma unroll 1
  for (int round = a; round < kRepeats / kUnrolled; ++round)
#pragma unroll
    for (int i = 0; i < kUnrolled; ++i) {
      auto &y = s[i % 8];
      asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %4, %4, %4}, "
                   "{%4, %4}, {%0, %1, %2, %3};"
                   : "+f"(y[0]), "+f"(y[1]), "+f"(y[2]), "+f"(y[3])
                   : "r"(a));
    }
  __syncthreads();
  *cycles = clock64() - begin;
  float all = 0;
  for (auto &row : s)
    all += row[0] + row[1] + row[2] + row[3];
  *out = int(all);
}

// `together` wgmma of 64 x 64 x 16 before each wait.
__device__ void product(float (&s)[32], std::uint64_t a, std::uint64_t b) {
#define D(i) "+f"(s[i]), "+f"(s[i + 1]), "+f"(s[i + 2]), "+f"(s[i + 3])
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "
      "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, 1, 1, 1, 0, 0;"
      : D(0), D(4), D(8), D(12), D(16), D(20), D(24), D(28)
      : "l"(a), "l"(b));
}
template <int kTogether> __global__ void products(long long *cycles, int *out, int zero) {
  __shared__ alignas(1024) std::uint16_t tile[64 * 64];
  for (int i = threadIdx.x; i < 64 * 64; i += blockDim.x)
    tile[i] = std::uint16_t(zero);
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  const std::uint64_t at = std::uint64_t(shared_address(tile)) >> 4 | 1ull << 16 | 64ull << 32 | 1ull << 62;
  float s[32] = {};
  const long long begin = clock64();
  for (int i = 0; i < kRepeats; ++i) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int j = 0; j < kTogether; ++j)
      product(s, at, at);
    asm volatile("wgmma.commit_group.sync.aligned;\n\twgmma.wait_group.sync.aligned 0;" ::: "memory");
  }
  *cycles = clock64() - begin;
  float all = 0;
  for (const float x : s)
    all += x;
  *out = int(all);
}

// Loads with 32-way conflicts, none of which waits for another: the cycle at which each has been issued.
constexpr int kQueued = 64;
__global__ void queue(long long *cycles, int *out, int zero) {
  __shared__ int tile[32 * 32];
  for (int i = threadIdx.x; i < 32 * 32; i += blockDim.x)
    tile[i] = zero;
  __syncthreads();
  const std::uint32_t at = shared_address(&tile[threadIdx.x * 32]);
  int x[kQueued];
  long long t[kQueued + 1];
#pragma unroll
  for (int i = 0; i < kQueued; ++i) {
    t[i] = clock64();
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(x[i]) : "r"(at + 4 * (i % 32)));
  }
  t[kQueued] = clock64();
  int all = 0;
  for (const int one : x)
    all += one;
  *out = all;
  if (threadIdx.x == 0)
    for (int i = 0; i <= kQueued; ++i)
      cycles[i] = t[i] - t[0];
}

__global__ void chase(const std::uint64_t *place, long long *cycles, int *out, int rounds) {
  const std::uint64_t *at = place;
  for (int i = 0; i < rounds; ++i) // all lines that fit are in the L2 then
    asm volatile("ld.global.cg.u64 %0, [%0];" : "+l"(at));
  const long long begin = clock64();
  for (int i = 0; i < rounds; ++i)
    asm volatile("ld.global.cg.u64 %0, [%0];" : "+l"(at));
  *cycles = clock64() - begin;
  *out = int(reinterpret_cast<std::uintptr_t>(at));
}

// All blocks read all bytes: each begins elsewhere.
__global__ void read_all(const uint4 *data, std::size_t count, int rounds, int *out, long long *cycles) {
  const long long begin = clock64();
  std::uint32_t all = 0;
  const std::size_t step = std::size_t(blockDim.x) * gridDim.x;
  for (int round = 0; round < rounds; ++round)
#pragma unroll 8
    for (std::size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
      uint4 x;
      asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                   : "l"(data + i));
      all += x.x ^ x.y ^ x.z ^ x.w;
    }
  *out = int(all);
  if (threadIdx.x == 0)
    cycles[blockIdx.x] = clock64() - begin;
}

// Bulk copies from the L2, `together` at a time.
__global__ void bulk(const char *data, int together, int bytes, long long *cycles) {
  extern __shared__ __align__(128) char tile[];
  __shared__ std::uint64_t barrier;
  const std::uint32_t at = shared_address(&barrier), to = shared_address(tile);
  asm volatile("mbarrier.init.shared.b64 [%0], 1;\n\tfence.mbarrier_init.release.cluster;" ::"r"(at)
               : "memory");
  long long begin = 0;
  for (int round = 0; round < kRepeats + 8; ++round) {
    if (round == 8)
      begin = clock64();
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(at), "r"(together * bytes)
                 : "memory");
    for (int i = 0; i < together; ++i)
      asm volatile(
          "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
              to + i * bytes),
          "l"(data + i * bytes), "r"(bytes), "r"(at)
          : "memory");
    asm volatile("{\n\t.reg .pred done;\nAGAIN%=:\n\tmbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n\t"
                 "@!done bra AGAIN%=;\n\t}" ::"r"(at),
                 "r"(round & 1)
                 : "memory");
  }
  *cycles = clock64() - begin;
}

// Blocks that follow each other on an SM, one at a time: when each began, by the SM's own clock.
__global__ void nothing(long long *cycles, int *places) {
  extern __shared__ char all[];
  if (threadIdx.x == 0) {
    cycles[blockIdx.x] = clock64();
    asm volatile("mov.u32 %0, %%smid;" : "=r"(places[blockIdx.x]));
  }
}

long long *cycles;
int *out;

template <typename Kernel> double run(Kernel kernel, int threads, int argument = 0) {
  kernel<<<1, threads>>>(cycles, out, argument);
  check(cudaDeviceSynchronize());
  return double(*cycles);
}

void say(const char *name, double value) { std::printf("%s,%.5g\n", name, value); }

double chase_cycles(std::size_t bytes, int rounds) {
  const std::size_t count = bytes / 128;
  std::vector<std::uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0u);
  std::shuffle(order.begin() + 1, order.end(), std::mt19937(1));
  std::uint64_t *place;
  check(cudaMalloc(&place, bytes));
  std::vector<std::uint64_t> next(bytes / 8);
  for (std::size_t i = 0; i < count; ++i)
    next[order[i] * 16] = reinterpret_cast<std::uint64_t>(place + std::size_t(order[(i + 1) % count]) * 16);
  check(cudaMemcpy(place, next.data(), bytes, cudaMemcpyHostToDevice));
  chase<<<1, 1>>>(place, cycles, out, rounds);
  check(cudaDeviceSynchronize());
  check(cudaFree(place));
  return double(*cycles) / rounds;
}

double bytes_per_cycle(std::size_t bytes, int rounds, int sms) {
  uint4 *data;
  check(cudaMalloc(&data, bytes));
  check(cudaMemset(data, 0, bytes));
  for (int i = 0; i < 2; ++i)
    read_all<<<sms, 1024>>>(data, bytes / sizeof *data, rounds, out, cycles);
  check(cudaDeviceSynchronize());
  double longest = 0;
  for (int i = 0; i < sms; ++i)
    longest = std::max(longest, double(cycles[i]));
  check(cudaFree(data));
  return double(bytes) * rounds / sms / longest;
}

double bulk_cycles(const char *data, int together, int bytes) {
  bulk<<<1, 1, together * bytes>>>(data, together, bytes, cycles);
  check(cudaDeviceSynchronize());
  return double(*cycles) / kRepeats;
}

} // namespace

int main() {
  int sms;
  check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
  check(cudaMallocManaged(&cycles, 4096 * sizeof *cycles));
  check(cudaMallocManaged(&out, sizeof *out));
  constexpr double kPerQuarter = 4.0 * kRepeats; // of 16 warps
  say("fma_interval", run(fma_many, 512) / kPerQuarter);
  say("alu_interval", run(alu_many, 512) / kPerQuarter);
  say("xu_interval", run(xu_many, 512) / kPerQuarter);
  say("fixed_latency", run(fixed_chain, 32) / kRepeats);
  say("xu_latency", run(xu_chain, 32) / kRepeats);
  say("shared_latency", run(shared_chain, 32) / kRepeats);
  say("matrix_load_latency", run(matrix_chain, 32) / kRepeats);
  say("shuffle_latency", run(shuffle_chain, 32) / kRepeats);
  say("mma_latency", run(mma_chain, 32) / kRepeats);
  say("mma_operations", 16 * 8 * 16 * 2 * 16.0 * kRepeats / run(mma_many, 512));
  const double few = run(products<1>, 128) / kRepeats, many = run(products<9>, 128) / kRepeats;
  const double busy = (many - few) / 8;
  say("product_operations", 64 * 64 * 16 * 2 / busy);
  say("product_latency", few - busy);
  run(queue, 32);
  int waiting = 0; // loads that have been issued while the first is in progress
  while (waiting < kQueued && cycles[waiting + 1] - cycles[waiting] < 16)
    ++waiting;
  say("memory_queue", 32.0 * waiting);
  const double l2 = chase_cycles(2 << 20, 1 << 14);
  say("l2_latency", l2);
  say("l2_bytes", bytes_per_cycle(16 << 20, 64, sms));
  say("dram_latency", chase_cycles(512 << 20, 1 << 14) - l2);
  say("dram_bytes", bytes_per_cycle(std::size_t(2) << 30, 2, sms));
  char *data;
  check(cudaMalloc(&data, 1 << 20));
  check(cudaMemset(data, 0, 1 << 20));
  const double one = bulk_cycles(data, 1, 128);
  say("tma_latency", one - l2);
  say("tma_interval", (bulk_cycles(data, 33, 128) - one) / 32);
  check(cudaFree(data));
  say("barrier_latency", run(barrier_chain, 128) / kRepeats);
  say("mbarrier_latency", run(mbarrier_chain, 1) / kRepeats);
  say("fence_latency", run(fence_chain, 32) / kRepeats);
  run(branch_chain, 32, 1 << 14);
  say("branch_latency", double(*cycles) / (1 << 14));
  constexpr int kBytes = 200 << 10, kInARow = 16;
  check(cudaFuncSetAttribute(nothing, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes));
  int *places;
  check(cudaMallocManaged(&places, sms * kInARow * sizeof *places));
  for (int i = 0; i < 2; ++i)
    nothing<<<sms * kInARow, 128, kBytes>>>(cycles, places);
  check(cudaDeviceSynchronize());
  std::vector<std::vector<long long>> begins(sms);
  for (int i = 0; i < sms * kInARow; ++i)
    begins[places[i]].push_back(cycles[i]);
  double between = 0;
  int pairs = 0;
  for (const auto &one : begins)
    if (one.size() > 1) {
      const auto [first, last] = std::minmax_element(one.begin(), one.end());
      between += double(*last - *first);
      pairs += int(one.size()) - 1;
    }
  say("block_latency", between / pairs);
  return 0;
}
