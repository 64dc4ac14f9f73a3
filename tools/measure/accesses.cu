// One warp, one kind of access to shared memory, for a profiler to count: `accesses NAME` runs the case of
// this name, `accesses` all of them in order, each a launch of one kernel, and `accesses --list` prints their
// names.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <functional>
#include <mma.h>
#include <string>
#include <vector>

using namespace nvcuda;

namespace {

constexpr int kSharedBytes = 32768;

__device__ void fill(char *smem) {
  for (int i = threadIdx.x; i < kSharedBytes / 4; i += 32)
    reinterpret_cast<int *>(smem)[i] = i;
  __syncwarp();
}

// --- loads of which some bytes count -----------------------------------------------------------------------

/// Three of the four floats from 4 * index[lane] on: one load of 16 bytes.
__global__ void three_of_four(const int *index, float *out) {
  extern __shared__ __align__(128) char smem[];
  fill(smem);
  const float *const p = reinterpret_cast<float *>(smem) + 4 * index[threadIdx.x];
  out[threadIdx.x] = p[0] + p[1] * p[2];
}

// --- loads and stores that ptxas merges --------------------------------------------------------------------

__global__ void four_scalars(const int *index, float *out) {
  __shared__ __align__(16) float tile[4096];
  for (int i = threadIdx.x; i < 4096; i += 32)
    tile[i] = float(i);
  __syncwarp();
  const float *const p = tile + 4 * index[threadIdx.x];
  out[threadIdx.x] = ((p[0] * 3 + p[1]) * p[2] + p[3]) * p[0];
}

__global__ void four_stores(const int *index, float *out) {
  __shared__ __align__(16) float tile[4096];
  float *const p = tile + 4 * index[threadIdx.x];
  p[2] = out[3];
  p[0] = out[1];
  p[3] = out[7];
  p[1] = out[9];
  __syncwarp();
  out[threadIdx.x] = tile[threadIdx.x];
}

/// ptxas unrolls, and merges over the rounds.
__global__ void scalars_in_a_loop(const int *index, float *out) {
  __shared__ __align__(16) float tile[4096];
  for (int i = threadIdx.x; i < 4096; i += 32)
    tile[i] = float(i);
  __syncwarp();
  float sum = 0;
  for (int k = 0; k < 64; ++k)
    for (int r = 0; r < 4; ++r)
      sum += tile[(index[threadIdx.x] & 15) * 64 + 16 * r * 64 / 64 + k] * out[r];
  out[threadIdx.x] = sum;
}

// --- atomics -----------------------------------------------------------------------------------------------

__global__ void increment(const int *index, int *out) {
  __shared__ int bins[8192];
  for (int i = threadIdx.x; i < 8192; i += 32)
    bins[i] = 0;
  __syncwarp();
  atomicAdd(&bins[index[threadIdx.x]], 1);
  __syncwarp();
  out[threadIdx.x] = bins[threadIdx.x];
}

// Those that are generic do not know that the address is in shared memory.
enum class Atomic { add, add_used, inc, max, or_, exch, min_used, generic_add, generic_max, generic_cas };

template <Atomic kWhat> __global__ void atomic(const int *index, int *out) {
  __shared__ int bins[8192];
  for (int i = threadIdx.x; i < 8192; i += 32)
    bins[i] = i;
  __syncwarp();
  int *const bin = &bins[index[threadIdx.x]];
  const int value = out[threadIdx.x];
  int old = 0;
  if (kWhat == Atomic::add)
    atomicAdd(bin, value);
  else if (kWhat == Atomic::add_used)
    old = atomicAdd(bin, value);
  else if (kWhat == Atomic::inc)
    atomicInc(reinterpret_cast<unsigned *>(bin), 77u);
  else if (kWhat == Atomic::max)
    atomicMax(bin, value);
  else if (kWhat == Atomic::or_)
    atomicOr(bin, value);
  else if (kWhat == Atomic::exch)
    atomicExch(bin, value);
  else if (kWhat == Atomic::min_used)
    old = atomicMin(bin, value);
  else if (kWhat == Atomic::generic_add)
    asm volatile("atom.relaxed.cta.add.s32 %0, [%1], %2;" : "=r"(old) : "l"(bin), "r"(value) : "memory");
  else if (kWhat == Atomic::generic_max)
    asm volatile("red.relaxed.cta.max.s32 [%0], %1;" ::"l"(bin), "r"(value) : "memory");
  else
    asm volatile("atom.relaxed.cta.cas.b32 %0, [%1], %2, %3;"
                 : "=r"(old)
                 : "l"(bin), "r"(value), "r"(value + 1)
                 : "memory");
  __syncwarp();
  out[threadIdx.x] = bins[threadIdx.x] + old;
}

// --- wmma --------------------------------------------------------------------------------------------------

template <typename T> __device__ T *shared_matrix() {
  extern __shared__ __align__(128) char smem[];
  return reinterpret_cast<T *>(smem);
}

template <typename Fragment, typename T> __global__ void load_input(T *out, int pitch) {
  fill(reinterpret_cast<char *>(shared_matrix<T>()));
  Fragment fragment;
  wmma::load_matrix_sync(fragment, shared_matrix<T>(), pitch);
  for (int i = 0; i < fragment.num_elements; ++i)
    out[i * 32 + threadIdx.x] = fragment.x[i];
}

template <typename Fragment, typename T>
__global__ void load_accumulator(T *out, int pitch, wmma::layout_t layout) {
  fill(reinterpret_cast<char *>(shared_matrix<T>()));
  Fragment fragment;
  if (layout == wmma::mem_row_major)
    wmma::load_matrix_sync(fragment, shared_matrix<T>(), pitch, wmma::mem_row_major);
  else
    wmma::load_matrix_sync(fragment, shared_matrix<T>(), pitch, wmma::mem_col_major);
  for (int i = 0; i < fragment.num_elements; ++i)
    out[i * 32 + threadIdx.x] = fragment.x[i];
}

template <typename Fragment, typename T>
__global__ void store_accumulator(T *out, int pitch, wmma::layout_t layout) {
  Fragment fragment;
  for (int i = 0; i < fragment.num_elements; ++i)
    fragment.x[i] = out[i * 32 + threadIdx.x];
  if (layout == wmma::mem_row_major)
    wmma::store_matrix_sync(shared_matrix<T>(), fragment, pitch, wmma::mem_row_major);
  else
    wmma::store_matrix_sync(shared_matrix<T>(), fragment, pitch, wmma::mem_col_major);
  __syncwarp();
  out[threadIdx.x] = shared_matrix<T>()[threadIdx.x];
}

// --- copies ------------------------------------------------------------------------------------------------

template <int kBytes> __global__ void copy(const int *to, const int *from, char *data) {
  extern __shared__ __align__(128) char smem[];
  const auto address = uint32_t(__cvta_generic_to_shared(smem + kBytes * to[threadIdx.x]));
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(address),
               "l"(data + kBytes * from[threadIdx.x]), "n"(kBytes)
               : "memory");
  asm volatile("cp.async.wait_all;" ::: "memory");
}

