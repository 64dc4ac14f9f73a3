#include "histogram64.cu"

#include "driver.cuh"

int main(int argc, char **argv) {
  constexpr uint blocks = 4, bytes = blocks * HISTOGRAM64_THREADBLOCK_SIZE * 240;
  std::srand(2009); // as the sample's main
  auto *data = driver::array_of<uchar>(bytes, [](auto) { return std::rand() % 256; });
  auto *histogram = driver::array<uint>(HISTOGRAM64_BIN_COUNT);
  initHistogram64();
  return driver::repeat(argc, argv, [&] { histogram64(histogram, data, bytes); });
}
