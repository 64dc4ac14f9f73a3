#include "histogram256.cu"

#include "driver.cuh"

int main(int argc, char **argv) {
  // The sample launches 240 and 256 blocks, more than an H200 has SMs.
  constexpr uint bytes = 49152, blocks = 8, merged = HISTOGRAM256_BIN_COUNT / 2;
  std::srand(2009); // as the sample's main
  auto *data = driver::array_of<uchar>(bytes, [](auto) { return std::rand() % 256; });
  auto *partial = driver::array<uint>(blocks * HISTOGRAM256_BIN_COUNT),
       *histogram = driver::array<uint>(HISTOGRAM256_BIN_COUNT);
  return driver::repeat(argc, argv, [&] {
    histogram256Kernel<<<blocks, HISTOGRAM256_THREADBLOCK_SIZE>>>(partial, reinterpret_cast<uint *>(data),
                                                                  bytes / sizeof(uint));
    mergeHistogram256Kernel<<<merged, MERGE_THREADBLOCK_SIZE>>>(histogram, partial, blocks);
  });
}
