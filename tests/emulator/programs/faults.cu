// Each argument is a way to go wrong.
#include <cstdio>
#include <cstring>

__device__ int helper(const int *data, int i) {
  return data[i]; // reads beyond the end
}

__global__ void out_of_bounds(const int *data, int *out) {
  out[threadIdx.x] = helper(data, threadIdx.x + 90);
}

__global__ void write(int *out) { *out = 1; }

__global__ void shared_out_of_bounds(int *out) {
  __shared__ int data[32];
  data[threadIdx.x * 2] = 1;
  __syncthreads();
  out[threadIdx.x] = data[threadIdx.x];
}

__global__ void constant_write(int *out, int *constant) { constant[threadIdx.x] = 1; }
__constant__ int values[32];
__global__ void keep_values(int *out) { out[threadIdx.x] = values[threadIdx.x]; }

__global__ void deadlock(volatile int *flag) {
  if (threadIdx.x < 32)
    __syncthreads();
  else
    while (*flag == 0) {
    }
}

__global__ void endless(volatile int *flag) {
  while (*flag == 0) {
  }
}

__device__ int peek(const int *place) {
  return __ldcg(place); // a function of CUDA's headers
}

__global__ void in_header(const int *in, int *out) { out[threadIdx.x] = peek(in + 1000); }

int main(int count, char **words) {
  const char *way = count > 1 ? words[1] : "";
  int *data, *out;
  cudaMalloc(&data, 100 * sizeof(int));
  cudaMalloc(&out, 100 * sizeof(int));
  if (!std::strcmp(way, "out_of_bounds"))
    out_of_bounds<<<1, 32>>>(data, out);
  else if (!std::strcmp(way, "shared"))
    shared_out_of_bounds<<<1, 32>>>(out);
  else if (!std::strcmp(way, "constant")) {
    void *constant;
    cudaGetSymbolAddress(&constant, values);
    constant_write<<<1, 32>>>(out, static_cast<int *>(constant));
    keep_values<<<1, 32>>>(out);
  } else if (!std::strcmp(way, "null"))
    write<<<1, 1>>>(nullptr);
  else if (!std::strcmp(way, "null_field"))
    write<<<1, 1>>>(reinterpret_cast<int *>(40));
  else if (!std::strcmp(way, "host")) {
    int local[1];
    write<<<1, 1>>>(local);
  } else if (!std::strcmp(way, "freed")) {
    cudaFree(out);
    write<<<1, 1>>>(out + 10);
  } else if (!std::strcmp(way, "far"))
    write<<<1, 1>>>(reinterpret_cast<int *>(1ll << 40));
  else if (!std::strcmp(way, "deadlock"))
    deadlock<<<1, 160>>>(data);
  else if (!std::strcmp(way, "in_header"))
    in_header<<<1, 32>>>(data, out);
  else if (!std::strcmp(way, "endless"))
    endless<<<1, 64>>>(data);
  const cudaError_t code = cudaDeviceSynchronize();
  std::printf("%s\n", cudaGetErrorName(code));
  return code == cudaSuccess ? 0 : 4;
}
