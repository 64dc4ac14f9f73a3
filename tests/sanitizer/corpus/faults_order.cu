// Planted faults of order: races whose values are alike, fences, masks, what several streams or the host and
// a kernel do at once. Marked as in faults.cu.
// clang-format off: a fault's mark stands on the line of the fault, however long
#include "corpus.h"

#include <cstdint>
#include <cstdlib>
#include <vector>

namespace {

// --- races between values that are alike -------------------------------------------------------------------

__global__ void sum_of_zeros(const float *in, float *out) {
  __shared__ float partial[128];
  partial[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  for (int n = 64; n > 0; n /= 2)
    if (int(threadIdx.x) < n)
      partial[threadIdx.x] += partial[threadIdx.x + n]; // fault(sum_of_zeros): race of equal values
  if (threadIdx.x == 0)
    *out = partial[0];
}
CASE(sum_of_zeros) {
  Device<float> in(128), out(1);
  sum_of_zeros<<<1, 128>>>(in, out);
}

__global__ void tiles_alike(const int *in, int *out, int tiles) {
  __shared__ int tile[64];
  int sum = 0;
  for (int t = 0; t < tiles; ++t) {
    tile[threadIdx.x] = in[t * 64 + threadIdx.x]; // fault(tiles_alike): race of equal values
    __syncthreads();
    for (int i = 0; i < 64; ++i)
      sum += tile[i];
  }
  out[threadIdx.x] = sum;
}
CASE(tiles_alike) {
  Device<int> in(64 * 4), out(64);
  tiles_alike<<<1, 64>>>(in, out, 4);
}

__global__ void transpose_of_ones(const float *in, float *out) {
  __shared__ float tile[16][17];
  tile[threadIdx.y][threadIdx.x] = in[threadIdx.y * 16 + threadIdx.x];
  __syncthreads();
  out[threadIdx.y * 16 + threadIdx.x] = tile[threadIdx.x][threadIdx.y];
  tile[threadIdx.y][threadIdx.x] = in[256 + threadIdx.y * 16 + threadIdx.x]; // fault(transpose_of_ones): race of equal values
  __syncthreads();
  out[256 + threadIdx.y * 16 + threadIdx.x] = tile[threadIdx.x][threadIdx.y];
}
CASE(transpose_of_ones) {
  Device<float> in(512), out(512);
  const std::vector<float> ones(512, 1.f);
  cudaMemcpy(in.data, ones.data(), in.bytes, cudaMemcpyHostToDevice);
  transpose_of_ones<<<1, dim3(16, 16)>>>(in, out);
}

__global__ void halo_of_zeros(float *data, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i > 0 && i < n - 1)
    data[i] = 0.5f * (data[i - 1] + data[i + 1]); // fault(halo_of_zeros): race of equal values
}
CASE(halo_of_zeros) {
  Device<float> data(512);
  halo_of_zeros<<<4, 128>>>(data, 512);
}

__global__ void lanes_of_zeros(int *out) {
  __shared__ int s[32];
  s[threadIdx.x] = 0;
  __syncwarp();
  s[threadIdx.x] += s[(threadIdx.x + 16) % 32]; // fault(lanes_of_zeros): race of equal values
  out[threadIdx.x] = s[threadIdx.x];
}
CASE(lanes_of_zeros) {
  Device<int> out(32);
  lanes_of_zeros<<<1, 32>>>(out);
}

// --- fences and flags --------------------------------------------------------------------------------------

__device__ int payload[64];
__device__ volatile int ready;
__global__ void no_fence_of_writer(int *out) {
  if (blockIdx.x == 0) {
    payload[threadIdx.x] = int(threadIdx.x) + 1;
    __syncthreads();
    if (threadIdx.x == 0)
      ready = 1;
  } else {
    if (threadIdx.x == 0)
      while (!ready) {
      }
    __syncthreads();
    __threadfence();
    out[threadIdx.x] = payload[threadIdx.x]; // fault(no_fence_of_writer): race between blocks
  }
}
CASE(no_fence_of_writer) {
  Device<int> out(64);
  no_fence_of_writer<<<2, 64>>>(out);
}

__device__ int message;
__device__ int arrived;
__global__ void no_fence_of_reader(int *out) {
  if (blockIdx.x == 0) {
    message = 42;
    __threadfence();
    atomicExch(&arrived, 1);
  } else {
    while (atomicAdd(&arrived, 0) == 0) {
    }
    out[0] = message; // fault(no_fence_of_reader): race between blocks
  }
}
CASE(no_fence_of_reader) {
  Device<int> out(1);
  no_fence_of_reader<<<2, 1>>>(out);
}

__device__ int lock, balance;
__global__ void lock_without_fence(int *out) {
  if (threadIdx.x == 0) {
    while (atomicCAS(&lock, 0, 1) != 0) {
    }
    balance = balance + 1; // fault(lock_without_fence): race between blocks
    atomicExch(&lock, 0);
  }
}
CASE(lock_without_fence) {
  Device<int> out(1);
  lock_without_fence<<<8, 32>>>(out);
}

__global__ void last_block_without_fence(const int *in, int *partial, unsigned *count, int *out) {
  __shared__ bool is_last;
  if (threadIdx.x == 0) {
    partial[blockIdx.x] = in[blockIdx.x] + 1;
    is_last = atomicInc(count, gridDim.x) == gridDim.x - 1;
  }
  __syncthreads();
  if (is_last && threadIdx.x < gridDim.x)
    out[threadIdx.x] = partial[threadIdx.x]; // fault(last_block_without_fence): race between blocks
}
CASE(last_block_without_fence) {
  Device<int> in(8), partial(8), out(8);
  Device<unsigned> count(1);
  last_block_without_fence<<<8, 32>>>(in, partial, count, out);
}

// --- blocks that wait for blocks ---------------------------------------------------------------------------

__device__ unsigned barrier_count;
__global__ void grid_barrier_of_too_many(int *out) {
  extern __shared__ char much[]; // so much that a multiprocessor holds one block
  much[threadIdx.x] = char(blockIdx.x);
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    atomicAdd(&barrier_count, 1);
    while (atomicAdd(&barrier_count, 0) < gridDim.x) { // fault(grid_barrier_of_too_many): barrier
    }
    __threadfence();
  }
  __syncthreads();
  out[blockIdx.x] = much[0];
}
CASE(grid_barrier_of_too_many) {
  Device<int> out(140);
  cudaFuncSetAttribute(grid_barrier_of_too_many, cudaFuncAttributeMaxDynamicSharedMemorySize, 150000);
  grid_barrier_of_too_many<<<140, 64, 150000>>>(out);
}

