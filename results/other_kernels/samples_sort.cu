#include "bitonicSort.cu"

#include "driver.cuh"

int main(int argc, char **argv) {
  constexpr uint arrays = 8, elements = SHARED_SIZE_LIMIT, all = arrays * elements;
  std::srand(2001); // as the sample's main
  auto *keys = driver::array_of<uint>(all, [](auto) { return std::rand() % 65536; }),
       *values = driver::array_of<uint>(all, [](auto i) { return i; }),
       *sorted_keys = driver::array<uint>(all), *sorted_values = driver::array<uint>(all);
  return driver::repeat(argc, argv,
                        [&] { bitonicSort(sorted_keys, sorted_values, keys, values, arrays, elements, 0); });
}
