// Host code, streams and events that look as if something were wrong with them, and are right.
#include "corpus.h"

#include <cstdlib>
#include <vector>

namespace {

struct Stream {
  cudaStream_t handle;
  Stream() { cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking); }
  ~Stream() { cudaStreamDestroy(handle); }
  operator cudaStream_t() const { return handle; }
};

__global__ void in_place(float *values, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    values[i] = values[i] * 2.f + 1.f;
}

__global__ void shift_in_place(float *values) {
  const float next = values[(threadIdx.x + 1) % 128];
  __syncthreads();
  values[threadIdx.x] = next + 1.f;
}

// --- the host ----------------------------------------------------------------------------------------------

CASE(managed_memory) {
  float *values;
  cudaMallocManaged(&values, 64 * sizeof(float));
  for (int i = 0; i < 64; i++)
    values[i] = float(i);
  in_place<<<1, 64>>>(values, 64);
  cudaDeviceSynchronize();
  printf("%g\n", values[3]);
  cudaFree(values);
}

CASE(pinned_memory) {
  float *values;
  cudaMallocHost(&values, 64 * sizeof(float));
  for (int i = 0; i < 64; i++)
    values[i] = float(i);
  in_place<<<1, 64>>>(values, 64);
  cudaDeviceSynchronize();
  printf("%g\n", values[3]);
  cudaFreeHost(values);
}

CASE(part_of_a_buffer_is_copied) {
  float *values;
  std::vector<float> host(64);
  cudaMalloc(&values, 128 * sizeof(float)); // twice what is used
  cudaMemcpy(values, host.data(), 64 * sizeof(float), cudaMemcpyHostToDevice);
  in_place<<<1, 64>>>(values, 64);
  cudaMemcpy(host.data(), values, 64 * sizeof(float), cudaMemcpyDeviceToHost);
  printf("%g\n", host[3]);
  cudaFree(values);
}

CASE(rows_with_a_pitch) {
  float *values;
  size_t pitch;
  std::vector<float> host(10 * 20);
  cudaMallocPitch(&values, &pitch, 10 * sizeof(float), 20);
  cudaMemcpy2D(values, pitch, host.data(), 40, 40, 20, cudaMemcpyHostToDevice);
  cudaMemcpy2D(host.data(), 40, values, pitch, 40, 20, cudaMemcpyDeviceToHost);
  cudaFree(values);
}

CASE(nothing_is_freed_and_copied) {
  Device<float> values(4);
  cudaFree(nullptr);
  cudaMemcpy(values, nullptr, 0, cudaMemcpyHostToDevice);
}

CASE(error_is_asked_for) {
  Device<float> values(64);
  cudaStream_t stream;
  cudaStreamCreate(&stream);
  in_place<<<1, 64, 0, stream>>>(values, 64);
  if (cudaGetLastError() != cudaSuccess)
    puts("it failed");
  cudaStreamSynchronize(stream);
  cudaStreamDestroy(stream);
}

CASE(memory_of_a_stream) {
  float *values;
  cudaMallocAsync(&values, 64 * sizeof(float), nullptr);
  cudaMemsetAsync(values, 0, 64 * sizeof(float), nullptr);
  in_place<<<1, 64>>>(values, 64);
  cudaFreeAsync(values, nullptr);
}

CASE(one_kernel_after_another) {
  Device<float> values(256);
  for (int i = 0; i < 3; i++)
    in_place<<<4, 64>>>(values, 256);
  shift_in_place<<<1, 128>>>(values);
}

// What static destructors free is no leak.
struct Global {
  float *data = nullptr;
  ~Global() { cudaFree(data); }
} global;
CASE(freed_by_a_static_destructor) {
  cudaMalloc(&global.data, 64);
  cudaMemset(global.data, 0, 64);
}

CASE(device_is_reset) {
  float *values;
  cudaMalloc(&values, 64);
  cudaMemset(values, 0, 64);
  cudaDeviceReset(); // frees it
}

// --- several streams, events, pinned and managed memory ----------------------------------------------------

