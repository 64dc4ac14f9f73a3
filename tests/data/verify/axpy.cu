// y = a x + b in half precision: blocks of 128 threads.
#include <cuda_fp16.h>

__global__ void plain(float a, const __half *x, const __half *b, __half *y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    y[i] = __float2half(a * __half2float(x[i]) + __half2float(b[i]));
}

__global__ void in_half(float a, const __half *x, const __half *b, __half *y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    y[i] = __hadd(__hmul(__float2half(a), x[i]), b[i]);
}

__device__ void pair_of(__half2 a, const __half *x, const __half *b, __half *y, int i) {
  auto pair = [i](const __half *p) { return reinterpret_cast<const __half2 *>(p)[i]; };
  reinterpret_cast<__half2 *>(y)[i] = __hfma2(a, pair(x), pair(b));
}

__global__ void pairs_and_tail(float a, const __half *x, const __half *b, __half *y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n / 2)
    pair_of(__float2half2_rn(a), x, b, y, i);
  if (i == 0 && n % 2)
    y[n - 1] = __hfma(__float2half(a), x[n - 1], b[n - 1]);
}

__global__ void grid_stride(float a, const __half *x, const __half *b, __half *y, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x)
    y[i] = __float2half(fmaf(a, __half2float(x[i]), __half2float(b[i])));
}

__global__ void pairs_without_tail(float a, const __half *x, const __half *b, __half *y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n / 2)
    pair_of(__float2half2_rn(a), x, b, y, i);
}

__global__ void one_pair_too_many(float a, const __half *x, const __half *b, __half *y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < (n + 1) / 2)
    pair_of(__float2half2_rn(a), x, b, y, i);
}

__global__ void fewer_digits(float a, const __half *x, const __half *b, __half *y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) // as if an 8-bit format kept x
    y[i] = __float2half(a * (rintf(__half2float(x[i]) * 8) / 8) + __half2float(b[i]));
}