__global__ void bulk_load(char *data, int bytes) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) char smem[];
  __shared__ uint64_t mbarrier;
  const auto barrier = uint32_t(__cvta_generic_to_shared(&mbarrier)),
             address = uint32_t(__cvta_generic_to_shared(smem));
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(barrier) : "memory");
    asm volatile("fence.proxy.async;" ::: "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
            address),
        "l"(data), "r"(bytes), "r"(barrier)
        : "memory");
  }
  __syncwarp();
  asm volatile("{\n.reg .pred done;\nWAIT:\nmbarrier.try_wait.parity.shared.b64 done, [%0], 0;\n@!done bra "
               "WAIT;\n}" ::"r"(barrier)
               : "memory");
#endif
}

__global__ void bulk_store(char *data, int bytes) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) char smem[];
  fill(smem);
  if (threadIdx.x == 0) {
    asm volatile("fence.proxy.async;" ::: "memory");
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(data),
                 "r"(uint32_t(__cvta_generic_to_shared(smem))), "r"(bytes)
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" ::: "memory");
  }
#endif
}

// --- cases -------------------------------------------------------------------------------------------------

struct Case {
  std::string name;
  std::function<void()> run;
};
std::vector<Case> cases;

template <typename T> T *device_memory(size_t bytes = 1 << 20) {
  void *data;
  cudaMalloc(&data, bytes);
  cudaMemset(data, 0, bytes);
  return static_cast<T *>(data);
}