__global__ void scale(float *data, float factor, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    data[i] *= factor;
}
CASE(pipelined_streams) {
  constexpr int kStreams = 3, kEach = 1000;
  float *host;
  cudaMallocHost(&host, kStreams * kEach * sizeof(float));
  for (int i = 0; i < kStreams * kEach; ++i)
    host[i] = float(i);
  float *data;
  cudaMalloc(&data, kStreams * kEach * sizeof(float));
  {
    Stream streams[kStreams];
    for (int s = 0; s < kStreams; ++s) {
      cudaMemcpyAsync(data + s * kEach, host + s * kEach, kEach * sizeof(float), cudaMemcpyHostToDevice,
                      streams[s]);
      scale<<<8, 128, 0, streams[s]>>>(data + s * kEach, 2.f, kEach);
      cudaMemcpyAsync(host + s * kEach, data + s * kEach, kEach * sizeof(float), cudaMemcpyDeviceToHost,
                      streams[s]);
    }
    cudaDeviceSynchronize();
    printf("%g\n", host[1234]);
  }
  cudaFree(data);
  cudaFreeHost(host);
}
CASE(event_between_streams) {
  Device<float> data(1000);
  {
    Stream a, b;
    cudaEvent_t done;
    cudaEventCreateWithFlags(&done, cudaEventDisableTiming);
    cudaDeviceSynchronize();
    scale<<<8, 128, 0, a>>>(data, 2.f, 1000);
    cudaEventRecord(done, a);
    cudaStreamWaitEvent(b, done, 0);
    scale<<<8, 128, 0, b>>>(data, 3.f, 1000);
    cudaStreamSynchronize(b);
    cudaEventDestroy(done);
  }
}
CASE(legacy_stream_orders_blocking_ones) {
  Device<float> data(1000);
  cudaStream_t a, b;
  cudaStreamCreate(&a);
  cudaStreamCreate(&b);
  scale<<<8, 128, 0, a>>>(data, 2.f, 1000);
  scale<<<8, 128>>>(data, 2.f, 1000);
  scale<<<8, 128, 0, b>>>(data, 3.f, 1000);
  cudaDeviceSynchronize();
  cudaStreamDestroy(a);
  cudaStreamDestroy(b);
}
CASE(readers_on_two_streams) {
  Device<float> in(100), x(100), y(100);
  {
    Stream a, b;
    cudaDeviceSynchronize();
    cudaMemcpyAsync(x.data, in.data, in.bytes, cudaMemcpyDeviceToDevice, a);
    cudaMemcpyAsync(y.data, in.data, in.bytes, cudaMemcpyDeviceToDevice, b);
    cudaDeviceSynchronize();
  }
}
CASE(managed_by_both) {
  float *data;
  cudaMallocManaged(&data, 100 * sizeof(float));
  for (int i = 0; i < 100; ++i)
    data[i] = float(i);
  scale<<<1, 128>>>(data, 2.f, 100);
  cudaDeviceSynchronize();
  data[3] += data[4];
  scale<<<1, 128>>>(data, 2.f, 100);
  cudaDeviceSynchronize();
  printf("%g\n", data[3]);
  cudaFree(data);
}
CASE(mapped_memory) {
  int *host, *mapped;
  cudaHostAlloc(&host, 64 * sizeof(int), cudaHostAllocMapped);
  for (int i = 0; i < 64; ++i)
    host[i] = i;
  cudaHostGetDevicePointer(&mapped, host, 0);
  scale<<<1, 64>>>(reinterpret_cast<float *>(mapped), 1.f, 64);
  cudaDeviceSynchronize();
  printf("%d\n", host[5]);
  cudaFreeHost(host);
}
CASE(stream_ordered_memory) {
  Stream s;
  float *data;
  cudaMallocAsync(&data, 400, s);
  cudaMemsetAsync(data, 0, 400, s);
  scale<<<1, 128, 0, s>>>(data, 2.f, 100);
  cudaFreeAsync(data, s);
  cudaStreamSynchronize(s);
}
CASE(pageable_copies_are_done_at_once) {
  Device<float> data(100);
  std::vector<float> host(100, 1.f);
  Stream s;
  cudaMemcpyAsync(data.data, host.data(), data.bytes, cudaMemcpyHostToDevice, s);
  host[0] = 2.f;
  scale<<<1, 128, 0, s>>>(data, 2.f, 100);
  cudaStreamSynchronize(s);
}