__device__ int turn;
__global__ void earlier_waits_for_later(int *out) {
  extern __shared__ char much[];
  much[0] = 1;
  const int order = int(gridDim.x - 1 - blockIdx.x);
  while (atomicAdd(&turn, 0) != order) { // fault(earlier_waits_for_later): barrier
  }
  out[blockIdx.x] = order + much[0];
  __threadfence();
  atomicAdd(&turn, 1);
}
CASE(earlier_waits_for_later) {
  Device<int> out(140);
  cudaFuncSetAttribute(earlier_waits_for_later, cudaFuncAttributeMaxDynamicSharedMemorySize, 150000);
  earlier_waits_for_later<<<140, 1, 150000>>>(out);
}

// --- masks -------------------------------------------------------------------------------------------------

__global__ void down_from_outside(const int *in, int *out) {
  int sum = in[threadIdx.x];
  if (threadIdx.x < 16)
    for (int n = 16; n > 0; n /= 2)
      sum += __shfl_down_sync(0xffff, sum, n); // fault(down_from_outside): mask
  if (threadIdx.x == 0)
    *out = sum;
}
CASE(down_from_outside) {
  Device<int> in(32), out(1);
  down_from_outside<<<1, 32>>>(in, out);
}

__global__ void caller_not_in_mask(const int *in, int *out) {
  const int sum = __shfl_xor_sync(0x0000ffff, in[threadIdx.x], 1); // fault(caller_not_in_mask): mask
  out[threadIdx.x] = sum;
}
CASE(caller_not_in_mask) {
  Device<int> in(32), out(32);
  caller_not_in_mask<<<1, 32>>>(in, out);
}

__global__ void vote_not_in_mask(const int *in, unsigned *out) {
  out[threadIdx.x] = __ballot_sync(0x00ffffff, in[threadIdx.x] == 0); // fault(vote_not_in_mask): mask
}
CASE(vote_not_in_mask) {
  Device<int> in(32);
  Device<unsigned> out(32);
  vote_not_in_mask<<<1, 32>>>(in, out);
}

__global__ void broadcast_from_outside(const int *in, int *out) {
  if (threadIdx.x >= 8)
    out[threadIdx.x] = __shfl_sync(0xffffff00, in[threadIdx.x], 0); // fault(broadcast_from_outside): mask
}
CASE(broadcast_from_outside) {
  Device<int> in(32), out(32);
  broadcast_from_outside<<<1, 32>>>(in, out);
}

