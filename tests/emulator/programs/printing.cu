// printf of every kind of argument; assert, which fails when the program is given an argument.
#include <cassert>
#include <cstdio>

__global__ void print(int limit) {
  const int i = threadIdx.x;
  if (i == 3) {
    printf("lane %d of %u: %5.2f %e %s %c %%\n", i, blockDim.x, 3.14159, 1e10, "text", 'x');
    printf("%lld %llu %x %p\n", -5000000000ll, 5000000000ull, 255, nullptr);
  }
  assert(i < limit && "too large");
}

int main(int count, char **) {
  print<<<1, 32>>>(count > 1 ? 20 : 32);
  const cudaError_t code = cudaDeviceSynchronize();
  printf("%s\n", cudaGetErrorName(code));
  return code == cudaSuccess ? 0 : 3;
}
