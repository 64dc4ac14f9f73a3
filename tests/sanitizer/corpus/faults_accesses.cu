// Planted faults of single accesses. The line that must be named has a comment: fault, the case in brackets,
// a colon, the kind.
// clang-format off: a fault's mark stands on the line of the fault, however long
#include "corpus.h"

#include <cstdint>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>

namespace {

__device__ uint32_t shared_address(const void *p) { return uint32_t(__cvta_generic_to_shared(p)); }

// --- out of bounds, misaligned -----------------------------------------------------------------------------

__global__ void read_past_end(const float *in, float *out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i <= n)
    out[i % n] = in[i]; // fault(read_past_end): out of bounds
}
CASE(read_past_end) {
  Device<float> in(100), out(100);
  read_past_end<<<1, 128>>>(in, out, 100);
}

__global__ void before_shared_memory(int *out) {
  __shared__ int row[32];
  row[threadIdx.x] = int(threadIdx.x);
  __syncwarp();
  out[threadIdx.x] = row[int(threadIdx.x) - 1]; // fault(before_shared_memory): out of bounds
}
CASE(before_shared_memory) {
  Device<int> out(32);
  before_shared_memory<<<1, 32>>>(out);
}

__global__ void write_past_end(float *out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i <= n)
    out[i] = float(i); // fault(write_past_end): out of bounds
}
CASE(write_past_end) {
  Device<float> out(256);
  write_past_end<<<3, 128>>>(out, 256);
}

__global__ void index_before_begin(const float *in, float *out, int n) {
  const int i = threadIdx.x;
  if (i < n)
    out[i] = in[i] - in[i - 1]; // fault(index_before_begin): out of bounds
}
CASE(index_before_begin) {
  Device<float> in(64), out(64);
  index_before_begin<<<1, 64>>>(in, out, 64);
}

__global__ void offset_overflows(const float *in, float *out, int stride) {
  const int offset = int(blockIdx.x) * stride; // 50000 * 50000 is no int
  out[blockIdx.x] = in[offset]; // fault(offset_overflows): out of bounds
}
CASE(offset_overflows) {
  Device<float> in(64), out(64);
  offset_overflows<<<2, 1>>>(in, out, int(0x80000001u));
}

__global__ void null_pointer(float *out) {
  out[threadIdx.x] = 1.f; // fault(null_pointer): out of bounds
}
CASE(null_pointer) { null_pointer<<<1, 32>>>(nullptr); }

__global__ void shared_past_end(float *out) {
  __shared__ float tile[64];
  tile[threadIdx.x + 1] = float(threadIdx.x); // fault(shared_past_end): out of bounds
  __syncthreads();
  out[threadIdx.x] = threadIdx.x ? tile[threadIdx.x] : 0.f;
}
CASE(shared_past_end) {
  Device<float> out(64);
  shared_past_end<<<1, 64>>>(out);
}

__global__ void dynamic_too_small(float *out) {
  extern __shared__ float dynamic[];
  dynamic[threadIdx.x] = float(threadIdx.x); // fault(dynamic_too_small): out of bounds
  __syncthreads();
  out[threadIdx.x] = dynamic[threadIdx.x];
}
CASE(dynamic_too_small) {
  Device<float> out(64);
  dynamic_too_small<<<1, 64, 32 * sizeof(float)>>>(out);
}

__global__ void local_past_end(float *out, int n) {
  float history[8];
  for (int i = 0; i < n; i++)
    history[(i * 5) % n] = float(i); // fault(local_past_end): out of bounds
  out[threadIdx.x] = history[n % 7];
}
CASE(local_past_end) {
  Device<float> out(32);
  local_past_end<<<1, 32>>>(out, 100);
}

__global__ void misaligned_vector(const float *in, float *out) {
  const float4 v = *reinterpret_cast<const float4 *>(in + 1 + 4 * threadIdx.x); // fault(misaligned_vector): misaligned
  out[threadIdx.x] = v.x + v.y + v.z + v.w;
}
CASE(misaligned_vector) {
  Device<float> in(256), out(32);
  misaligned_vector<<<1, 32>>>(in, out);
}