int *device_indices(const std::vector<int> &index) {
  int *const data = device_memory<int>(index.size() * sizeof(int));
  cudaMemcpy(data, index.data(), index.size() * sizeof(int), cudaMemcpyHostToDevice);
  return data;
}

/// Lane -> index. Random ones are of a generator written out here: the same everywhere.
struct Pattern {
  std::string name;
  std::vector<int> index;
};
std::vector<Pattern> patterns(int most) {
  std::vector<Pattern> all;
  const auto add = [&](const std::string &name, auto f) {
    Pattern pattern{name, {}};
    for (int lane = 0; lane < 32; ++lane)
      pattern.index.push_back(f(lane) % most);
    all.push_back(pattern);
  };
  uint32_t state = 12345;
  const auto random = [&] { return int((state = state * 1664525u + 1013904223u) >> 8); };
  add("contiguous", [](int lane) { return lane; });
  add("same", [](int) { return 5; });
  add("halves", [](int lane) { return lane / 2; });
  add("stride2", [](int lane) { return 2 * lane; });
  add("stride8", [](int lane) { return 8 * lane; });
  add("stride33", [](int lane) { return 33 * lane; });
  add("reversed", [](int lane) { return 31 - lane; });
  for (int i = 0; i < 3; ++i)
    add("random" + std::to_string(i), [&](int) { return random(); });
  add("few", [&](int) { return random() % 7; });
  return all;
}

template <typename Fragment, typename T> void add_input(const std::string &name, std::vector<int> pitches) {
  for (const int pitch : pitches)
    cases.push_back({"wmma.load." + name + " " + std::to_string(pitch),
                     [=] { load_input<Fragment, T><<<1, 32, kSharedBytes>>>(device_memory<T>(), pitch); }});
}

template <typename Fragment, typename T>
void add_accumulator(const std::string &name, std::vector<int> pitches) {
  for (const bool by_rows : {true, false})
    for (const int pitch : pitches) {
      const auto layout = by_rows ? wmma::mem_row_major : wmma::mem_col_major;
      const std::string what = name + (by_rows ? ".row " : ".col ") + std::to_string(pitch);
      cases.push_back({"wmma.load.c." + what, [=] {
                         load_accumulator<Fragment, T>
                             <<<1, 32, kSharedBytes>>>(device_memory<T>(), pitch, layout);
                       }});
      cases.push_back({"wmma.store.d." + what, [=] {
                         store_accumulator<Fragment, T>
                             <<<1, 32, kSharedBytes>>>(device_memory<T>(), pitch, layout);
                       }});
    }
}

template <int kBytes> void add_copies() {
  std::vector<int> in_order;
  for (int lane = 0; lane < 32; ++lane)
    in_order.push_back(lane);
  for (const Pattern &pattern : patterns(1024)) {
    const std::string name = "cp.async." + std::to_string(kBytes);
    const auto launch = [](std::vector<int> to, std::vector<int> from) {
      copy<kBytes><<<1, 32, kSharedBytes>>>(device_indices(to), device_indices(from), device_memory<char>());
    };
    cases.push_back({name + " to " + pattern.name, [=] { launch(pattern.index, in_order); }});
    if (pattern.name == "stride2" || pattern.name == "stride8" || pattern.name == "reversed")
      cases.push_back({name + " from " + pattern.name, [=] { launch(in_order, pattern.index); }});
  }
}

