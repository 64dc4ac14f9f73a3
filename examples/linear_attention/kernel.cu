// Causal linear attention in tiles. A block processes one head, d rows at a time, 16 per warp. Among these
// rows, the result is a masked product as in attention; all earlier rows are summed up in the state, the sum
// of k^T v: a d x d matrix, of which each warp keeps and updates 16 rows in registers.
#include "ladder/dispatch.h"
#include "ladder/linear_attention.h"
#include "tiles/tiles.h"

namespace {

using namespace tiles;

template <typename T, int d>
__global__ void __launch_bounds__(2 * d)
    attend(const __grid_constant__ ladder::LinearAttentionProblem problem) {
  using block = group<d / 16>;
  const int64_t head = int64_t(blockIdx.x) * problem.length * d;
  const GlobalMatrix<const T, d> q_gmem{static_cast<const T *>(problem.q) + head, problem.length};
  const GlobalMatrix<const T, d> k_gmem{static_cast<const T *>(problem.k) + head, problem.length};
  const GlobalMatrix<const T, d> v_gmem{static_cast<const T *>(problem.v) + head, problem.length};
  const GlobalMatrix<T, d> o_gmem{static_cast<T *>(problem.o) + head, problem.length};
  const int warp_row = 16 * block::warp();

  extern __shared__ __align__(128) unsigned char smem[];
  auto &[k_smem, v_smem, state_smem] = SharedAllocator(smem).allocate<SharedTile<T, d, d>, 3>();
  RegTile<float, 16, d> weights, o, state;
  RegTile<T, 16, d> q, weights_16, o_16, state_16;
  zero(state);

  for (int row = 0; row < problem.length; row += d) {
    block::load(k_smem, k_gmem, row);
    block::load(v_smem, v_gmem, row);
    copy(state_16, state);
    block::store(state_smem, state_16);
    block::sync();

    // o = tril(q k^T) v + q state
    block::load(q, q_gmem, row);
    mma_ABt(weights, q, k_smem);
    make_causal(weights, weights, warp_row, 0, 0.f);
    copy(weights_16, weights);
    mma_AB(o, weights_16, v_smem);
    mma_AB(o, q, state_smem, o);
    copy(o_16, o);
    block::store(o_gmem, o_16, row);

    // state += k^T v
    mma_AtB(state, part<d, 16>(k_smem, 0, warp_row), v_smem, state);
    block::sync(); // before the tiles are overwritten
  }
}

} // namespace

void ladder::launch(const LinearAttentionProblem &p, cudaStream_t stream) {
  const dim3 grid = launch_grid(p.heads, 1);
  dispatch_16_bit(p, [&](auto element) {
    dispatch_head_dim<32, 64, 128>(p, [&](auto d) {
      constexpr auto kernel = attend<decltype(element), d>;
      constexpr int smem_bytes = SharedAllocator::bytes<SharedTile<decltype(element), d, d>, 3>;
      check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem_bytes),
            "linear_attention: shared memory");
      kernel<<<grid, 2 * d, smem_bytes, stream>>>(p);
    });
  });
  check(cudaGetLastError(), "linear_attention: launch");
}
