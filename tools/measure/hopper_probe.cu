// Probes of wgmma's and TMA's addressing and of their counters. The same program runs on a GPU and on the
// emulator: `places` and `boxes` write what was found to a file, `count` launches one labelled kernel after
// another for Nsight Compute.
#include <cuda.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "wgmma_forms.h" // written by measure_hopper.py

#define CHECK(call)                                                                                          \
  do {                                                                                                       \
    const cudaError_t code = (call);                                                                         \
    if (code != cudaSuccess) {                                                                               \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(code));                     \
      std::exit(1);                                                                                          \
    }                                                                                                        \
  } while (0)

namespace {

constexpr int kImageBytes = 64 * 1024;
constexpr int kThreads = 128;

struct Random {
  std::uint64_t state;
  std::uint32_t operator()(std::uint32_t below) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return std::uint32_t((state >> 33) % below);
  }
};

__device__ std::uint32_t shared_address(const void *p) { return std::uint32_t(__cvta_generic_to_shared(p)); }

__device__ void load_image(const uint4 *image, uint4 *to, int bytes) {
  for (int i = threadIdx.x; i < bytes / 16; i += blockDim.x)
    to[i] = image[i];
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
}

/// D = A * B, `repeats` times; descriptors hold offsets in the image.
template <int N, bool RS, int TA, int TB>
__global__ void __launch_bounds__(kThreads)
    product(const uint4 *image, unsigned long long da, unsigned long long db, const unsigned *fragments,
            float *out, int repeats) {
  extern __shared__ __align__(1024) unsigned char smem[];
  load_image(image, reinterpret_cast<uint4 *>(smem), kImageBytes);
  const unsigned long long base = shared_address(smem) >> 4;
  unsigned a[4];
  for (int i = 0; i < 4; ++i)
    a[i] = RS ? fragments[threadIdx.x * 4 + i] : 0;
  float d[N / 2];
  for (int i = 0; i < N / 2; ++i)
    d[i] = 0;
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  for (int i = 0; i < repeats; ++i)
    Wgmma<N, RS, TA, TB>::run(d, da + base, a, db + base, 1);
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  for (int i = 0; i < N / 2; ++i)
    out[threadIdx.x * (N / 2) + i] = d[i];
}

unsigned long long descriptor(unsigned start, unsigned leading, unsigned stride, unsigned base_offset,
                              unsigned mode) {
  return start >> 4 | (unsigned long long)(leading >> 4) << 16 | (unsigned long long)(stride >> 4) << 32 |
         (unsigned long long)base_offset << 49 | (unsigned long long)mode << 62;
}

template <typename T> T *upload(const std::vector<T> &values) {
  T *device;
  CHECK(cudaMalloc(&device, values.size() * sizeof(T)));
  CHECK(cudaMemcpy(device, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  return device;
}

template <int N, bool RS, int TA, int TB>
void launch_product(const void *image, unsigned long long da, unsigned long long db,
                    const unsigned *fragments, float *out, int repeats = 1) {
  const auto kernel = product<N, RS, TA, TB>;
  CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kImageBytes));
  kernel<<<1, kThreads, kImageBytes>>>(static_cast<const uint4 *>(image), da, db, fragments, out, repeats);
  CHECK(cudaGetLastError());
}

// --- which byte of shared memory each element of an operand comes from ------------------------------------

/// Images whose 16-bit element i is i % 1024, and i / 1024.
std::vector<__half> numbered_image(bool high) {
  std::vector<__half> image(kImageBytes / 2);
  for (int i = 0; i < int(image.size()); ++i)
    image[i] = __float2half(float(high ? i / 1024 : i % 1024));
  return image;
}

