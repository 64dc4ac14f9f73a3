#include "scan.cu"

#include "driver.cuh"

int main(int argc, char **argv) {
  constexpr uint arrays = 8, elements = 1024;
  auto *in = driver::array_of<uint>(arrays * elements, [](auto i) { return i; }),
       *out = driver::array<uint>(arrays * elements);
  return driver::repeat(argc, argv, [&] { scanExclusiveShort(out, in, arrays, elements); });
}
