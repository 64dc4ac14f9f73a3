// Division of 128-bit integers, which the compiler makes of chains of sub.cc, subc.cc and addc.
#include "check.h"

using Wide = unsigned __int128;

__global__ void divide(Wide a, Wide b, Wide *out) {
  out[0] = a / b;
  out[1] = a % b;
  out[2] = Wide(__int128(a) / __int128(b));
  out[3] = Wide(__int128(a) % __int128(b));
  out[4] = a - b;
  out[5] = a < b;
}

int main() {
  Wide *out;
  CUDA(cudaMallocManaged(&out, 6 * sizeof(Wide)));
  const unsigned long long words[] = {0, 1, 3, 10, 1ull << 63, ~0ull, 0x123456789abcdefull};
  for (const Wide high : words)
    for (const Wide low : words)
      for (const Wide divisor_high : {words[0], words[1], words[4], words[6]})
        for (const Wide divisor_low : words) {
          const Wide a = high << 64 | low, b = divisor_high << 64 | divisor_low;
          const bool overflows = a == Wide(1) << 127 && b == ~Wide(0);
          if (b == 0 || overflows)
            continue;
          divide<<<1, 1>>>(a, b, out);
          CUDA(cudaDeviceSynchronize());
          CHECK(out[0] == a / b);
          CHECK(out[1] == a % b);
          CHECK(out[2] == Wide(__int128(a) / __int128(b)));
          CHECK(out[3] == Wide(__int128(a) % __int128(b)));
          CHECK(out[4] == a - b);
          CHECK(out[5] == (a < b));
        }
}