/// A with row r the unit vector of k = r % 16, as fragments.
std::vector<unsigned> unit_fragments() {
  std::vector<unsigned> fragments(kThreads * 4);
  for (int thread = 0; thread < kThreads; ++thread)
    for (int r = 0; r < 4; ++r)
      for (int half = 0; half < 2; ++half) {
        const int row = thread % 32 / 4 + 8 * (r % 2), k = 2 * (thread % 4) + half + 8 * (r / 2);
        if (row % 16 == k)
          fragments[thread * 4 + r] |= unsigned(__half_as_ushort(__float2half(1))) << (16 * half);
      }
  return fragments;
}

void probe_places(int cases, std::FILE *file) {
  constexpr int kN = 64;
  const __half *images[2] = {upload(numbered_image(false)), upload(numbered_image(true))};
  const unsigned *fragments = upload(unit_fragments());
  float *out;
  CHECK(cudaMalloc(&out, kThreads * kN / 2 * sizeof(float)));
  Random random{1};
  for (int i = 0; i < cases; ++i) {
    const unsigned mode = random(4), transposed = random(2);
    const unsigned aligned = random(2);
    const unsigned start = aligned ? 1024 * random(8) : 16 * random(512);
    const unsigned leading = 16 * (1 + random(96)), stride = 16 * (1 + random(96));
    const unsigned base_offset = mode == 0 || random(2) ? 0 : random(8);
    const unsigned long long db = descriptor(start, leading, stride, base_offset, mode);
    std::vector<float> d[2];
    for (int high = 0; high < 2; ++high) {
      if (transposed)
        launch_product<kN, true, 0, 1>(images[high], 0, db, fragments, out);
      else
        launch_product<kN, true, 0, 0>(images[high], 0, db, fragments, out);
      d[high].resize(kThreads * kN / 2);
      CHECK(cudaMemcpy(d[high].data(), out, d[high].size() * sizeof(float), cudaMemcpyDeviceToHost));
    }
    const std::uint32_t head[6] = {mode, transposed, start, leading, stride, base_offset};
    std::fwrite(head, sizeof head, 1, file);
    std::vector<std::uint16_t> elements(16 * kN); // [k][n]: index of the element in the image
    for (int thread = 0; thread < 32; ++thread)
      for (int r = 0; r < kN / 2; ++r) {
        const int k = thread / 4 + 8 * (r / 2 % 2), n = 8 * (r / 4) + 2 * (thread % 4) + r % 2;
        const int at = thread * (kN / 2) + r;
        elements[k * kN + n] = std::uint16_t(int(d[0][at]) + 1024 * int(d[1][at]));
      }
    std::fwrite(elements.data(), 2, elements.size(), file);
  }
}

// --- what a box looks like in shared memory ---------------------------------------------------------------

constexpr int kDumpBytes = 32 * 1024;

__device__ void tma_load(int rank, const CUtensorMap *map, const int *c, unsigned to, unsigned mbarrier) {
  const auto m = reinterpret_cast<unsigned long long>(map);
#define LOAD(d, coordinates, ...)                                                                            \
  asm volatile("cp.async.bulk.tensor." d                                                                     \
               "d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {" coordinates         \
               "}], [%2];" ::"r"(to),                                                                        \
               "l"(m), "r"(mbarrier), __VA_ARGS__                                                            \
               : "memory")
  switch (rank) {
  case 1:
    LOAD("1", "%3", "r"(c[0]));
    break;
  case 2:
    LOAD("2", "%3, %4", "r"(c[0]), "r"(c[1]));
    break;
  case 3:
    LOAD("3", "%3, %4, %5", "r"(c[0]), "r"(c[1]), "r"(c[2]));
    break;
  case 4:
    LOAD("4", "%3, %4, %5, %6", "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
    break;
  default:
    LOAD("5", "%3, %4, %5, %6, %7", "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]), "r"(c[4]));
  }
#undef LOAD
}

struct Coordinates {
  int c[5];
};

__global__ void load_box(const __grid_constant__ CUtensorMap map, int rank, Coordinates at, unsigned to,
                         unsigned bytes, uint4 *dump, int *timed_out) {
  extern __shared__ __align__(1024) unsigned char smem[];
  __shared__ std::uint64_t mbarrier;
  for (int i = threadIdx.x; i < kDumpBytes / 16; i += blockDim.x)
    reinterpret_cast<uint4 *>(smem)[i] = make_uint4(0xeeeeeeee, 0xeeeeeeee, 0xeeeeeeee, 0xeeeeeeee);
  const unsigned barrier = shared_address(&mbarrier);
  if (threadIdx.x == 0)
    asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(barrier));
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
    tma_load(rank, &map, at.c, shared_address(smem) + to, barrier);
  }
  int done = 0;
  for (int i = 0; i < 2000 && !done; ++i)
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0; selp.b32 %0, 1, 0, p; }"
                 : "=r"(done)
                 : "r"(barrier)
                 : "memory");
  if (threadIdx.x == 0)
    *timed_out = !done;
  __syncthreads();
  for (int i = threadIdx.x; i < kDumpBytes / 16; i += blockDim.x)
    dump[i] = reinterpret_cast<const uint4 *>(smem)[i];
}