__global__ void misaligned_shared(float *out, int shift) {
  __shared__ __align__(16) float tile[128];
  tile[threadIdx.x] = tile[threadIdx.x + 64] = 1.f;
  __syncthreads();
  const float2 pair = reinterpret_cast<float2 *>(tile + shift)[threadIdx.x / 2]; // fault(misaligned_shared): misaligned
  out[threadIdx.x] = pair.x + pair.y;
}
CASE(misaligned_shared) {
  Device<float> out(64);
  misaligned_shared<<<1, 64>>>(out, 1);
}

__device__ uint32_t ldmatrix_x1(uint32_t address) {
  uint32_t fragment;
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(fragment) : "r"(address));
  return fragment;
}

__global__ void ldmatrix_row_misaligned(uint32_t *out) {
  __shared__ __align__(16) __half tile[8 * 12 + 8]; // rows of 24 bytes
  for (int i = threadIdx.x; i < 104; i += 32)
    tile[i] = __half(1.f);
  __syncwarp();
  out[threadIdx.x] = ldmatrix_x1(shared_address(tile + threadIdx.x % 8 * 12)); // fault(ldmatrix_row_misaligned): misaligned
}
CASE(ldmatrix_row_misaligned) {
  Device<uint32_t> out(32);
  ldmatrix_row_misaligned<<<1, 32>>>(out);
}

// --- uninitialised -----------------------------------------------------------------------------------------

__global__ void shared_never_written(float *out, int n) {
  __shared__ float sums[32];
  if (n > 32)
    sums[threadIdx.x] = 0.f;
  out[threadIdx.x] += sums[threadIdx.x]; // fault(shared_never_written): uninitialised read
}
CASE(shared_never_written) {
  Device<float> out(32);
  shared_never_written<<<1, 32>>>(out, 32);
}

__global__ void tile_half_filled(const float *in, float *out, int n) {
  __shared__ float tile[64];
  if (int(threadIdx.x) < n)
    tile[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = tile[63 - threadIdx.x]; // fault(tile_half_filled): uninitialised read
}
CASE(tile_half_filled) {
  Device<float> in(64), out(64);
  tile_half_filled<<<1, 64>>>(in, out, 50);
}

__global__ void local_never_written(float *out, int n) {
  float history[16];
  for (int i = 0; i < n; i++)
    history[(i * 3) % 16] = float(i);
  float sum = 0.f;
  for (int i = 0; i < 16; i++)
    sum += history[(i * n) % 16]; // fault(local_never_written): uninitialised read
  out[threadIdx.x] = sum;
}
CASE(local_never_written) {
  Device<float> out(32);
  local_never_written<<<1, 32>>>(out, 5);
}

__global__ void global_never_written(float *sum, const float *in) {
  sum[threadIdx.x] += in[threadIdx.x]; // fault(global_never_written): uninitialised read
}
CASE(global_never_written) {
  float *sum;
  cudaMalloc(&sum, 32 * sizeof(float));
  Device<float> in(32);
  global_never_written<<<1, 32>>>(sum, in);
  cudaFree(sum);
}

__global__ void counter_never_reset(int *counter) {
  atomicAdd(counter, 1); // fault(counter_never_reset): uninitialised read
}
CASE(counter_never_reset) {
  int *counter;
  cudaMalloc(&counter, sizeof(int));
  counter_never_reset<<<1, 32>>>(counter);
  cudaFree(counter);
}

__global__ void copy_with_too_many_bytes(const char *in, float4 *out) {
  __shared__ float4 tile[4];
  __pipeline_memcpy_async(&tile[threadIdx.x], in + 16 * threadIdx.x, sizeof(float4), 8); // fault(copy_with_too_many_bytes): out of bounds
  __pipeline_commit();
  __pipeline_wait_prior(0);
  out[threadIdx.x] = tile[threadIdx.x];
}
CASE(copy_with_too_many_bytes) {
  Device<char> in(52);
  Device<float4> out(4);
  copy_with_too_many_bytes<<<1, 4>>>(in, out);
}

} // namespace
