// Loads or stores a box of a tensor of 3 x 20 x 64 elements at the coordinates given, or adds to it. Prints
// how many elements of the tensor have changed, or of the box are not 0, or the error.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "tiles/ring.h"
#include "tiles/tensor_map.h"
#include "tiles/tiles.h"

using namespace tiles;

constexpr int kMatrices = 3, kRows = 20;
using Tile = SharedTile<__nv_bfloat16, 16, 64>;

enum class What { load, store, add };

__global__ void copy_box(const __grid_constant__ tma::TensorMap<Tile> map, What what, int col, int row,
                         int matrix, int *loaded) {
  __shared__ alignas(1024) Tile tile;
  __shared__ Barrier full;
  for (int i = threadIdx.x; i < Tile::rows * Tile::cols; i += blockDim.x)
    tile.data[i] = __float2bfloat16(1.f);
  if (threadIdx.x == 0) {
    full.init(1);
    fence_barrier_init();
  }
  fence_async_proxy();
  __syncthreads();
  if (threadIdx.x > 0)
    return;
  const uint32_t address = ptx::shared_address(tile.data);
  if (what == What::store) {
    asm volatile(
        "cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%1, %2, 0, %3}], [%4];" ::"l"(&map),
        "r"(col), "r"(row), "r"(matrix), "r"(address)
        : "memory");
  } else if (what == What::add) {
    asm volatile("cp.reduce.async.bulk.tensor.4d.global.shared::cta.add.tile.bulk_group [%0, {%1, %2, 0, "
                 "%3}], [%4];" ::"l"(&map),
                 "r"(col), "r"(row), "r"(matrix), "r"(address)
                 : "memory");
  } else {
    full.arrive_and_expect(sizeof tile);
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], "
                 "[%1, {%2, %3, "
                 "0, %4}], [%5];" ::"r"(address),
                 "l"(&map), "r"(col), "r"(row), "r"(matrix), "r"(full.address())
                 : "memory");
    full.wait(0);
    for (int i = 0; i < Tile::rows * Tile::cols; i++)
      *loaded += __bfloat162float(tile.data[i]) != 0;
  }
  tma::store_commit();
  tma::store_wait_read();
}

/// Arguments: load, store or add; column, row, matrix.
int main(int, char **words) {
  const What what = words[1][0] == 'l' ? What::load : words[1][0] == 's' ? What::store : What::add;
  std::vector<unsigned short> tensor(kMatrices * kRows * Tile::cols, what == What::load ? 0x3f80 : 0);
  const size_t bytes = tensor.size() * sizeof tensor[0];
  int *loaded, found = 0;
  void *data;
  cudaMalloc(&data, bytes);
  cudaMalloc(&loaded, sizeof *loaded);
  cudaMemcpy(data, tensor.data(), bytes, cudaMemcpyHostToDevice);
  cudaMemset(loaded, 0, sizeof *loaded);
  copy_box<<<1, 32>>>(tma::tensor_map<Tile>(data, kRows, kMatrices), what, std::atoi(words[2]),
                      std::atoi(words[3]), std::atoi(words[4]), loaded);
  if (const cudaError_t error = cudaDeviceSynchronize()) {
    std::puts(cudaGetErrorString(error));
    return 1;
  }
  cudaMemcpy(&found, loaded, sizeof found, cudaMemcpyDeviceToHost);
  cudaMemcpy(tensor.data(), data, bytes, cudaMemcpyDeviceToHost);
  if (what != What::load)
    for (const unsigned short element : tensor)
      found += element != 0;
  std::printf("%d elements\n", found);
  cudaFree(data);
  cudaFree(loaded);
}