using Encode = CUresult (*)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                            const cuuint64_t *, const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave,
                            CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

Encode find_encode() {
  void *function = nullptr;
  cudaDriverEntryPointQueryResult result;
  CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault,
                                         &result));
  return reinterpret_cast<Encode>(function);
}

struct Box {
  CUtensorMapDataType type;
  unsigned rank, swizzle, fill, to, l2;
  cuuint64_t size[5], stride[4];
  cuuint32_t box[5], step[5];
  int at[5];
};

unsigned bytes_of(CUtensorMapDataType type) {
  constexpr unsigned kBytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
  return kBytes[type];
}

Box random_box(Random &random) {
  Box box = {};
  box.type = CUtensorMapDataType(random(13));
  box.rank = 1 + random(5);
  box.swizzle = random(4);
  box.fill = random(4) == 0;
  box.to = 128 * random(8) + 1024 * random(4);
  const unsigned bytes = bytes_of(box.type);
  const unsigned span = box.swizzle ? 16u << box.swizzle : 256;
  unsigned left = 8192; // bytes of the box
  // One in eight breaks the rule that the innermost box is a multiple of 16 bytes and within the swizzle.
  box.box[0] = random(8) ? 16 / bytes * (1 + random(span / 16)) : 1 + random(256);
  if (!box.box[0])
    box.box[0] = 2;
  left /= box.box[0] * bytes < left ? box.box[0] * bytes : left;
  for (unsigned d = 0; d < 5; ++d) {
    if (d) {
      box.box[d] = 1 + random(left < 16 ? left : 16);
      left /= box.box[d];
      if (!left)
        left = 1;
    }
    box.step[d] = random(6) ? 1 : 1 + random(4);
    box.size[d] = 1 + random(d ? 12 : 200);
    box.at[d] = int(random(24)) - 6;
  }
  // One in thirty does not begin at 16 bytes.
  if (random(30))
    box.at[0] = box.at[0] * int(16 / bytes);
  else
    box.at[0] = box.at[0] * 2 + 1;
  cuuint64_t stride = (box.size[0] * bytes + 15) / 16 * 16;
  for (unsigned d = 0; d < 4; ++d) {
    stride += 16 * random(3);
    if (random(40) == 0)
      stride += 8;
    box.stride[d] = stride;
    stride *= box.size[d + 1];
    stride = (stride + 15) / 16 * 16;
  }
  return box;
}

