// Planted faults of memory: arrays beside arrays, variables, the heap of kernels, stacks, memory that nobody
// wrote. Marked as in faults.cu.
// clang-format off: a fault's mark stands on the line of the fault, however long
#include "corpus.h"

#include <cstdint>
#include <cuda_fp16.h>
#include <mma.h>
#include <vector>

namespace {

// --- one array beside another ------------------------------------------------------------------------------

__global__ void past_first_shared_array(int *out, int shift) {
  __shared__ int a[64], b[64];
  a[threadIdx.x] = int(threadIdx.x);
  b[threadIdx.x] = 2 * int(threadIdx.x);
  __syncthreads();
  out[threadIdx.x] = a[threadIdx.x + shift] + b[threadIdx.x]; // fault(past_first_shared_array): out of bounds
}
CASE(past_first_shared_array) {
  Device<int> out(64);
  past_first_shared_array<<<1, 64>>>(out, 1);
}

__global__ void write_past_shared_array(int *out, int n) {
  __shared__ int keys[32], values[32];
  values[threadIdx.x] = 1;
  __syncwarp();
  if (int(threadIdx.x) <= n)
    keys[threadIdx.x + n / 32] = int(threadIdx.x); // fault(write_past_shared_array): out of bounds
  __syncwarp();
  out[threadIdx.x] = values[threadIdx.x] + keys[n / 32 + threadIdx.x % 31];
}
CASE(write_past_shared_array) {
  Device<int> out(32);
  write_past_shared_array<<<1, 32>>>(out, 32);
}

__global__ void before_shared_array(float *out, int back) {
  __shared__ float halo[32], row[32];
  halo[threadIdx.x] = 0.f;
  row[threadIdx.x] = float(threadIdx.x);
  __syncwarp();
  out[threadIdx.x] = row[int(threadIdx.x) - back] + halo[threadIdx.x] // fault(before_shared_array): out of bounds
      + halo[int(threadIdx.x) - back + 1];
}
CASE(before_shared_array) {
  Device<float> out(32);
  before_shared_array<<<1, 32>>>(out, 1);
}

__device__ int table[100];
__global__ void past_device_array(int *out) {
  out[threadIdx.x] = table[threadIdx.x]; // fault(past_device_array): out of bounds
}
CASE(past_device_array) {
  Device<int> out(128);
  past_device_array<<<1, 128>>>(out);
}

__device__ float accumulators[32];
__global__ void write_past_device_array(int slot) {
  accumulators[slot + threadIdx.x] = 1.f; // fault(write_past_device_array): out of bounds
}
CASE(write_past_device_array) { write_past_device_array<<<1, 32>>>(8); }

__constant__ float weights[16];
__global__ void past_constant_array(float *out, int n) {
  float sum = 0;
  for (int i = 0; i <= n; ++i)
    sum += weights[i]; // fault(past_constant_array): out of bounds
  out[threadIdx.x] = sum;
}
CASE(past_constant_array) {
  const float host[16] = {1, 2, 3};
  cudaMemcpyToSymbol(weights, host, sizeof host);
  Device<float> out(32);
  past_constant_array<<<1, 32>>>(out, 16);
}

struct Row {
  int head;
  int data[7];
};
__global__ void row_past_allocation(Row *rows, int n) {
  Row &row = rows[threadIdx.x];
  for (int i = 0; i < 8; ++i)
    row.data[i] = n; // fault(row_past_allocation): out of bounds
}
CASE(row_past_allocation) {
  Device<Row> rows(32);
  row_past_allocation<<<1, 32>>>(rows, 3);
}

// --- the heap of kernels -----------------------------------------------------------------------------------

__global__ void heap_past_end(int *out, int n) {
  int *const mine = static_cast<int *>(malloc(n * sizeof(int)));
  for (int i = 0; i <= n; ++i)
    mine[i] = i; // fault(heap_past_end): out of bounds
  out[threadIdx.x] = mine[n - 1];
  free(mine);
}
CASE(heap_past_end) {
  Device<int> out(32);
  heap_past_end<<<1, 32>>>(out, 12);
}

__global__ void heap_use_after_free(int *out, int n) {
  int *const mine = static_cast<int *>(malloc(n * sizeof(int)));
  mine[threadIdx.x % n] = 5;
  free(mine);
  out[threadIdx.x] = mine[threadIdx.x % n]; // fault(heap_use_after_free): use after free
}
CASE(heap_use_after_free) {
  Device<int> out(32);
  heap_use_after_free<<<1, 32>>>(out, 16);
}

__global__ void heap_uninitialised(int *out, int n) {
  int *const mine = static_cast<int *>(malloc(n * sizeof(int)));
  mine[0] = 1;
  int sum = 0;
  for (int i = 0; i < n; ++i)
    sum += mine[i]; // fault(heap_uninitialised): uninitialised read
  out[threadIdx.x] = sum;
  free(mine);
}
CASE(heap_uninitialised) {
  Device<int> out(32);
  heap_uninitialised<<<1, 32>>>(out, 8);
}

__global__ void heap_leak(int *out) {
  int *const mine = new int[4]; // fault(heap_leak): leak
  mine[0] = int(threadIdx.x);
  out[threadIdx.x] = mine[0];
}
CASE(heap_leak) {
  Device<int> out(32);
  heap_leak<<<1, 32>>>(out);
}

__global__ void heap_null(int *out, size_t n) {
  int *const mine = static_cast<int *>(malloc(n)); // more than the heap has
  mine[threadIdx.x] = 1; // fault(heap_null): out of bounds
  out[threadIdx.x] = mine[threadIdx.x];
  free(mine);
}
CASE(heap_null) {
  Device<int> out(32);
  heap_null<<<1, 32>>>(out, size_t(1) << 40);
}

__device__ int *kept;
__global__ void keep_on_heap() { kept = new int(3); }
__global__ void drop_from_heap() { delete kept; }
__global__ void use_dropped(int *out) {
  out[0] = *kept; // fault(heap_freed_by_another_kernel): use after free
}
CASE(heap_freed_by_another_kernel) {
  Device<int> out(1);
  keep_on_heap<<<1, 1>>>();
  drop_from_heap<<<1, 1>>>();
  use_dropped<<<1, 1>>>(out);
}

// --- stacks ------------------------------------------------------------------------------------------------

__global__ void local_index_past_end(int *out, int n) {
  int values[8];
  for (int i = 0; i < n; ++i)
    values[i] = i * n; // fault(local_index_past_end): out of bounds
  out[threadIdx.x] = values[threadIdx.x % 8];
}
CASE(local_index_past_end) {
  Device<int> out(32);
  local_index_past_end<<<1, 32>>>(out, 100);
}

__global__ void local_uninitialised(int *out, int n) {
  int values[16];
  for (int i = 1; i < n; ++i)
    values[i] = i;
  out[threadIdx.x] = values[threadIdx.x % n]; // fault(local_uninitialised): uninitialised read
}
CASE(local_uninitialised) {
  Device<int> out(32);
  local_uninitialised<<<1, 32>>>(out, 16);
}

__global__ void local_of_another_thread(int *out, int n) {
  __shared__ int *shared_pointer;
  int values[4];
  for (int i = 0; i < 4; ++i)
    values[i] = n * int(threadIdx.x);
  if (threadIdx.x == 0)
    shared_pointer = values;
  __syncthreads();
  out[threadIdx.x] = shared_pointer[n & 3]; // fault(local_of_another_thread): out of bounds
}
CASE(local_of_another_thread) {
  Device<int> out(64);
  local_of_another_thread<<<1, 64>>>(out, 2);
}

__device__ int *returned_address(int n) {
  int value = n;
  int *volatile address = &value;
  return address;
}
__global__ void local_out_of_scope(int *out, int **where) {
  if (threadIdx.x == 0)
    *where = returned_address(int(blockIdx.x)); // kept for the next kernel
}
__global__ void use_local_of_old_kernel(int *out, int **where) {
  out[0] = **where; // fault(local_of_an_old_kernel): out of bounds
}
CASE(local_of_an_old_kernel) {
  Device<int> out(1);
  Device<int *> where(1);
  local_out_of_scope<<<1, 32>>>(out, where);
  use_local_of_old_kernel<<<1, 1>>>(out, where);
}

__device__ __noinline__ int deep(int n, int *out) {
  int values[16];
  for (int i = 0; i < 16; ++i)
    values[i] = n + i;
  if (n > 0)
    values[n % 16] += deep(n - 1, out); // fault(recursion_too_deep): out of bounds
  return values[(n * 7) % 16];
}
__global__ void recursion_too_deep(int *out, int n) { out[threadIdx.x] = deep(n, out); }
CASE(recursion_too_deep) {
  Device<int> out(32);
  recursion_too_deep<<<1, 32>>>(out, 60); // of 64 bytes and more each, and a stack has 1,024
}

// --- memory that nobody wrote ------------------------------------------------------------------------------

__global__ void copy_all(const int *in, int *out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    out[i] = in[i] + 1; // fault(half_copied): uninitialised read
}
CASE(half_copied) {
  int *in;
  cudaMalloc(&in, 256 * sizeof(int));
  Device<int> out(256);
  const std::vector<int> host(128, 1);
  cudaMemcpy(in, host.data(), 128 * sizeof(int), cudaMemcpyHostToDevice);
  copy_all<<<2, 128>>>(in, out, 256);
  cudaFree(in);
}

__global__ void add_one(int *data, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    data[i] = data[i] + 1; // fault(copied_on_the_device): uninitialised read
}
CASE(copied_on_the_device) {
  int *a, *b;
  cudaMalloc(&a, 64 * sizeof(int));
  cudaMalloc(&b, 64 * sizeof(int));
  cudaMemcpy(b, a, 64 * sizeof(int), cudaMemcpyDeviceToDevice); // nobody has written a
  add_one<<<1, 64>>>(b, 64);
  cudaFree(a);
  cudaFree(b);
}

__global__ void sum_managed(const int *in, int *out, int n) {
  int sum = 0;
  for (int i = 0; i < n; ++i)
    sum += in[i]; // fault(managed_unwritten): uninitialised read
  *out = sum;
}
CASE(managed_unwritten) {
  int *in;
  cudaMallocManaged(&in, 64 * sizeof(int));
  for (int i = 0; i < 32; ++i)
    in[i] = i;
  Device<int> out(1);
  sum_managed<<<1, 1>>>(in, out, 64);
  cudaDeviceSynchronize();
  cudaFree(in);
}

__global__ void branch_on_unwritten(int *out) {
  __shared__ int flags[32];
  if (threadIdx.x < 31)
    flags[threadIdx.x] = 0;
  __syncwarp();
  if (flags[31 - threadIdx.x] > 3) // fault(branch_on_unwritten): uninitialised read
    out[threadIdx.x] = 1;
}
CASE(branch_on_unwritten) {
  Device<int> out(32);
  branch_on_unwritten<<<1, 32>>>(out);
}

// --- what the read-only path may not see -------------------------------------------------------------------

__global__ void read_only_path(float *data, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x)
    data[i] = 2.f * data[i];
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x)
    data[n + i] = __ldg(&data[n - 1 - i]); // fault(read_only_path): read only
}
CASE(read_only_path) {
  Device<float> data(256);
  read_only_path<<<1, 64>>>(data, 128);
}

