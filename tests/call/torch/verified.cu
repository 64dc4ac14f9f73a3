// Kernels for candidates of `ladder verify`: y[row] = sum over columns of max(x, 0), right and wrong.
#include <cuda_runtime.h>

__device__ float lane_sum(const float *x, int n) {
  float sum = 0;
  for (int i = threadIdx.x; i < n; i += 32)
    sum += fmaxf(x[blockIdx.x * n + i], 0.f);
  return sum;
}

__device__ float block_sum(float mine, bool has_barrier) {
  __shared__ float part[32];
  part[threadIdx.x] = mine;
  if (has_barrier)
    __syncthreads();
  float all = 0;
  for (int i = 0; i < 32; ++i)
    all += part[i];
  return all;
}

__global__ void right(const float *x, float *y, int n) {
  float all = block_sum(lane_sum(x, n), true);
  if (threadIdx.x == 0)
    y[blockIdx.x] = all;
}

__global__ void race(const float *x, float *y, int n) {
  float all = block_sum(lane_sum(x, n), false);
  if (threadIdx.x == 31)
    y[blockIdx.x] = all;
}

__global__ void no_tail(const float *x, float *y, int n) {
  float sum = 0;
  for (int i = threadIdx.x; i < n / 32 * 32; i += 32)
    sum += fmaxf(x[blockIdx.x * n + i], 0.f);
  float all = block_sum(sum, true);
  if (threadIdx.x == 0)
    y[blockIdx.x] = all;
}

__global__ void past_the_end(const float *x, float *y, int n) {
  float all = block_sum(lane_sum(x, n), true) + 0 * x[gridDim.x * n + 31];
  if (threadIdx.x == 0)
    y[blockIdx.x] = all;
}

__global__ void constant(const float *x, float *y, int n) {
  if (threadIdx.x == 0)
    y[blockIdx.x] = 28.f;
}

__global__ void one_row_missing(const float *x, float *y, int n) {
  float all = block_sum(lane_sum(x, n), true);
  if (threadIdx.x == 0 && blockIdx.x)
    y[blockIdx.x] = all;
}

__global__ void changes_inputs(float *x, float *y, int n) {
  for (int i = threadIdx.x; i < n; i += 32)
    x[blockIdx.x * n + i] = fmaxf(x[blockIdx.x * n + i], 0.f);
  float all = block_sum(lane_sum(x, n), true);
  if (threadIdx.x == 0)
    y[blockIdx.x] = all;
}

__device__ int calls;

__global__ void wrong_when_called_again(const float *x, float *y, int n) {
  float all = block_sum(lane_sum(x, n), true);
  if (threadIdx.x == 0)
    y[blockIdx.x] = all + calls;
  if (threadIdx.x == 0 && blockIdx.x == gridDim.x - 1)
    calls = 1;
}

// The row is right if the block before has run.
__device__ int rows_done;

__global__ void needs_an_order(const float *x, float *y, int n) {
  float all = block_sum(lane_sum(x, n), true);
  if (threadIdx.x)
    return;
  int before = atomicAdd(&rows_done, 1);
  y[blockIdx.x] = before % gridDim.x == blockIdx.x ? all : 0;
}

__global__ void endless(const float *x, volatile float *y, int n) {
  while (y[0] != x[0]) {
  }
}

#ifdef IS_PART_OF_A_PROGRAM // which does not link by itself
int of_another_file();

int main() { return of_another_file(); }
#endif

#define LAUNCH(name)                                                                                         \
  extern "C" void launch_##name(float *x, float *y, int rows, int n) { name<<<rows, 32>>>(x, y, n); }
LAUNCH(right)
LAUNCH(race)
LAUNCH(no_tail)
LAUNCH(past_the_end)
LAUNCH(constant)
LAUNCH(one_row_missing)
LAUNCH(changes_inputs)
LAUNCH(wrong_when_called_again)
LAUNCH(needs_an_order)
LAUNCH(endless)