/// What the hardware refuses ends the process: the caller begins again after the case that did.
void probe_boxes(int cases, int first, std::FILE *file) {
  const Encode encode = find_encode();
  constexpr std::size_t kTensorBytes = 64 << 20;
  std::uint8_t *tensor;
  CHECK(cudaMalloc(&tensor, kTensorBytes));
  std::vector<std::uint16_t> numbers(1 << 20);
  for (std::size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = std::uint16_t(i * 40503u >> 4 & 0x7bff); // no NaN, whatever the type of 16 bits
  for (std::size_t at = 0; at < kTensorBytes; at += 2 * numbers.size())
    CHECK(cudaMemcpy(tensor + at, numbers.data(), 2 * numbers.size(), cudaMemcpyHostToDevice));
  uint4 *dump;
  int *timed_out;
  CHECK(cudaMalloc(&dump, kDumpBytes));
  CHECK(cudaMalloc(&timed_out, sizeof(int)));
  CHECK(cudaFuncSetAttribute(load_box, cudaFuncAttributeMaxDynamicSharedMemorySize, kDumpBytes));
  Random random{2};
  std::vector<std::uint8_t> bytes(kDumpBytes);
  for (int i = 0; i < cases; ++i) {
    const Box box = random_box(random);
    if (i < first)
      continue;
    alignas(64) CUtensorMap map;
    const CUresult code = encode(&map, box.type, box.rank, tensor, box.size, box.stride, box.box, box.step,
                                 CU_TENSOR_MAP_INTERLEAVE_NONE, CUtensorMapSwizzle(box.swizzle),
                                 CU_TENSOR_MAP_L2_PROMOTION_NONE, CUtensorMapFloatOOBfill(box.fill));
    std::int32_t head[2] = {int(code), -1};
    cuuint64_t extent = 0;
    for (unsigned d = 1; d < box.rank; ++d)
      extent += box.stride[d - 1] * box.size[d];
    if (code == CUDA_SUCCESS && extent < kTensorBytes) {
      unsigned expected = bytes_of(box.type);
      for (unsigned d = 0; d < box.rank; ++d)
        expected *= d ? (box.box[d] + box.step[d] - 1) / box.step[d] : box.box[0];
      Coordinates at;
      std::memcpy(at.c, box.at, sizeof at.c);
      load_box<<<1, 32, kDumpBytes>>>(map, int(box.rank), at, box.to, expected, dump, timed_out);
      CHECK(cudaDeviceSynchronize());
      CHECK(cudaMemcpy(&head[1], timed_out, sizeof(int), cudaMemcpyDeviceToHost));
      CHECK(cudaMemcpy(bytes.data(), dump, kDumpBytes, cudaMemcpyDeviceToHost));
    } else {
      std::fill(bytes.begin(), bytes.end(), std::uint8_t(0));
    }
    std::fwrite(&i, sizeof i, 1, file);
    std::fwrite(&box, sizeof box, 1, file);
    std::fwrite(head, sizeof head, 1, file);
    std::fwrite(bytes.data(), 1, 16 * 1024, file);
    std::fflush(file);
  }
}

// --- how sums are rounded
// -----------------------------------------------------------------------------------

void probe_sums(int cases, std::FILE *file) {
  constexpr int kN = 64;
  Random random{3};
  float *out;
  CHECK(cudaMalloc(&out, kThreads * kN / 2 * sizeof(float)));
  for (int i = 0; i < cases; ++i) {
    // Values of random magnitude: what is lost tells how the sum is made.
    std::vector<__half> image(kImageBytes / 2);
    for (__half &value : image)
      value = __float2half((float(random(2048)) - 1024) / 1024 * float(1 << random(i % 12 + 1)));
    const __half *device = upload(image);
    launch_product<kN, false, 0, 0>(device, descriptor(0, 16, 1024, 0, 1), descriptor(16384, 16, 1024, 0, 1),
                                    nullptr, out, 3);
    std::vector<float> d(kThreads * kN / 2);
    CHECK(cudaMemcpy(d.data(), out, d.size() * sizeof(float), cudaMemcpyDeviceToHost));
    CHECK(cudaFree(const_cast<__half *>(device)));
    std::fwrite(d.data(), sizeof(float), d.size(), file);
  }
}

// --- counters
// -------------------------------------------------------------------------------------------------

int launches = 0, first_launch = 0, last_launch = 1 << 30;

/// Prints a launch's label; false for one that is not asked for.
template <typename... Values> bool labelled(const char *format, Values... values) {
  std::printf(format, values...);
  std::printf("\n");
  const int own = launches++;
  return own >= first_launch && own <= last_launch;
}

struct CountedCopies {
  Coordinates at, step;
  int rank, copies, lanes;
  unsigned bytes;
};

__global__ void count_loads(const __grid_constant__ CUtensorMap map, CountedCopies what) {
  extern __shared__ __align__(1024) unsigned char smem[];
  __shared__ std::uint64_t mbarrier;
  const unsigned barrier = shared_address(&mbarrier);
  if (threadIdx.x == 0)
    asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(barrier));
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (threadIdx.x == 0)
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier), "r"(what.bytes)
                 : "memory");
  __syncthreads();
  if (threadIdx.x < what.lanes)
    for (int i = 0; i < what.copies; ++i) {
      Coordinates at = what.at;
      for (int d = 0; d < 5; ++d)
        at.c[d] += i * what.step.c[d];
      tma_load(what.rank, &map, at.c, shared_address(smem), barrier);
    }
  int done = 0;
  for (int i = 0; i < 20000 && !done; ++i)
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0; selp.b32 %0, 1, 0, p; }"
                 : "=r"(done)
                 : "r"(barrier)
                 : "memory");
}