void add_all() {
  using wmma::col_major;
  using wmma::row_major;
  const auto with_pattern = [](const std::string &name, auto *kernel, int most, size_t count) {
    auto all = patterns(most);
    for (size_t i = 0; i < all.size() && i < count; ++i)
      cases.push_back({name + " " + all[i].name, [=] { kernel(device_indices(all[i].index)); }});
  };
  with_pattern(
      "three_of_four",
      +[](int *index) { three_of_four<<<1, 32, kSharedBytes>>>(index, device_memory<float>()); }, 1024, 11);
  with_pattern(
      "four_scalars", +[](int *index) { four_scalars<<<1, 32>>>(index, device_memory<float>()); }, 1024, 6);
  with_pattern(
      "four_stores", +[](int *index) { four_stores<<<1, 32>>>(index, device_memory<float>()); }, 1024, 6);
  with_pattern(
      "scalars_in_a_loop", +[](int *index) { scalars_in_a_loop<<<1, 32>>>(index, device_memory<float>()); },
      1024, 2);
  with_pattern("increment", +[](int *index) { increment<<<1, 32>>>(index, device_memory<int>()); }, 8192, 11);
#define ATOMIC(what)                                                                                         \
  with_pattern(                                                                                              \
      "atomic." #what, +[](int *index) { atomic<Atomic::what><<<1, 32>>>(index, device_memory<int>()); },    \
      8192, 5)
  ATOMIC(add);
  ATOMIC(add_used);
  ATOMIC(inc);
  ATOMIC(max);
  ATOMIC(or_);
  ATOMIC(exch);
  ATOMIC(min_used);
  ATOMIC(generic_add);
  ATOMIC(generic_max);
  ATOMIC(generic_cas);
  using A16 = wmma::fragment<wmma::matrix_a, 16, 16, 16, half, row_major>;
  using A16c = wmma::fragment<wmma::matrix_a, 16, 16, 16, half, col_major>;
  using B8 = wmma::fragment<wmma::matrix_b, 8, 32, 16, half, row_major>;
  using A8 = wmma::fragment<wmma::matrix_a, 16, 16, 16, unsigned char, row_major>;
  using A8c = wmma::fragment<wmma::matrix_a, 16, 16, 16, unsigned char, col_major>;
  using ABf = wmma::fragment<wmma::matrix_a, 16, 16, 16, __nv_bfloat16, row_major>;
  using BBf = wmma::fragment<wmma::matrix_b, 16, 16, 16, __nv_bfloat16, row_major>;
  using ATf = wmma::fragment<wmma::matrix_a, 16, 16, 8, wmma::precision::tf32, row_major>;
  using BTf = wmma::fragment<wmma::matrix_b, 16, 16, 8, wmma::precision::tf32, row_major>;
  using AD = wmma::fragment<wmma::matrix_a, 8, 8, 4, double, row_major>;
  using ADc = wmma::fragment<wmma::matrix_a, 8, 8, 4, double, col_major>;
  add_input<A16, half>("a.f16.row", {16, 24, 64});
  add_input<A16c, half>("a.f16.col", {16, 40});
  add_input<B8, half>("b.f16.m8n32.row", {32, 40});
  add_input<A8, unsigned char>("a.u8.row", {16, 48});
  add_input<A8c, unsigned char>("a.u8.col", {16, 48});
  add_input<ABf, __nv_bfloat16>("a.bf16.row", {16, 24});
  add_input<BBf, __nv_bfloat16>("b.bf16.row", {16, 24});
  add_input<ATf, float>("a.tf32.row", {8, 12, 32});
  add_input<BTf, float>("b.tf32.row", {16, 20, 32});
  add_input<AD, double>("a.f64.row", {4, 6, 16});
  add_input<ADc, double>("a.f64.col", {8, 10});
  add_accumulator<wmma::fragment<wmma::accumulator, 16, 16, 16, float>, float>("f32", {16, 20});
  add_accumulator<wmma::fragment<wmma::accumulator, 16, 16, 16, half>, half>("f16", {16, 24});
  add_accumulator<wmma::fragment<wmma::accumulator, 8, 32, 16, float>, float>("f32.m8n32", {32});
  add_accumulator<wmma::fragment<wmma::accumulator, 8, 8, 4, double>, double>("f64", {8, 10});
  add_copies<4>();
  add_copies<8>();
  for (const int bytes : {16, 128, 1024, 4096}) {
    cases.push_back({"bulk.load " + std::to_string(bytes),
                     [=] { bulk_load<<<1, 32, kSharedBytes>>>(device_memory<char>(), bytes); }});
    cases.push_back({"bulk.store " + std::to_string(bytes),
                     [=] { bulk_store<<<1, 32, kSharedBytes>>>(device_memory<char>(), bytes); }});
  }
}

} // namespace

int main(int count, char **words) {
  add_all();
  const std::string wanted = count > 1 ? words[1] : "";
  for (const Case &one : cases) {
    if (wanted == "--list")
      puts(one.name.c_str());
    else if (wanted.empty() || wanted == one.name)
      one.run();
  }
  const cudaError_t error = cudaDeviceSynchronize();
  if (error != cudaSuccess)
    fprintf(stderr, "%s\n", cudaGetErrorString(error));
  return error != cudaSuccess;
}
