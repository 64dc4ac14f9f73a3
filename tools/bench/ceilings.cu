// Measures the peak rate of each unit of an SM, one at a time, in loops on registers or on one tile of shared
// memory.
//
//   ceilings ROUNDS LAUNCHES
//
// prints one line per unit: name, work per launch, milliseconds of the median launch, clock of an SM in GHz.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

constexpr int kWarps = 16, kThreads = kWarps * 32;
// Independent chains per warp, which hide each other's latency.
constexpr int kChains = 8;

struct Ticks {
  long long clocks, nanoseconds;
};

__device__ long long nanoseconds() {
  long long now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

// 16 x 8 x 16, that is 4,096 operations per warp and chain.
struct Mma {
  static constexpr const char *kName = "mma.sync";
  static constexpr double kWork = 2.0 * 16 * 8 * 16 * kChains / 32; // per thread and round
  float sum[kChains][4] = {};

  __device__ void round(std::uint32_t a) {
#pragma unroll
    for (auto &s : sum)
      asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %4, %4, %4}, "
                   "{%4, %4}, {%0, %1, %2, %3};"
                   : "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3])
                   : "r"(a));
  }
  __device__ float result() const {
    float all = 0;
    for (const auto &s : sum)
      all += s[0] + s[1] + s[2] + s[3];
    return all;
  }
};

// 512 bytes per warp and chain, without conflicts. The tile holds zeros, which are added to the next address,
// so that no load can be dropped or moved.
struct Ldmatrix {
  static constexpr const char *kName = "ldmatrix";
  static constexpr double kWork = 16.0 * kChains; // bytes per thread and round
  std::uint32_t address[kChains];

  __device__ Ldmatrix() {
    __shared__ alignas(128) std::uint32_t tile[kChains][128];
    for (int chain = 0; chain < kChains; ++chain) {
      tile[chain][threadIdx.x % 128] = 0;
      address[chain] =
          static_cast<std::uint32_t>(__cvta_generic_to_shared(&tile[chain][threadIdx.x % 32 * 4]));
    }
    __syncthreads();
  }
  __device__ void round(std::uint32_t) {
#pragma unroll
    for (auto &at : address) {
      std::uint32_t r[4];
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                   : "r"(at));
      at += r[0] ^ r[1] ^ r[2] ^ r[3];
    }
  }
  __device__ float result() const {
    std::uint32_t all = 0;
    for (std::uint32_t at : address)
      all ^= at;
    return __uint_as_float(all);
  }
};

struct Exp2 {
  static constexpr const char *kName = "ex2.approx";
  static constexpr double kWork = kChains;
  float x[kChains] = {};

  __device__ void round(std::uint32_t) {
#pragma unroll
    for (auto &value : x)
      asm volatile("ex2.approx.ftz.f32 %0, %0;" : "+f"(value));
  }
  __device__ float result() const {
    float all = 0;
    for (float value : x)
      all += value;
    return all;
  }
};

// Sums in f16.
struct MmaHalf {
  static constexpr const char *kName = "mma.sync f16";
  static constexpr double kWork = Mma::kWork;
  std::uint32_t sum[kChains][2] = {};

  __device__ void round(std::uint32_t a) {
#pragma unroll
    for (auto &s : sum)
      asm volatile("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %2, %2, %2}, {%2, %2}, "
                   "{%0, %1};"
                   : "+r"(s[0]), "+r"(s[1])
                   : "r"(a));
  }
  __device__ float result() const {
    std::uint32_t all = 0;
    for (const auto &s : sum)
      all ^= s[0] ^ s[1];
    return __uint_as_float(all);
  }
};

struct Shuffle {
  static constexpr const char *kName = "shfl";
  static constexpr double kWork = kChains;
  std::uint32_t x[kChains];

