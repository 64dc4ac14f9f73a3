// Local memory, heaps and arrays that look as if something were wrong with them, and are right.
#include "corpus.h"

namespace {

// --- local memory and calls --------------------------------------------------------------------------------

__global__ void local_array(float *out, int n) {
  float history[16] = {};
  for (int i = 0; i < n; i++)
    history[(i * 7) % 16] += float(i);
  float sum = 0.f;
  for (int i = 0; i < 16; i++)
    sum += history[(i * n) % 16];
  out[threadIdx.x] = sum;
}
CASE(local_array) {
  Device<float> out(32);
  local_array<<<1, 32>>>(out, 9);
}

struct Padded {
  char tag;
  double value; // seven bytes of padding before it
};
__noinline__ __device__ Padded pick(const Padded *all, int i) { return all[i]; }
__global__ void structs_with_padding(double *out, int n) {
  Padded all[4];
  for (int i = 0; i < 4; i++) {
    all[i].tag = char(i);
    all[i].value = i * 2.0;
  }
  out[threadIdx.x] = pick(all, n % 4).value;
}
CASE(structs_with_padding) {
  Device<double> out(32);
  structs_with_padding<<<1, 32>>>(out, 7);
}

__noinline__ __device__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
__global__ void recursion(int *out) { out[threadIdx.x] = fibonacci(threadIdx.x % 8); }
CASE(recursion) {
  Device<int> out(32);
  recursion<<<1, 32>>>(out);
}

__constant__ float table[4] = {1.f, 2.f, 3.f, 4.f};
__device__ float total;
__global__ void variables_of_the_module(float *out) {
  if (threadIdx.x == 0)
    total = table[blockIdx.x % 4];
  __syncthreads();
  out[threadIdx.x] = table[threadIdx.x % 4] + total;
}
CASE(variables_of_the_module) {
  Device<float> out(64);
  variables_of_the_module<<<1, 64>>>(out);
}

__global__ void memory_from_the_heap(int *out) {
  int *const own = static_cast<int *>(malloc(4 * sizeof(int)));
  own[threadIdx.x % 4] = int(threadIdx.x);
  out[threadIdx.x] = own[threadIdx.x % 4];
  free(own);
}
CASE(memory_from_the_heap) {
  Device<int> out(32);
  memory_from_the_heap<<<1, 32>>>(out);
}

__global__ void sum_of_squares(const float *in, float *out, int n) {
  extern __shared__ float dynamic[];
  __shared__ float fixed[4];
  dynamic[threadIdx.x] = in[threadIdx.x];
  if (threadIdx.x < 4)
    fixed[threadIdx.x] = float(n);
  __syncthreads();
  out[threadIdx.x] = dynamic[n - 1 - threadIdx.x] + fixed[threadIdx.x % 4];
}
CASE(static_and_dynamic_shared) {
  Device<float> in(64), out(64);
  sum_of_squares<<<1, 64, 64 * sizeof(float)>>>(in, out, 64);
}

// --- the heap, recursion, local memory ---------------------------------------------------------------------

__global__ void lists(int *out) {
  struct Node {
    int value;
    Node *next;
  };
  Node *head = nullptr;
  for (int i = 0; i < 5; ++i) {
    Node *const node = new Node;
    node->value = i;
    node->next = head;
    head = node;
  }
  int sum = 0;
  while (head) {
    sum += head->value;
    Node *const next = head->next;
    delete head;
    head = next;
  }
  out[threadIdx.x] = sum;
}
CASE(lists_on_the_heap) {
  Device<int> out(64);
  lists<<<2, 32>>>(out);
}

__global__ void block_buffer(int *out) {
  __shared__ int *buffer;
  if (threadIdx.x == 0)
    buffer = static_cast<int *>(malloc(blockDim.x * sizeof(int)));
  __syncthreads();
  buffer[threadIdx.x] = int(threadIdx.x);
  __syncthreads();
  out[blockIdx.x * blockDim.x + threadIdx.x] = buffer[blockDim.x - 1 - threadIdx.x];
  __syncthreads();
  if (threadIdx.x == 0)
    free(buffer);
}
CASE(buffer_of_a_block) {
  Device<int> out(128);
  block_buffer<<<2, 64>>>(out);
}

__global__ void recursive(int *out) { out[threadIdx.x] = fibonacci(int(threadIdx.x) % 8); }
CASE(recursion_not_deep) {
  Device<int> out(32);
  recursive<<<1, 32>>>(out);
}

__device__ __noinline__ int depth_of(int n) { return n == 0 ? 0 : 1 + depth_of(n - 1); }
__global__ void deep_with_room(int *out) { out[threadIdx.x] = depth_of(200); }
CASE(recursion_with_a_larger_stack) {
  cudaDeviceSetLimit(cudaLimitStackSize, 32 * 1024);
  Device<int> out(1);
  deep_with_room<<<1, 1>>>(out);
}

__device__ __noinline__ void fill_local(int *values, int n) {
  for (int i = 0; i < n; ++i)
    values[i] = i * n;
}
__global__ void local_by_pointer(int *out, int n) {
  int values[16];
  fill_local(values, 16);
  out[threadIdx.x] = values[(threadIdx.x * n) % 16];
}
CASE(local_by_pointer) {
  Device<int> out(32);
  local_by_pointer<<<1, 32>>>(out, 3);
}

__global__ void own_pointer_through_shared(int *out, int n) {
  __shared__ int *pointers[32];
  int values[4] = {n, 2 * n, 3 * n, 4 * n};
  pointers[threadIdx.x] = values;
  __syncwarp();
  out[threadIdx.x] = pointers[threadIdx.x][n & 3];
}
CASE(own_pointer_through_shared) {
  Device<int> out(32);
  own_pointer_through_shared<<<1, 32>>>(out, 2);
}

// --- two arrays in one, arrays of arrays -------------------------------------------------------------------

__global__ void carved(const float *in, float *out, int n) {
  extern __shared__ float pool[];
  float *const a = pool, *const b = pool + n;
  int *const c = reinterpret_cast<int *>(b + n);
  a[threadIdx.x] = in[threadIdx.x];
  b[threadIdx.x] = 2 * in[threadIdx.x];
  c[threadIdx.x] = int(threadIdx.x);
  __syncthreads();
  out[threadIdx.x] = a[n - 1 - threadIdx.x] + b[threadIdx.x] + c[n - 1 - threadIdx.x];
}
CASE(carved_from_dynamic) {
  Device<float> in(64), out(64);
  carved<<<1, 64, 3 * 64 * sizeof(float)>>>(in, out, 64);
}

__global__ void either_array(const float *in, float *out, int n) {
  __shared__ float a[64], b[64];
  a[threadIdx.x] = in[threadIdx.x];
  b[threadIdx.x] = -in[threadIdx.x];
  __syncthreads();
  float sum = 0;
  for (int t = 0; t < n; ++t) {
    const float *const now = t % 2 ? a : b;
    sum += now[(threadIdx.x + t) % 64];
  }
  out[threadIdx.x] = sum;
}
CASE(either_array) {
  Device<float> in(64), out(64);
  either_array<<<1, 64>>>(in, out, 7);
}

__global__ void walk_down(float *out, int n) {
  __shared__ float first[32], second[32];
  first[threadIdx.x] = 1;
  second[threadIdx.x] = 2;
  __syncwarp();
  float sum = 0;
  for (const float *p = second + n; p != second; --p)
    sum += p[-1] * first[threadIdx.x];
  out[threadIdx.x] = sum;
}
CASE(walk_down) {
  Device<float> out(32);
  walk_down<<<1, 32>>>(out, 32);
}

// The programming guide's atomicAdd of doubles: the first value is a guess.
__device__ void add_by_swapping(double *sum, double value) {
  auto *const bits = reinterpret_cast<unsigned long long *>(sum);
  unsigned long long old = *bits, seen;
  do {
    seen = old;
    old = atomicCAS(bits, seen, __double_as_longlong(value + __longlong_as_double(seen)));
  } while (seen != old);
}
__global__ void sum_by_swapping(const double *in, double *sum) {
  add_by_swapping(sum, in[blockIdx.x * blockDim.x + threadIdx.x] + 1);
}
CASE(sum_by_swapping) {
  Device<double> in(256), sum(1);
  sum_by_swapping<<<4, 64>>>(in, sum);
}

__global__ void flag_tested_first(const int *in, int *found, int *out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (in[i] % 2 == 0 && *found == 0)
    *found = 1; // remark(flag_tested_first): flag
  out[i] = in[i];
}
CASE(flag_tested_first) {
  Device<int> in(256), found(1), out(256);
  flag_tested_first<<<4, 64>>>(in, found, out);
}

// Lane 0 comes to the barrier long after the others of its warp.
__global__ void leader_waits_for_warp_1(const int *in, int *out) {
  __shared__ volatile int ready;
  if (threadIdx.x == 0)
    ready = 0;
  __syncthreads();
  if (threadIdx.x == 0)
    while (ready == 0) {
    }
  if (threadIdx.x == 32) {
    int sum = 0;
    for (int i = 0; i < 200000; ++i)
      sum = 3 * sum + in[i % 32];
    out[0] = sum;
    ready = 1;
  }
  __syncthreads();
  out[threadIdx.x + 1] = ready;
}
CASE(leader_waits_for_warp_1) {
  Device<int> in(32), out(65);
  leader_waits_for_warp_1<<<1, 64>>>(in, out);
}

// --- memory that is written in part ------------------------------------------------------------------------

__global__ void write_xyz(float4 *points) {
  float4 &p = points[threadIdx.x];
  p.x = threadIdx.x;
  p.y = 2;
  p.z = 3;
}
__global__ void use_xyz(const float4 *points, float4 *copies, float *out, int with_fourth) {
  __shared__ float4 tile[32];
  const float4 p = points[threadIdx.x];
  tile[threadIdx.x] = copies[threadIdx.x] = p;
  __syncthreads();
  const float4 q = tile[31 - threadIdx.x];
  float mine = threadIdx.x < 16 ? q.x : q.w;
  mine = __shfl_sync(0xffffffff, mine, threadIdx.x % 16);
  if (q.x + q.y > 1000)
    mine += 1;
  out[threadIdx.x] = mine + q.y * p.z + (with_fourth ? q.w : 0.f);
}
CASE(fourth_loaded_and_not_used) {
  Device<float> out(32);
  float4 *points, *copies;
  float host[32];
  cudaMalloc(&points, 32 * sizeof(float4));
  cudaMalloc(&copies, 32 * sizeof(float4));
  write_xyz<<<1, 32>>>(points);
  use_xyz<<<1, 32>>>(points, copies, out, 0);
  cudaMemcpy(host, out, sizeof host, cudaMemcpyDeviceToHost);
  cudaFree(copies);
  cudaFree(points);
}

__noinline__ __device__ bool pop(const int *values, int &value, int i) {
  if (i % 3 == 0)
    return false;
  value = values[i];
  return true;
}
__global__ void value_with_a_condition(const int *values, int *out) {
  int value;
  out[threadIdx.x] = pop(values, value, threadIdx.x) ? value : -1;
}
CASE(value_loaded_before_its_condition) {
  Device<int> in(32), out(32);
  int host[32];
  value_with_a_condition<<<1, 32>>>(in, out);
  cudaMemcpy(host, out, sizeof host, cudaMemcpyDeviceToHost);
}

__global__ void fourth_written_later(float4 *points, float *out) {
  float4 p = points[threadIdx.x];
  p.w = p.x * 2;
  points[threadIdx.x] = p;
  out[threadIdx.x] = points[threadIdx.x].w;
}
CASE(fourth_written_later) {
  Device<float> out(32);
  float4 *points, host[32];
  cudaMalloc(&points, sizeof host);
  write_xyz<<<1, 32>>>(points);
  fourth_written_later<<<1, 32>>>(points, out);
  cudaMemcpy(host, points, sizeof host, cudaMemcpyDeviceToHost);
  cudaFree(points);
}

__global__ void copy_padded(Padded *out, int n) {
  Padded all[4];
  for (int i = 0; i < 4; i++) {
    all[i].tag = char(i);
    all[i].value = i * 2.0;
  }
  out[threadIdx.x] = all[(n + threadIdx.x) % 4];
}
CASE(padding_copied_to_the_host) {
  Device<Padded> out(32);
  Padded host[32];
  copy_padded<<<1, 32>>>(out, 7);
  cudaMemcpy(host, out, sizeof host, cudaMemcpyDeviceToHost);
}

} // namespace