__global__ void local_past_end_by_one(const int *digits, int *out) {
  int count[10] = {};
  for (int i = 0; i < 32; ++i)
    ++count[digits[i]]; // fault(local_past_end_by_one): out of bounds
  for (int i = 0; i < 10; ++i)
    out[i] = count[i];
}
CASE(local_past_end_by_one) {
  Device<int> digits(32), out(10);
  const std::vector<int> host(32, 10);
  cudaMemcpy(digits.data, host.data(), digits.bytes, cudaMemcpyHostToDevice);
  local_past_end_by_one<<<1, 1>>>(digits, out);
}

__constant__ float few_weights[16];
CASE(copied_past_a_variable) {
  const float host[32] = {};
  cudaMemcpyToSymbol(few_weights, host, sizeof host); // fault(copied_past_a_variable): bad copy
}

__global__ void fragment_half_filled(float *out) {
  using namespace nvcuda::wmma;
  __shared__ __half tile[16 * 16];
  if (threadIdx.x < 16)
    for (int x = 0; x < 8; ++x)
      tile[16 * threadIdx.x + x] = 1;
  __syncwarp();
  fragment<matrix_a, 16, 16, 16, __half, row_major> a;
  fragment<matrix_b, 16, 16, 16, __half, row_major> b;
  fragment<accumulator, 16, 16, 16, float> c;
  fill_fragment(b, 1);
  fill_fragment(c, 0);
  load_matrix_sync(a, tile, 16); // fault(fragment_half_filled): uninitialised read
  mma_sync(c, a, b, c);
  store_matrix_sync(out, c, 16, mem_row_major);
}
CASE(fragment_half_filled) {
  Device<float> out(256);
  fragment_half_filled<<<1, 32>>>(out);
}

