// Kernels that wait for the host, and for kernels of other streams.
#include "check.h"

#include <chrono>
#include <cstring>
#include <thread>

__global__ void wait_for(volatile int *flag, int wanted, int *out) {
  while (*flag != wanted) {
  }
  __threadfence();
  if (threadIdx.x == 0)
    atomicAdd(out, 1);
}

__global__ void ping_pong(int *turn, int own, int *rounds) {
  for (int round = 0; round < 5; ++round) {
    while (atomicAdd(turn, 0) != own) {
    }
    *rounds += 1;
    __threadfence();
    atomicExch(turn, 1 - own);
  }
}

__global__ void add(int *out, int what) { *out += what; }

// Answers each number that the host asks for, until it is negative.
__global__ void serve(volatile int *question, volatile int *answer) {
  for (int last = 0;;) {
    const int now = *question;
    if (now == last)
      continue;
    last = now;
    if (now < 0)
      return;
    *answer = 2 * now;
    __threadfence_system();
  }
}

// Sleeps for a time that its own clock says.
__global__ void sleep(long long cycles, int *out) {
  for (const long long start = clock64(); clock64() - start < cycles;)
    __nanosleep(100);
  *out = 1;
}

struct Data {
  int *shared, *device;
  cudaStream_t first, second;
};

void host_sets_a_flag(const Data &data) {
  wait_for<<<5, 64, 0, data.first>>>(data.shared, 1, data.shared + 1);
  CHECK(cudaStreamQuery(data.first) == cudaErrorNotReady);
  CHECK(cudaStreamQuery(data.second) == cudaSuccess && cudaGetLastError() == cudaSuccess);
  *data.shared = 1;
  CUDA(cudaStreamSynchronize(data.first));
  CUDA(cudaStreamQuery(data.first));
  CHECK(data.shared[1] == 5);
}

void copy_of_another_stream_sets_a_flag(const Data &data) {
  const int one = 1;
  CUDA(cudaMemset(data.device, 0, 16));
  wait_for<<<1, 1, 0, data.first>>>(data.device, 1, data.device + 1);
  // What follows in the stream waits, too.
  add<<<1, 1, 0, data.first>>>(data.device + 1, 10);
  CUDA(cudaMemcpyAsync(data.shared + 2, data.device + 1, sizeof(int), cudaMemcpyDeviceToHost, data.first));
  CHECK(data.shared[2] == 0);
  CUDA(cudaMemcpyAsync(data.device, &one, sizeof one, cudaMemcpyHostToDevice, data.second));
  CUDA(cudaDeviceSynchronize());
  CHECK(data.shared[2] == 11);
}

void kernels_wait_for_each_other(const Data &data) {
  CUDA(cudaMemset(data.device, 0, 16));
  ping_pong<<<1, 1, 0, data.first>>>(data.device, 0, data.device + 1);
  ping_pong<<<1, 1, 0, data.second>>>(data.device, 1, data.device + 2);
  CUDA(cudaStreamSynchronize(data.second));
  CUDA(cudaStreamSynchronize(data.first));
  int rounds[2];
  CUDA(cudaMemcpy(rounds, data.device + 1, sizeof rounds, cudaMemcpyDeviceToHost));
  CHECK(rounds[0] == 5 && rounds[1] == 5);
}

void host_and_kernel_answer_each_other(const Data &data) {
  volatile int *question = data.shared + 4, *answer = data.shared + 5;
  serve<<<1, 1, 0, data.first>>>(question, answer);
  for (int n = 1; n < 4; ++n) {
    *question = n;
    while (*answer != 2 * n) {
    }
  }
  *question = -1;
  CUDA(cudaStreamSynchronize(data.first));
}

void events_wait(const Data &data) {
  cudaEvent_t event;
  CUDA(cudaEventCreate(&event));
  wait_for<<<1, 1, 0, data.first>>>(data.shared + 6, 1, data.shared + 7);
  CUDA(cudaEventRecord(event, data.first));
  CUDA(cudaStreamWaitEvent(data.second, event));
  add<<<1, 1, 0, data.second>>>(data.shared + 7, 10);
  CHECK(cudaEventQuery(event) == cudaErrorNotReady && data.shared[7] == 0);
  CUDA(
      cudaLaunchHostFunc(data.second, [](void *value) { *static_cast<int *>(value) *= 2; }, data.shared + 7));
  data.shared[6] = 1;
  CUDA(cudaEventSynchronize(event));
  CUDA(cudaStreamSynchronize(data.second));
  CHECK(data.shared[7] == 22);
  CUDA(cudaEventDestroy(event));
}

// The legacy stream waits for blocking streams, and they for it.
void legacy_stream_waits(const Data &data) {
  cudaStream_t apart;
  CUDA(cudaStreamCreateWithFlags(&apart, cudaStreamNonBlocking));
  wait_for<<<1, 1, 0, data.first>>>(data.shared + 8, 1, data.shared + 9);
  add<<<1, 1>>>(data.shared + 9, 10);
  add<<<1, 1, 0, data.second>>>(data.shared + 9, 100);
  CHECK(data.shared[9] == 0 && cudaStreamQuery(data.second) == cudaErrorNotReady);
  CUDA(cudaStreamQuery(apart));
  add<<<1, 1, 0, apart>>>(data.shared + 8, 1);
  CUDA(cudaDeviceSynchronize());
  CHECK(data.shared[9] == 111);
  CUDA(cudaStreamDestroy(apart));
}

void a_kernel_that_sleeps_ends(const Data &data) {
  sleep<<<1, 1, 0, data.first>>>(50000, data.shared + 10); // about 10,000 polls
  CUDA(cudaStreamSynchronize(data.first));
  CHECK(data.shared[10] == 1);
}

int main(int count, char **arguments) {
  Data data;
  CUDA(cudaMallocManaged(&data.shared, 16 * sizeof(int)));
  std::memset(data.shared, 0, 16 * sizeof(int));
  CUDA(cudaMalloc(&data.device, 16));
  CUDA(cudaStreamCreate(&data.first));
  CUDA(cudaStreamCreate(&data.second));
  const char *const what = count > 1 ? arguments[1] : "";
  if (!std::strcmp(what, "deadlock")) {
    wait_for<<<3, 64, 0, data.first>>>(data.shared, 1, data.shared + 1);
    CUDA(cudaGetLastError());
    CHECK_CODE(cudaStreamSynchronize(data.first), cudaErrorLaunchTimeout);
    CHECK_CODE(cudaDeviceSynchronize(), cudaErrorLaunchTimeout);
    return 0;
  }
  if (!std::strcmp(what, "sleep")) {
    sleep<<<1, 1, 0, data.first>>>(300000, data.shared); // about 60,000 polls
    std::puts(cudaStreamSynchronize(data.first) == cudaSuccess ? "ended" : "given up");
    return 0;
  }
  if (!std::strcmp(what, "late")) {
    wait_for<<<1, 1, 0, data.first>>>(data.shared, 1, data.shared + 1);
    std::thread late([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      *static_cast<volatile int *>(data.shared) = 1;
    });
    CUDA(cudaStreamSynchronize(data.first));
    late.join();
    return 0;
  }
  if (!std::strcmp(what, "unfinished")) {
    wait_for<<<3, 64, 0, data.first>>>(data.shared, 1, data.shared + 1);
    return 0;
  }
  host_sets_a_flag(data);
  copy_of_another_stream_sets_a_flag(data);
  kernels_wait_for_each_other(data);
  host_and_kernel_answer_each_other(data);
  events_wait(data);
  legacy_stream_waits(data);
  a_kernel_that_sleeps_ends(data);
}
