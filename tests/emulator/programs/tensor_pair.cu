// Each block of a pair loads its half of a tensor; the even block's mbarrier counts the bytes of both.
#include <vector>

#include "check.h"
#include "tiles/ring.h"
#include "tiles/tensor_map.h"
#include "tiles/tiles.h"

using namespace tiles;

using Tile = SharedTile<__nv_bfloat16, 16, 64>;

__global__ void __cluster_dims__(2)
    load_halves(const __grid_constant__ tma::TensorMap<Tile> map, __nv_bfloat16 *out) {
  __shared__ alignas(1024) Tile tile;
  __shared__ Barrier full;
  const int rank = blockIdx.x;
  if (threadIdx.x == 0) {
    full.init(1);
    fence_barrier_init();
  }
  const auto cluster_sync = [] {
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
  };
  cluster_sync();
  if (threadIdx.x == 0) {
    if (rank == 0)
      full.arrive_and_expect(2 * sizeof tile);
    // A shared address has the block's rank from bit 24 on.
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.cta_group::2 "
        "[%0], [%1, {%2, %3, %2, %2}], [%4];" ::"r"(ptx::shared_address(tile.data)),
        "l"(&map), "r"(0), "r"(16 * rank), "r"(full.address() & 0xFEFFFFFF)
        : "memory");
  }
  if (rank == 0)
    full.wait(0);
  cluster_sync();
  for (int i = threadIdx.x; i < 16 * 64; i += 32) // the tile's rows of 128 bytes, as they are swizzled
    out[rank * 16 * 64 + i] = tile.data[i];
}

int main() {
  constexpr int kElements = 32 * 64;
  std::vector<__nv_bfloat16> data(kElements), found(kElements);
  for (int i = 0; i < kElements; i++)
    data[i] = __float2bfloat16(float(i % 256));
  __nv_bfloat16 *tensor, *out;
  CUDA(cudaMalloc(&tensor, kElements * 2));
  CUDA(cudaMalloc(&out, kElements * 2));
  CUDA(cudaMemcpy(tensor, data.data(), kElements * 2, cudaMemcpyHostToDevice));
  load_halves<<<2, 32>>>(tma::tensor_map<Tile>(tensor, 32, 1), out);
  CUDA(cudaDeviceSynchronize());
  CUDA(cudaMemcpy(found.data(), out, kElements * 2, cudaMemcpyDeviceToHost));
  for (int row = 0; row < 32; row++)
    for (int col = 0; col < 64; col++) {
      const int at = row * 64 + ((col / 8 ^ row % 8) * 8 + col % 8);
      CHECK(__bfloat162float(found[at]) == __bfloat162float(data[row * 64 + col]));
    }
  CUDA(cudaFree(tensor));
  CUDA(cudaFree(out));
}