  __device__ Shuffle() {
    for (auto &value : x)
      value = threadIdx.x;
  }
  __device__ void round(std::uint32_t) {
#pragma unroll
    for (auto &value : x)
      asm volatile("shfl.sync.bfly.b32 %0, %0, 1, 31, 0xffffffff;" : "+r"(value));
  }
  __device__ float result() const {
    std::uint32_t all = 0;
    for (std::uint32_t value : x)
      all ^= value;
    return __uint_as_float(all);
  }
};

struct Maximum {
  static constexpr const char *kName = "max";
  static constexpr double kWork = kChains;
  float x[kChains] = {};

  __device__ void round(std::uint32_t a) {
    const float other = __uint_as_float(a);
#pragma unroll
    for (auto &value : x)
      asm volatile("max.f32 %0, %0, %1;" : "+f"(value) : "f"(other));
  }
  __device__ float result() const {
    float all = 0;
    for (float value : x)
      all += value;
    return all;
  }
};

// 16 MB of zeros, which every L2 holds; a block begins elsewhere than its neighbours.
constexpr unsigned kPlaces = 1 << 20;
__device__ uint4 l2_places[kPlaces];

__device__ unsigned first_place() { return blockIdx.x * 7919 * kThreads + threadIdx.x; }

// Past the L1. The zeros are added to the next place, so that no load can be dropped or moved.
struct L2Read {
  static constexpr const char *kName = "L2 read";
  static constexpr double kWork = 16.0 * kChains; // bytes per thread and round
  unsigned place = first_place(), zero = 0;

  __device__ void round(std::uint32_t) {
    std::uint32_t found[kChains];
#pragma unroll
    for (int chain = 0; chain < kChains; ++chain) {
      std::uint32_t r[4];
      asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                   : "l"(&l2_places[(place + chain * kThreads) % kPlaces]));
      found[chain] = r[0] ^ r[1] ^ r[2] ^ r[3];
    }
    for (std::uint32_t one : found)
      zero ^= one;
    place += kChains * kThreads + zero;
  }
  __device__ float result() const { return __uint_as_float(zero); }
};

// Each thread writes zeros to places of its own.
struct L2Write {
  static constexpr const char *kName = "L2 write";
  static constexpr double kWork = 16.0 * kChains; // bytes per thread and round
  unsigned place = first_place();

  __device__ void round(std::uint32_t) {
#pragma unroll
    for (int chain = 0; chain < kChains; ++chain)
      asm volatile("st.global.cg.v4.u32 [%0], {%1, %1, %1, %1};" ::"l"(
                       &l2_places[(place + chain * kThreads) % kPlaces]),
                   "r"(0)
                   : "memory");
  }
  __device__ float result() const { return 0; }
};

struct Fma {
  static constexpr const char *kName = "fma";
  static constexpr double kWork = 2.0 * kChains;
  float x[kChains] = {};

  __device__ void round(std::uint32_t a) {
    const float factor = __uint_as_float(a);
#pragma unroll
    for (auto &value : x)
      asm volatile("fma.rn.f32 %0, %0, %1, %1;" : "+f"(value) : "f"(factor));
  }
  __device__ float result() const {
    float all = 0;
    for (float value : x)
      all += value;
    return all;
  }
};

// Two bf16 between 1/2 and 1, of either sign, which differ between lanes and blocks.
__device__ std::uint32_t operands() {
  const std::uint32_t random = (blockIdx.x * kThreads + threadIdx.x) * 2654435761u;
  return (random & 0x807f807fu) | 0x3f003f00u;
}

template <typename Unit>
__global__ void __launch_bounds__(kThreads) measured(int rounds, float *result, Ticks *ticks) {
  Unit unit;
  const std::uint32_t a = operands();
  const long long clocks = clock64(), started = nanoseconds();
#pragma unroll 16
  for (int i = 0; i < rounds; ++i)
    unit.round(a);
  if (blockIdx.x == 0 && threadIdx.x == 0)
    *ticks = {clock64() - clocks, nanoseconds() - started};
  const float value = unit.result();
  if (value == 12345.0f) // never, but the compiler does not know
    *result = value;
}