// --- values of memory that is written in part --------------------------------------------------------------

__global__ void write_xyz(float4 *points) {
  float4 &p = points[threadIdx.x];
  p.x = threadIdx.x;
  p.y = 2;
  p.z = 3;
}
struct Points {
  float4 *data;
  Points() {
    cudaMalloc(&data, 32 * sizeof(float4));
    write_xyz<<<1, 32>>>(data);
  }
  ~Points() { cudaFree(data); }
};

__global__ void fourth_as_an_index(const float4 *points, float *out) {
  const float4 p = points[threadIdx.x];
  out[int(p.w) & 31] = p.x + p.y; // fault(fourth_as_an_index): uninitialised read
}
CASE(fourth_as_an_index) {
  Points points;
  Device<float> out(32);
  fourth_as_an_index<<<1, 32>>>(points.data, out);
}

__global__ void fourth_in_a_branch(const float4 *points, float *out) {
  const float4 p = points[threadIdx.x];
  if (p.w > 0) // fault(fourth_in_a_branch): uninitialised read
    for (int i = 0; i < 100; ++i)
      atomicAdd(&out[i % 32], p.x);
}
CASE(fourth_in_a_branch) {
  Points points;
  Device<float> out(32);
  fourth_in_a_branch<<<1, 32>>>(points.data, out);
}