__device__ float factors[64];
__constant__ float weights[64];
__global__ void weigh(float *values) { values[threadIdx.x] *= factors[threadIdx.x] + weights[threadIdx.x]; }
CASE(variables_copied_before_their_kernel) {
  float *host;
  cudaMallocHost(&host, sizeof weights);
  for (int i = 0; i < 64; ++i)
    host[i] = float(i);
  {
    Device<float> values(64);
    Stream a, b;
    cudaDeviceSynchronize();
    cudaMemcpyToSymbolAsync(factors, host, sizeof factors, 0, cudaMemcpyHostToDevice, a);
    cudaMemcpyToSymbolAsync(weights, host, sizeof weights, 0, cudaMemcpyHostToDevice, b);
    cudaEvent_t copied;
    cudaEventCreate(&copied);
    cudaEventRecord(copied, b);
    cudaStreamWaitEvent(a, copied, 0);
    weigh<<<1, 64, 0, a>>>(values);
    cudaDeviceSynchronize();
    cudaEventDestroy(copied);
  }
  cudaFreeHost(host);
}

__global__ void atomics_of_the_system(int *words) {
  atomicAdd_system(&words[0], 10);
  atomicExch_system(&words[1], int(threadIdx.x));
  atomicMax_system(&words[2], int(threadIdx.x));
  atomicAnd_system(&words[3], 7);
}
CASE(host_and_device_use_atomics) {
  int *words;
  cudaMallocManaged(&words, 4 * sizeof *words);
  for (int i = 0; i < 4; ++i)
    words[i] = 0;
  atomics_of_the_system<<<1, 64>>>(words);
  for (int i = 0; i < 64; ++i) {
    __sync_fetch_and_add(&words[0], 10);
    __sync_lock_test_and_set(&words[1], i);
    int expected, old;
    do {
      expected = words[2];
      old = __sync_val_compare_and_swap(&words[2], expected, expected > i ? expected : i);
    } while (old != expected);
    __sync_fetch_and_and(&words[3], 7);
  }
  cudaDeviceSynchronize();
  printf("%d\n", words[0]);
  cudaFree(words);
}

CASE(queried_until_ready) {
  int *host, *mapped;
  cudaHostAlloc(&host, 64 * sizeof(int), cudaHostAllocMapped);
  for (int i = 0; i < 64; ++i)
    host[i] = i;
  cudaHostGetDevicePointer(&mapped, host, 0);
  cudaEvent_t done;
  cudaEventCreate(&done);
  scale<<<1, 64>>>(reinterpret_cast<float *>(mapped), 1.f, 64);
  cudaEventRecord(done);
  while (cudaEventQuery(done) == cudaErrorNotReady)
    ;
  printf("%d\n", host[5]);
  scale<<<1, 64>>>(reinterpret_cast<float *>(mapped), 1.f, 64);
  while (cudaStreamQuery(nullptr) == cudaErrorNotReady)
    ;
  printf("%d\n", host[5]);
  cudaEventDestroy(done);
  cudaFreeHost(host);
}

CASE(registered_and_waited_for) {
  constexpr size_t kBytes = 1 << 16;
  Device<float> data(kBytes / sizeof(float));
  float *const host = static_cast<float *>(aligned_alloc(4096, kBytes));
  memset(host, 0, kBytes);
  cudaHostRegister(host, kBytes, cudaHostRegisterDefault);
  Stream s;
  cudaMemcpyAsync(data, host, kBytes, cudaMemcpyHostToDevice, s);
  printf("%g\n", host[3]); // both read
  cudaStreamSynchronize(s);
  host[3] = 1;
  cudaHostUnregister(host);
  free(host);
}

__global__ void raise_for_the_host(int *flag) { atomicExch_system(flag, 1); }
/// The host's atomic load is a plain instruction.
CASE(host_awaits_a_flag) {
  int *host, *mapped;
  cudaHostAlloc(&host, sizeof(int), cudaHostAllocMapped);
  *host = 0;
  cudaHostGetDevicePointer(&mapped, host, 0);
  raise_for_the_host<<<1, 1>>>(mapped);
  while (__atomic_load_n(host, __ATOMIC_ACQUIRE) == 0)
    ;
  cudaDeviceSynchronize();
  cudaFreeHost(host);
}

} // namespace
