// Layer normalisation of each row of a matrix, in tiles: a warp holds 16 rows in registers from load to
// store, so that mean and variance take two passes over registers and none over memory.
#include "ladder/dispatch.h"
#include "ladder/layer_norm.h"
#include "tiles/tiles.h"

namespace {

using namespace tiles;

constexpr int kWarps = 4, kRows = 16;

template <typename T, int kCols>
__global__ void __launch_bounds__(kWarps * 32)
    layer_norm(const __grid_constant__ ladder::LayerNormProblem problem) {
  const GlobalMatrix<const T, kCols> x_gmem{static_cast<const T *>(problem.x), problem.rows};
  const GlobalMatrix<T, kCols> y_gmem{static_cast<T *>(problem.y), problem.rows};
  const int row = (blockIdx.x * kWarps + threadIdx.x / 32) * kRows;

  RegTile<T, kRows, kCols> in_dtype;
  RegTile<float, kRows, kCols> x, square;
  typename RegTile<float, kRows, kCols>::ColVec mean, scale;
  typename RegTile<float, kRows, kCols>::RowVec weight, bias;
  load(in_dtype, x_gmem, row);
  load(weight, GlobalVec<const T>{static_cast<const T *>(problem.weight), kCols});
  load(bias, GlobalVec<const T>{static_cast<const T *>(problem.bias), kCols});

  copy(x, in_dtype);
  row_sum(mean, x);
  mul(mean, mean, 1.f / kCols);
  sub_row(x, x, mean);

  mul(square, x, x);
  row_sum(scale, square);
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
  const dim3 grid = launch_grid((p.rows + kWarps * kRows - 1) / (kWarps * kRows), 1);
  dispatch_16_bit(p, [&](auto element) {
    dispatch_size<64, 128, 256>("cols", p.cols, [&](auto cols) {
      layer_norm<decltype(element), cols><<<grid, kWarps * 32, 0, stream>>>(p);
    });
  });
  check(cudaGetLastError(), "layer_norm: launch");
}