__global__ void sum_of_four(const float4 *points, float *out) {
  const float4 p = points[threadIdx.x];
  out[threadIdx.x] = p.x + p.y + p.z + p.w; // fault(fourth_in_a_sum): uninitialised read
}
CASE(fourth_in_a_sum) {
  Points points;
  Device<float> out(32);
  float host[32];
  sum_of_four<<<1, 32>>>(points.data, out);
  cudaMemcpy(host, out, sizeof host, cudaMemcpyDeviceToHost);
}

__global__ void copy_points(const float4 *points, float4 *out) {
  __shared__ float4 tile[32];
  tile[threadIdx.x] = points[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = tile[31 - threadIdx.x]; // fault(fourth_copied_twice): uninitialised read
}
CASE(fourth_copied_twice) {
  Points points;
  Device<float4> out(32), again(32);
  float4 host[32];
  copy_points<<<1, 32>>>(points.data, out);
  cudaMemcpy(again, out, out.bytes, cudaMemcpyDeviceToDevice);
  cudaMemcpy(host, again, sizeof host, cudaMemcpyDeviceToHost);
}

__noinline__ __device__ void find(const int *values, int &value, int i) {
  if (i % 3)
    value = values[i];
}
__global__ void value_without_its_condition(const int *values, int *out) {
  int value, sum;
  find(values, value, threadIdx.x);
  find(values, sum, threadIdx.x + 32);
  out[threadIdx.x] = value; // fault(value_without_its_condition): uninitialised read
  atomicAdd(&out[32], sum); // fault(sum_without_its_condition): uninitialised read
}
CASE(value_without_its_condition) {
  Device<int> in(64), out(33);
  value_without_its_condition<<<1, 32>>>(in, out);
}
CASE(sum_without_its_condition) {
  Device<int> in(64), out(33);
  value_without_its_condition<<<1, 32>>>(in, out);
}

__global__ void fourth_of_another_lane(const float4 *points, float *out) {
  const float4 p = points[threadIdx.x];
  float mine = threadIdx.x < 16 ? p.x : p.w;
  mine = __shfl_sync(0xffffffff, mine, 31 - threadIdx.x);
  out[threadIdx.x] = mine; // fault(fourth_of_another_lane): uninitialised read
}
CASE(fourth_of_another_lane) {
  Points points;
  Device<float> out(32);
  float host[32];
  fourth_of_another_lane<<<1, 32>>>(points.data, out);
  cudaMemcpy(host, out, sizeof host, cudaMemcpyDeviceToHost);
}

} // namespace
