// Kernels that launch kernels.
#include "check.h"

#include <cstring>

constexpr int kMost = 256;

/// The order in which kernels ran.
struct Diary {
  int used, what[kMost];
};

__global__ void note(Diary *diary, int what) {
  if (threadIdx.x == 0)
    diary->what[atomicAdd(&diary->used, 1)] = what;
}

int place(const Diary &diary, int what) {
  for (int i = 0; i < diary.used; ++i)
    if (diary.what[i] == what)
      return i;
  return -1;
}

struct Values {
  int *data, factor;
  double unused[3];
};

__global__ void multiply(Values values, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count)
    values.data[i] *= values.factor;
}

// A child sees what its parent's block wrote before the launch.
__global__ void write_and_launch(int *data) {
  Values values{data + blockIdx.x * 64, 3};
  values.data[threadIdx.x] = threadIdx.x;
  __syncthreads();
  if (threadIdx.x == 0)
    multiply<<<dim3(2), 32>>>(values, 64);
}

// Each thread launches.
__global__ void launch_from_all(int *data) { multiply<<<1, 1>>>(Values{data + threadIdx.x, 2}, 1); }

__global__ void note_and_launch(Diary *diary, int what) {
  note<<<1, 32>>>(diary, 10 * what);
  note<<<1, 32, 0, cudaStreamTailLaunch>>>(diary, 10 * what + 1);
  diary->what[atomicAdd(&diary->used, 1)] = what;
}

__global__ void use_streams(Diary *diary) {
  cudaStream_t stream;
  cudaEvent_t event;
  if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) ||
      cudaEventCreateWithFlags(&event, cudaEventDisableTiming))
    return;
  note<<<1, 1, 0, cudaStreamTailLaunch>>>(diary, 5);
  note_and_launch<<<1, 1, 0, cudaStreamTailLaunch>>>(diary, 6);
  note<<<1, 1, 0, cudaStreamTailLaunch>>>(diary, 7);
  note_and_launch<<<1, 1>>>(diary, 1);
  note<<<1, 1>>>(diary, 2);
  note<<<1, 1, 0, cudaStreamFireAndForget>>>(diary, 3);
  note<<<1, 1, 0, stream>>>(diary, 4);
  cudaEventRecord(event, stream);
  cudaStreamWaitEvent(stream, event, 0);
  cudaEventDestroy(event);
  cudaStreamDestroy(stream);
}

// The children of all levels, counted.
__global__ void spread(int *counts, int level) {
  atomicAdd(&counts[level], 1);
  if (level < 4)
    spread<<<2, 1>>>(counts, level + 1);
}

__global__ void descend(int *level, int *error) {
  *level += 1;
  descend<<<1, 1>>>(level, error);
  if (const cudaError_t code = cudaGetLastError())
    *error = code;
}

__global__ void repeat(int *count, int times) {
  *count += 1;
  if (times > 1)
    repeat<<<1, 1, 0, cudaStreamTailLaunch>>>(count, times - 1);
}

__global__ void launch_many(Diary *diary, int times, int *errors) {
  for (int i = 0; i < times; ++i) {
    note<<<1, 1>>>(diary, i);
    errors[i] = cudaPeekAtLastError();
  }
}

__device__ bool is_equal(const char *text, const char *other) {
  while (*text && *text == *other)
    ++text, ++other;
  return *text == *other;
}

__global__ void launch_wrongly(Diary *diary, int *errors) {
  note<<<1, 2000>>>(diary, 0);
  errors[0] = cudaGetLastError();
  note<<<1, 1, 200000>>>(diary, 0);
  errors[1] = cudaGetLastError();
  note<<<1, 1, 0, cudaStream_t(0x77)>>>(diary, 0);
  errors[2] = cudaGetLastError();
  errors[3] = cudaGetLastError();
  cudaStream_t stream;
  errors[4] = cudaStreamCreateWithFlags(&stream, cudaStreamDefault);
  errors[5] = is_equal(cudaGetErrorName(cudaErrorInvalidValue), "cudaErrorInvalidValue") &&
              is_equal(cudaGetErrorString(cudaErrorInvalidValue), "invalid argument");
  errors[6] = cudaMemsetAsync(errors, 0, size_t(1) << 40, 0);
}

// Copies, fills and the device's heap, in stream order.
__global__ void free_memory(int *memory) { cudaFree(memory); }
__global__ void copy_and_fill(int *out) {
  int *memory;
  if (cudaMalloc(&memory, 64 * sizeof(int)))
    return;
  for (int i = 0; i < 64; ++i)
    memory[i] = i;
  multiply<<<1, 64>>>(Values{memory, 5}, 64);
  cudaMemcpyAsync(out, memory, 64 * sizeof(int), cudaMemcpyDeviceToDevice, 0);
  cudaMemsetAsync(memory, 0, 64 * sizeof(int), 0);
  multiply<<<1, 32>>>(Values{out, 2}, 32);
  free_memory<<<1, 1>>>(memory);
}