__global__ void __cluster_dims__(2, 1, 1)
    count_multicast(const __grid_constant__ CUtensorMap map, unsigned bytes) {
  extern __shared__ __align__(1024) unsigned char smem[];
  __shared__ std::uint64_t mbarrier;
  const unsigned barrier = shared_address(&mbarrier);
  unsigned rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(barrier));
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
  }
  asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
  if (rank == 0 && threadIdx.x == 0)
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], [%1, {%3, %4}], [%2], %5;" ::"r"(shared_address(smem)),
        "l"(reinterpret_cast<unsigned long long>(&map)), "r"(barrier), "r"(0), "r"(0), "h"((unsigned short)3)
        : "memory");
  int done = 0;
  for (int i = 0; i < 20000 && !done; ++i)
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0; selp.b32 %0, 1, 0, p; }"
                 : "=r"(done)
                 : "r"(barrier)
                 : "memory");
  asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
}

__global__ void count_stores(const __grid_constant__ CUtensorMap map, CountedCopies what, int reduces) {
  extern __shared__ __align__(1024) unsigned char smem[];
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (threadIdx.x < what.lanes) {
    for (int i = 0; i < what.copies; ++i) {
      const auto m = reinterpret_cast<unsigned long long>(&map);
      const int x = what.at.c[0] + i * what.step.c[0], y = what.at.c[1] + i * what.step.c[1];
      if (reduces)
        asm volatile(
            "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%0, {%1, %2}], [%3];" ::
                "l"(m),
            "r"(x), "r"(y), "r"(shared_address(smem))
            : "memory");
      else
        asm volatile(
            "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(m),
            "r"(x), "r"(y), "r"(shared_address(smem))
            : "memory");
    }
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  }
}

__global__ void count_bulk(const std::uint8_t *from, unsigned bytes, int stores) {
  extern __shared__ __align__(1024) unsigned char smem[];
  __shared__ std::uint64_t mbarrier;
  const unsigned barrier = shared_address(&mbarrier);
  if (threadIdx.x == 0)
    asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(barrier));
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (stores) {
    if (threadIdx.x == 0) {
      asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(from),
                   "r"(shared_address(smem)), "r"(bytes)
                   : "memory");
      asm volatile("cp.async.bulk.commit_group;" ::: "memory");
      asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
    return;
  }
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
            shared_address(smem)),
        "l"(from), "r"(bytes), "r"(barrier)
        : "memory");
  }
  int done = 0;
  for (int i = 0; i < 20000 && !done; ++i)
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0; selp.b32 %0, 1, 0, p; }"
                 : "=r"(done)
                 : "r"(barrier)
                 : "memory");
}