// --- the host and the device at once -----------------------------------------------------------------------

__global__ void fill_slowly(int *data, int value, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x)
    data[i] = value;
}

CASE(pinned_read_too_early) {
  int *pinned;
  cudaMallocHost(&pinned, 64 * sizeof(int));
  Device<int> data(64);
  cudaStream_t stream;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  fill_slowly<<<1, 32, 0, stream>>>(data, 7, 64);
  cudaMemcpyAsync(pinned, data, data.bytes, cudaMemcpyDeviceToHost, stream);
  const int first = pinned[0]; // fault(pinned_read_too_early): race with the host
  cudaStreamSynchronize(stream);
  printf("%d\n", first);
  cudaStreamDestroy(stream);
  cudaFreeHost(pinned);
}

CASE(pinned_written_too_early) {
  int *pinned;
  cudaMallocHost(&pinned, 64 * sizeof(int));
  for (int i = 0; i < 64; ++i)
    pinned[i] = i;
  Device<int> data(64);
  cudaStream_t stream;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  cudaMemcpyAsync(data, pinned, data.bytes, cudaMemcpyHostToDevice, stream);
  pinned[3] = 0; // fault(pinned_written_too_early): race with the host
  cudaStreamSynchronize(stream);
  cudaStreamDestroy(stream);
  cudaFreeHost(pinned);
}

CASE(managed_read_too_early) {
  int *data;
  cudaMallocManaged(&data, 64 * sizeof(int));
  fill_slowly<<<1, 32>>>(data, 7, 64);
  const int first = data[0]; // fault(managed_read_too_early): race with the host
  cudaDeviceSynchronize();
  printf("%d\n", first);
  cudaFree(data);
}

CASE(mapped_read_too_early) {
  int *pinned, *mapped;
  cudaHostAlloc(&pinned, 64 * sizeof(int), cudaHostAllocMapped);
  cudaHostGetDevicePointer(&mapped, pinned, 0);
  fill_slowly<<<1, 32>>>(mapped, 7, 64);
  const int first = pinned[0]; // fault(mapped_read_too_early): race with the host
  cudaDeviceSynchronize();
  printf("%d\n", first);
  cudaFreeHost(pinned);
}

CASE(answer_of_a_query_ignored) {
  int *pinned, *mapped;
  cudaHostAlloc(&pinned, 64 * sizeof(int), cudaHostAllocMapped);
  cudaHostGetDevicePointer(&mapped, pinned, 0);
  cudaEvent_t done;
  cudaEventCreate(&done);
  fill_slowly<<<1, 32>>>(mapped, 7, 64);
  cudaEventRecord(done);
  cudaEventQuery(done);
  const int first = pinned[0]; // fault(answer_of_a_query_ignored): race with the host
  cudaDeviceSynchronize();
  printf("%d\n", first);
  cudaEventDestroy(done);
  cudaFreeHost(pinned);
}

CASE(registered_written_too_early) {
  constexpr size_t kBytes = 1 << 16;
  Device<int> data(kBytes / sizeof(int));
  int *const host = static_cast<int *>(aligned_alloc(4096, kBytes));
  memset(host, 0, kBytes);
  cudaHostRegister(host, kBytes, cudaHostRegisterDefault);
  cudaStream_t stream;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  cudaMemcpyAsync(data, host, kBytes, cudaMemcpyHostToDevice, stream);
  host[3] = 1; // fault(registered_written_too_early): race with the host
  cudaStreamSynchronize(stream);
  cudaStreamDestroy(stream);
  cudaHostUnregister(host);
  free(host);
}

CASE(two_streams_write) {
  Device<int> data(64);
  cudaStream_t a, b;
  cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking);
  cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking);
  cudaDeviceSynchronize();
  fill_slowly<<<1, 32, 0, a>>>(data, 1, 64);
  fill_slowly<<<1, 32, 0, b>>>(data, 2, 64); // fault(two_streams_write): race between streams
  cudaDeviceSynchronize();
  cudaStreamDestroy(a);
  cudaStreamDestroy(b);
}

__global__ void read_all(const int *data, int *out, int n) {
  int sum = 0;
  for (int i = 0; i < n; ++i)
    sum += data[i];
  *out = sum;
}

