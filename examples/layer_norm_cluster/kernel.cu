// Layer normalisation with each row in two blocks: half of its columns in the registers of either. The blocks
// are a cluster. They exchange their sums, one value per row, through each other's shared memory.
#include "ladder/dispatch.h"
#include "ladder/layer_norm.h"
#include "tiles/cluster.h"
#include "tiles/tiles.h"

namespace {

using namespace tiles;

constexpr int kWarps = 4, kRows = 16;

template <typename T, int kCols>
__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(kWarps * 32)
    layer_norm(const __grid_constant__ ladder::LayerNormProblem problem) {
  constexpr int half = kCols / 2;
  const int first = cluster::rank() * half, warp = threadIdx.x / 32;
  const int row = (blockIdx.x / 2 * kWarps + warp) * kRows;
  const StridedMatrix<const T, half> x_gmem{static_cast<const T *>(problem.x) + first, problem.rows, kCols};
  const StridedMatrix<T, half> y_gmem{static_cast<T *>(problem.y) + first, problem.rows, kCols};

  __shared__ cluster::Mailbox<kRows> sums[kWarps], squares[kWarps];
  if (threadIdx.x < kWarps) {
    sums[threadIdx.x].init();
    squares[threadIdx.x].init();
    fence_barrier_init();
  }
  cluster::sync(); // the other block's mailboxes are ready

  RegTile<T, kRows, half> in_dtype;
  RegTile<float, kRows, half> x, square;
  typename RegTile<float, kRows, half>::ColVec mean, scale;
  typename RegTile<float, kRows, half>::RowVec weight, bias;
  load(in_dtype, x_gmem, row);
  load(weight, GlobalVec<const T>{static_cast<const T *>(problem.weight) + first, half});
  load(bias, GlobalVec<const T>{static_cast<const T *>(problem.bias) + first, half});

  copy(x, in_dtype);
  row_sum(mean, x);
  cluster::add_other(mean, sums[warp]);
  mul(mean, mean, 1.f / kCols);
  sub_row(x, x, mean);

  mul(square, x, x);
  row_sum(scale, square);
  cluster::add_other(scale, squares[warp]);
  mul(scale, scale, 1.f / kCols); // the variance
  add(scale, scale, problem.epsilon);
  rsqrt(scale, scale);

  mul_row(x, x, scale);
  mul_col(x, x, weight);
  add_col(x, x, bias);
  copy(in_dtype, x);
  store(y_gmem, in_dtype, row);
}

} // namespace

void ladder::launch(const LayerNormProblem &p, cudaStream_t stream) {
  const dim3 grid = launch_grid(2 * ((p.rows + kWarps * kRows - 1) / (kWarps * kRows)), 1);
  dispatch_16_bit(p, [&](auto element) {
    dispatch_size<64, 128, 256>("cols", p.cols, [&](auto cols) {
      layer_norm<decltype(element), cols><<<grid, kWarps * 32, 0, stream>>>(p);
    });
  });
  check(cudaGetLastError(), "layer_norm_cluster: launch");
}