/// kind 0: nothing but the init; 1: 32 arrivals of one instruction; 2: four such instructions of one lane; 3:
/// four waits that succeed; 4: four expect_tx and complete_tx of one lane; 5: four arrivals whose state is
/// used.
__global__ void count_mbarriers(int kind, unsigned *out) {
  __shared__ std::uint64_t mbarrier;
  const unsigned barrier = shared_address(&mbarrier);
  if (threadIdx.x == 0)
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(kind == 3 ? 1 : 1000));
  __syncthreads();
  unsigned result = 0;
  if (kind == 1)
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(barrier) : "memory");
  if (kind == 2 && threadIdx.x == 0)
    for (int i = 0; i < 4; ++i)
      asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(barrier) : "memory");
  if (kind == 3) {
    if (threadIdx.x == 0)
      asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(barrier) : "memory");
    __syncwarp();
    for (int i = 0; i < 4; ++i) {
      unsigned done;
      asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0; selp.b32 %0, 1, 0, p; }"
                   : "=r"(done)
                   : "r"(barrier)
                   : "memory");
      result += done;
    }
  }
  if (kind == 4 && threadIdx.x == 0)
    for (int i = 0; i < 4; ++i) {
      asm volatile("mbarrier.expect_tx.relaxed.cta.shared.b64 [%0], 64;" ::"r"(barrier) : "memory");
      asm volatile("mbarrier.complete_tx.relaxed.cta.shared.b64 [%0], 64;" ::"r"(barrier) : "memory");
    }
  if (kind == 5)
    for (int i = 0; i < 4; ++i) {
      unsigned long long state;
      asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(state) : "r"(barrier) : "memory");
      result += unsigned(state);
    }
  out[threadIdx.x] = result;
}

template <int N> void count_shape(const void *image, const unsigned *fragments, float *out) {
  const unsigned long long a = descriptor(0, 16, 1024, 0, 1), b = descriptor(16384, 16, 1024, 0, 1);
  if (labelled("wgmma n=%d a=shared layout=k128", N))
    launch_product<N, false, 0, 0>(image, a, b, fragments, out);
  if (labelled("wgmma n=%d a=registers layout=k128", N))
    launch_product<N, true, 0, 0>(image, a, b, fragments, out);
}

template <int N> void count_layouts(const void *image, const unsigned *fragments, float *out) {
  constexpr const char *kNames[] = {"none", "128", "64", "32"};
  constexpr unsigned kSpans[] = {16, 128, 64, 32};
  for (unsigned mode = 0; mode < 4; ++mode) {
    const unsigned span = kSpans[mode];
    const unsigned long long k_a =
        mode ? descriptor(0, 16, 8 * span, 0, mode) : descriptor(0, 128, 256, 0, 0);
    const unsigned long long k_b =
        mode ? descriptor(16384, 16, 8 * span, 0, mode) : descriptor(16384, 128, 256, 0, 0);
    const unsigned long long m_a =
        mode ? descriptor(0, 16 * span, 8 * span, 0, mode) : descriptor(0, 1024, 128, 0, 0);
    const unsigned long long m_b =
        mode ? descriptor(16384, 16 * span, 8 * span, 0, mode) : descriptor(16384, 4096, 128, 0, 0);
    if (labelled("wgmma n=%d a=shared layout=kk%s", N, kNames[mode]))
      launch_product<N, false, 0, 0>(image, k_a, k_b, fragments, out);
    if (labelled("wgmma n=%d a=shared layout=km%s", N, kNames[mode]))
      launch_product<N, false, 0, 1>(image, k_a, m_b, fragments, out);
    if (labelled("wgmma n=%d a=shared layout=mk%s", N, kNames[mode]))
      launch_product<N, false, 1, 0>(image, m_a, k_b, fragments, out);
    if (labelled("wgmma n=%d a=shared layout=mm%s", N, kNames[mode]))
      launch_product<N, false, 1, 1>(image, m_a, m_b, fragments, out);
    if (labelled("wgmma n=%d a=registers layout=m%s", N, kNames[mode]))
      launch_product<N, true, 0, 1>(image, 0, m_b, fragments, out);
  }
}