void check(cudaError_t error) {
  if (error != cudaSuccess) {
    std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
    std::exit(1);
  }
}

template <typename Unit> void measure(int rounds, int launches, int blocks, float *result, Ticks *ticks) {
  cudaEvent_t start, end;
  check(cudaEventCreate(&start));
  check(cudaEventCreate(&end));
  std::vector<float> times;
  std::vector<double> clocks;
  for (int i = 0; i < launches; ++i) {
    check(cudaEventRecord(start));
    measured<Unit><<<blocks, kThreads>>>(rounds, result, ticks);
    check(cudaGetLastError());
    check(cudaEventRecord(end));
    check(cudaEventSynchronize(end));
    float ms;
    check(cudaEventElapsedTime(&ms, start, end));
    times.push_back(ms);
    Ticks t;
    check(cudaMemcpy(&t, ticks, sizeof t, cudaMemcpyDeviceToHost));
    clocks.push_back(static_cast<double>(t.clocks) / static_cast<double>(t.nanoseconds));
  }
  const auto median = [](auto values) {
    std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
    return values[values.size() / 2];
  };
  std::printf("%s,%.9g,%.6g,%.5g\n", Unit::kName, Unit::kWork * kThreads * blocks * rounds, median(times),
              median(clocks));
  check(cudaEventDestroy(start));
  check(cudaEventDestroy(end));
}

__global__ void empty() {}

// The time of a launch among many, of a kernel that does nothing; the clock is that of a short loop before.
void measure_launches(int launches, float *result, Ticks *ticks) {
  constexpr int kTogether = 200;
  cudaEvent_t start, end;
  check(cudaEventCreate(&start));
  check(cudaEventCreate(&end));
  std::vector<float> times;
  for (int i = 0; i < launches; ++i) {
    measured<Fma><<<1, kThreads>>>(1 << 12, result, ticks); // the host gets ahead
    check(cudaEventRecord(start));
    for (int launch = 0; launch < kTogether; ++launch)
      empty<<<1, 32>>>();
    check(cudaGetLastError());
    check(cudaEventRecord(end));
    check(cudaEventSynchronize(end));
    float ms;
    check(cudaEventElapsedTime(&ms, start, end));
    times.push_back(ms / kTogether);
  }
  std::sort(times.begin(), times.end());
  Ticks t;
  check(cudaMemcpy(&t, ticks, sizeof t, cudaMemcpyDeviceToHost));
  std::printf("launch,1,%.6g,%.5g\n", times[times.size() / 2],
              static_cast<double>(t.clocks) / static_cast<double>(t.nanoseconds));
  check(cudaEventDestroy(start));
  check(cudaEventDestroy(end));
}

int main(int argc, char **argv) {
  if (argc != 3 || std::atoi(argv[1]) < 1 || std::atoi(argv[2]) < 1) {
    std::fprintf(stderr, "usage: ceilings ROUNDS LAUNCHES\n");
    return 2;
  }
  const int rounds = std::atoi(argv[1]), launches = std::atoi(argv[2]);
  int sms;
  check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
  float *result;
  Ticks *ticks;
  check(cudaMalloc(&result, sizeof *result));
  check(cudaMalloc(&ticks, sizeof *ticks));
  measure<Mma>(rounds, launches, sms, result, ticks);
  measure<Ldmatrix>(rounds, launches, sms, result, ticks);
  measure<Exp2>(rounds, launches, sms, result, ticks);
  measure<Fma>(rounds, launches, sms, result, ticks);
  measure<MmaHalf>(rounds, launches, sms, result, ticks);
  measure<Shuffle>(rounds, launches, sms, result, ticks);
  measure<Maximum>(rounds, launches, sms, result, ticks);
  measure<L2Read>(rounds, launches, sms, result, ticks);
  measure<L2Write>(rounds, launches, sms, result, ticks);
  measure_launches(launches, result, ticks);
  check(cudaFree(result));
  check(cudaFree(ticks));
  return 0;
}