__global__ void use_shared(int *out) {
  extern __shared__ int room[];
  room[20000 + threadIdx.x] = threadIdx.x;
  __syncthreads();
  out[threadIdx.x] = room[20031 - threadIdx.x];
}
__global__ void launch_with_shared(int *out) { use_shared<<<1, 32, 81920>>>(out); }

__global__ void overrun(int *data) { data[1 << 20] = 1; }
__global__ void launch_overrun(int *data) { overrun<<<1, 1>>>(data); }

struct Memory {
  Diary diary;
  int data[kMost];
};

Memory &fresh() {
  static Memory *memory = nullptr;
  if (!memory)
    CUDA(cudaMallocManaged(&memory, sizeof(Memory)));
  CUDA(cudaDeviceSynchronize());
  std::memset(memory, 0, sizeof(Memory));
  return *memory;
}

void children_get_memory_and_arguments() {
  Memory &memory = fresh();
  write_and_launch<<<3, 64>>>(memory.data);
  CUDA(cudaDeviceSynchronize());
  for (int i = 0; i < 192; ++i)
    CHECK(memory.data[i] == i % 64 * 3);
  launch_from_all<<<1, 96>>>(memory.data);
  CUDA(cudaDeviceSynchronize());
  for (int i = 0; i < 96; ++i)
    CHECK(memory.data[i] == i % 64 * 6);
}

void streams_order_children() {
  Memory &memory = fresh();
  use_streams<<<1, 1>>>(&memory.diary);
  note<<<1, 1>>>(&memory.diary, 99);
  CUDA(cudaDeviceSynchronize());
  const Diary &diary = memory.diary;
  CHECK(diary.used == 12);
  const auto follow = [&](int first, int second) {
    return place(diary, first) >= 0 && place(diary, first) < place(diary, second);
  };
  // A grid is complete when its children and its tail launches are.
  CHECK(follow(1, 10) && follow(10, 11) && follow(11, 2));
  for (const int child : {2, 3, 4})
    CHECK(follow(child, 5));
  CHECK(follow(5, 6) && follow(6, 60) && follow(60, 61) && follow(61, 7) && follow(7, 99));
}

void grids_nest() {
  Memory &memory = fresh();
  spread<<<1, 1>>>(memory.data, 0);
  CUDA(cudaDeviceSynchronize());
  for (int level = 0; level <= 4; ++level)
    CHECK(memory.data[level] == 1 << level);
  descend<<<1, 1>>>(memory.data + 10, memory.data + 11);
  CUDA(cudaDeviceSynchronize());
  CHECK(memory.data[10] == 24 && memory.data[11] == cudaErrorLaunchMaxDepthExceeded);
  repeat<<<1, 1>>>(memory.data + 12, 100);
  CUDA(cudaDeviceSynchronize());
  CHECK(memory.data[12] == 100);
}

void launches_have_limits() {
  Memory &memory = fresh();
  CUDA(cudaDeviceSetLimit(cudaLimitDevRuntimePendingLaunchCount, 4));
  launch_many<<<1, 1>>>(&memory.diary, 6, memory.data);
  CUDA(cudaDeviceSynchronize());
  CHECK(memory.diary.used == 4 && memory.data[3] == cudaSuccess &&
        memory.data[4] == cudaErrorLaunchPendingCountExceeded);
  CUDA(cudaDeviceSetLimit(cudaLimitDevRuntimePendingLaunchCount, 2048));
}

void wrong_launches_fail() {
  Memory &memory = fresh();
  launch_wrongly<<<1, 1>>>(&memory.diary, memory.data);
  CUDA(cudaDeviceSynchronize());
  CHECK(memory.diary.used == 0);
  CHECK(memory.data[0] == cudaErrorInvalidConfiguration && memory.data[1] == cudaErrorInvalidValue &&
        memory.data[2] == cudaErrorInvalidResourceHandle && memory.data[3] == cudaSuccess);
  CHECK(memory.data[4] == cudaErrorInvalidValue && memory.data[5] == 1 &&
        memory.data[6] == cudaErrorInvalidValue);
}

void children_use_what_the_host_allows() {
  Memory &memory = fresh();
  copy_and_fill<<<1, 1>>>(memory.data);
  CUDA(cudaDeviceSynchronize());
  for (int i = 0; i < 64; ++i)
    CHECK(memory.data[i] == i * 5 * (i < 32 ? 2 : 1));
  CUDA(cudaFuncSetAttribute(use_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, 81920));
  launch_with_shared<<<1, 1>>>(memory.data);
  CUDA(cudaDeviceSynchronize());
  for (int i = 0; i < 32; ++i)
    CHECK(memory.data[i] == 31 - i);
}

int main(int count, char **arguments) {
  if (count > 1 && !std::strcmp(arguments[1], "fault")) {
    launch_overrun<<<1, 1>>>(fresh().data);
    CHECK(cudaDeviceSynchronize() != cudaSuccess);
    return 0;
  }
  children_get_memory_and_arguments();
  streams_order_children();
  grids_nest();
  launches_have_limits();
  wrong_launches_fail();
  children_use_what_the_host_allows();
  CUDA(cudaFree(&fresh()));
}