void count_all() {
  const __half *image = upload(numbered_image(false));
  const unsigned *fragments = upload(unit_fragments());
  float *out;
  CHECK(cudaMalloc(&out, kThreads * 128 * sizeof(float)));
  count_shape<8>(image, fragments, out);
  count_shape<16>(image, fragments, out);
  count_shape<24>(image, fragments, out);
  count_shape<32>(image, fragments, out);
  count_shape<64>(image, fragments, out);
  count_shape<96>(image, fragments, out);
  count_shape<128>(image, fragments, out);
  count_shape<160>(image, fragments, out);
  count_shape<192>(image, fragments, out);
  count_shape<256>(image, fragments, out);
  count_layouts<8>(image, fragments, out);
  count_layouts<64>(image, fragments, out);
  count_layouts<256>(image, fragments, out);
  if (labelled("wgmma n=64 a=shared layout=k128 repeats=4"))
    launch_product<64, false, 0, 0>(image, descriptor(0, 16, 1024, 0, 1), descriptor(16384, 16, 1024, 0, 1),
                                    fragments, out, 4);
  Random random{4};
  for (int i = 0; i < 24; ++i) {
    const unsigned mode = random(4), start = 16 * random(512), leading = 16 * (1 + random(64)),
                   stride = 16 * (1 + random(64));
    if (labelled("wgmma n=64 a=registers layout=random mode=%u start=%u leading=%u stride=%u", mode, start,
                 leading, stride))
      launch_product<64, true, 0, 0>(image, 0, descriptor(start, leading, stride, 0, mode), fragments, out);
    if (labelled("wgmma n=64 a=shared layout=random mode=%u start=%u leading=%u stride=%u", mode, start,
                 leading, stride))
      launch_product<64, false, 0, 0>(image, descriptor(start, leading, stride, 0, mode),
                                      descriptor(16384, 16, 1024, 0, 1), fragments, out);
  }
  CHECK(cudaDeviceSynchronize());

  const Encode encode = find_encode();
  std::uint8_t *tensor;
  constexpr cuuint64_t kWidth = 4096, kHeight = 1024;
  CHECK(cudaMalloc(&tensor, kWidth * kHeight * 2));
  CHECK(cudaMemset(tensor, 0, kWidth * kHeight * 2));
  constexpr int kSharedBytes = 64 * 1024;
  for (const void *kernel : {(const void *)count_loads, (const void *)count_stores,
                             (const void *)count_multicast, (const void *)count_bulk})
    CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes));
  struct Case {
    unsigned width, height, swizzle, l2;
    int x, y, copies, lanes;
  };
  const Case cases[] = {
      {64, 64, 3, 0, 0, 0, 1, 1},    {64, 128, 3, 0, 0, 0, 1, 1},  {64, 256, 3, 0, 0, 0, 1, 1},
      {64, 8, 3, 0, 0, 0, 1, 1},     {64, 1, 3, 0, 0, 0, 1, 1},    {32, 64, 2, 0, 0, 0, 1, 1},
      {16, 64, 1, 0, 0, 0, 1, 1},    {8, 64, 0, 0, 0, 0, 1, 1},    {64, 64, 0, 0, 0, 0, 1, 1},
      {128, 64, 0, 0, 0, 0, 1, 1},   {256, 64, 0, 0, 0, 0, 1, 1},  {24, 64, 0, 0, 0, 0, 1, 1},
      {64, 64, 3, 0, 8, 0, 1, 1},    {40, 64, 0, 0, 0, 0, 1, 1},   {64, 64, 3, 0, 16, 0, 1, 1},
      {16, 64, 1, 0, 8, 0, 1, 1},    {8, 64, 0, 0, 8, 0, 1, 1},    {56, 64, 0, 0, 8, 0, 1, 1},
      {64, 64, 3, 0, -32, 0, 1, 1},  {64, 64, 3, 0, 0, -32, 1, 1}, {64, 64, 3, 0, 0, -64, 1, 1},
      {64, 64, 3, 0, 4064, 0, 1, 1}, {64, 64, 3, 0, -8, 0, 1, 1},  {64, 64, 3, 1, 0, 0, 1, 1},
      {64, 64, 3, 2, 0, 0, 1, 1},    {64, 64, 3, 3, 0, 0, 1, 1},   {16, 64, 1, 2, 0, 0, 1, 1},
      {16, 64, 1, 3, 0, 0, 1, 1},    {64, 64, 3, 0, 0, 0, 4, 1},   {64, 64, 3, 0, 0, 0, 1, 32},
      {64, 32, 3, 0, 0, 0, 1, 2},
  };
  for (const Case &c : cases) {
    alignas(64) CUtensorMap map;
    const cuuint64_t size[2] = {kWidth, kHeight}, stride[1] = {kWidth * 2};
    const cuuint32_t box[2] = {c.width, c.height}, step[2] = {1, 1};
    if (encode(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, tensor, size, stride, box, step,
               CU_TENSOR_MAP_INTERLEAVE_NONE, CUtensorMapSwizzle(c.swizzle), CUtensorMapL2promotion(c.l2),
               CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS) {
      std::fprintf(stderr, "a tensor map is refused\n");
      std::exit(1);
    }
    const unsigned bytes = c.width * c.height * 2;
    CountedCopies what = {{{c.x, c.y}}, {{0, int(c.height)}},      2, c.copies,
                          c.lanes,      bytes * c.copies * c.lanes};
    char label[200];
    std::snprintf(label, sizeof label, "box=%ux%u swizzle=%u l2=%u x=%d y=%d copies=%d lanes=%d", c.width,
                  c.height, c.swizzle, c.l2, c.x, c.y, c.copies, c.lanes);
    if (labelled("load %s", label))
      count_loads<<<1, 32, kSharedBytes>>>(map, what);
    if (c.x >= 0) { // the hardware refuses to store to the left of the tensor
      if (labelled("store %s", label))
        count_stores<<<1, 32, kSharedBytes>>>(map, what, 0);
      if (labelled("reduce %s", label))
        count_stores<<<1, 32, kSharedBytes>>>(map, what, 1);
    }
    if (c.copies == 1 && c.lanes == 1 && c.x == 0 && c.y == 0) {
      if (labelled("multicast %s", label))
        count_multicast<<<2, 32, kSharedBytes>>>(map, bytes);
    }
    CHECK(cudaDeviceSynchronize());
  }
  for (const int stores : {0, 1})
    for (const unsigned bytes : {16u, 32u, 48u, 128u, 256u, 1024u, 4096u, 16384u})
      for (const int offset : {0, 16, 64}) {
        if (labelled("bulk stores=%d bytes=%u offset=%d", stores, bytes, offset))
          count_bulk<<<1, 32, kSharedBytes>>>(tensor + offset, bytes, stores);
      }
  for (int kind = 0; kind < 6; ++kind) {
    if (labelled("mbarrier kind=%d", kind))
      count_mbarriers<<<1, 32>>>(kind, reinterpret_cast<unsigned *>(tensor));
  }
  CHECK(cudaDeviceSynchronize());
}

} // namespace

int main(int argc, char **argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  const int cases = argc > 2 ? std::atoi(argv[2]) : 0;
  if (what == "count") {
    if (argc > 3) {
      first_launch = cases;
      last_launch = std::atoi(argv[3]);
    }
    count_all();
    return 0;
  }
  std::FILE *const file = argc > 3 ? std::fopen(argv[3], "wb") : nullptr;
  if (!file) {
    std::fprintf(
        stderr,
        "usage: hopper_probe count [FIRST LAST] | places CASES FILE | boxes CASES FILE | sums CASES FILE\n");
    return 2;
  }
  if (what == "places")
    probe_places(cases, file);
  else if (what == "boxes")
    probe_boxes(cases, argc > 4 ? std::atoi(argv[4]) : 0, file);
  else
    probe_sums(cases, file);
  return std::fclose(file);
}