CASE(reader_on_another_stream) {
  Device<int> data(64), out(1);
  cudaStream_t a, b;
  cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking);
  cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking);
  cudaDeviceSynchronize();
  fill_slowly<<<1, 32, 0, a>>>(data, 1, 64);
  read_all<<<1, 1, 0, b>>>(data, out, 64); // fault(reader_on_another_stream): race between streams
  cudaDeviceSynchronize();
  cudaStreamDestroy(a);
  cudaStreamDestroy(b);
}

CASE(copy_beside_kernel) {
  Device<int> data(64);
  std::vector<int> host(64, 5);
  int *pinned;
  cudaMallocHost(&pinned, 64 * sizeof(int));
  cudaStream_t a, b;
  cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking);
  cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking);
  cudaDeviceSynchronize();
  fill_slowly<<<1, 32, 0, a>>>(data, 1, 64);
  cudaMemcpyAsync(pinned, data, data.bytes, cudaMemcpyDeviceToHost, b); // fault(copy_beside_kernel): race between streams
  cudaDeviceSynchronize();
  cudaStreamDestroy(a);
  cudaStreamDestroy(b);
  cudaFreeHost(pinned);
}

CASE(event_recorded_too_early) {
  Device<int> data(64), out(1);
  cudaStream_t a, b;
  cudaEvent_t event;
  cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking);
  cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking);
  cudaEventCreate(&event);
  cudaDeviceSynchronize();
  cudaEventRecord(event, a); // before the kernel, not after it
  fill_slowly<<<1, 32, 0, a>>>(data, 1, 64);
  cudaStreamWaitEvent(b, event, 0);
  read_all<<<1, 1, 0, b>>>(data, out, 64); // fault(event_recorded_too_early): race between streams
  cudaDeviceSynchronize();
  cudaEventDestroy(event);
  cudaStreamDestroy(a);
  cudaStreamDestroy(b);
}

CASE(freed_on_another_stream) {
  int *data;
  cudaStream_t a, b;
  cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking);
  cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking);
  cudaMallocAsync(&data, 64 * sizeof(int), a);
  fill_slowly<<<1, 32, 0, a>>>(data, 1, 64);
  cudaFreeAsync(data, b); // fault(freed_on_another_stream): race between streams
  cudaDeviceSynchronize();
  cudaStreamDestroy(a);
  cudaStreamDestroy(b);
}

CASE(allocated_on_another_stream) {
  int *data;
  cudaStream_t a, b;
  cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking);
  cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking);
  cudaMallocAsync(&data, 64 * sizeof(int), a);
  fill_slowly<<<1, 32, 0, b>>>(data, 1, 64); // fault(allocated_on_another_stream): race between streams
  cudaDeviceSynchronize();
  cudaFreeAsync(data, a);
  cudaDeviceSynchronize();
  cudaStreamDestroy(a);
  cudaStreamDestroy(b);
}

__global__ void waits_for_nobody(volatile int *flag, int *out) {
  if (threadIdx.x == 0)
    while (*flag == 0) { // fault(waits_for_nobody): barrier
    }
  __syncthreads();
  out[threadIdx.x] = 1;
}
CASE(waits_for_nobody) {
  Device<int> flag(1), out(64);
  waits_for_nobody<<<1, 64>>>(flag, out);
}

__global__ void skipped_by_lanes_that_go_on(int *out, int lanes) {
  int sum = 7;
  if (int(threadIdx.x) < lanes)
    sum = __shfl_xor_sync(0xffffffff, int(threadIdx.x), 1); // fault(skipped_by_lanes_that_go_on): mask
  out[threadIdx.x] = sum;
}
CASE(skipped_by_lanes_that_go_on) {
  Device<int> out(32);
  skipped_by_lanes_that_go_on<<<1, 32>>>(out, 16);
}

__global__ void ballot_skipped_in_a_loop(const int *rounds, unsigned *out) {
  unsigned sum = 0;
  for (int i = 0; i < rounds[threadIdx.x]; ++i)
    sum += __ballot_sync(0xffffffff, i % 2); // fault(ballot_skipped_in_a_loop): mask
  out[threadIdx.x] = sum;
}
CASE(ballot_skipped_in_a_loop) {
  int host[32];
  for (int lane = 0; lane < 32; ++lane)
    host[lane] = lane < 20 ? 3 : 1;
  Device<int> rounds(32);
  Device<unsigned> out(32);
  cudaMemcpy(rounds, host, sizeof host, cudaMemcpyHostToDevice);
  ballot_skipped_in_a_loop<<<1, 32>>>(rounds, out);
}

} // namespace
