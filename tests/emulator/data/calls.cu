// Source of calls.ptx: nvcc -ptx -std=c++17 -lineinfo -arch compute_80 calls.cu
#include <cassert>
#include <cstdio>

struct Pair {
  int count;
  double weight;
  char tag[5];
};

typedef int (*Function)(int);

__constant__ float table[2][3] = {{1, 2, 3}, {4, 5, -6}};
__device__ int values[100];
__device__ int *third = &values[3];
__device__ const char *greeting = "hi\n";

__device__ __noinline__ int triple(int x) { return x * 3; }
__device__ __noinline__ int plus_three(int x) { return x + 3; }
__device__ Function functions[2] = {triple, plus_three};
__device__ __noinline__ Pair grow(Pair pair, int by) {
  pair.count += by;
  pair.tag[2] = by;
  return pair;
}

extern __shared__ float dynamic[];

__device__ __forceinline__ float square(float x) { return x * x + 1.0f; }
__device__ __forceinline__ float twice(float x) { return square(x) + square(x * 2); }

__global__ void __launch_bounds__(128, 2) inlined(Pair pair, float *out, int n) {
  __shared__ float tile[32][33];
  tile[threadIdx.x % 32][threadIdx.y] = out[threadIdx.x];
  __syncthreads();
  dynamic[threadIdx.x] = tile[threadIdx.y][threadIdx.x % 32];
  __syncthreads();
  out[threadIdx.x] = twice(dynamic[threadIdx.x ^ 1]) + table[n][threadIdx.x % 3];
  out[n] = grow(pair, n).weight;
  printf("%d %f\n", n, pair.weight);
  assert(n > 0);
}

__global__ void pointers(int *out, int which) {
  out[threadIdx.x] = functions[which](threadIdx.x) + *third + greeting[which];
}
