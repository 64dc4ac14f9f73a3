// Softmax of each row of a matrix, in tiles: a warp holds 16 rows in registers from load to store.
#include "ladder/dispatch.h"
#include "ladder/row_softmax.h"
#include "tiles/tiles.h"

namespace {

using namespace tiles;

constexpr int kWarps = 4, kRows = 16;

template <typename T, int kCols>
__global__ void __launch_bounds__(kWarps * 32)
    row_softmax(const __grid_constant__ ladder::RowSoftmaxProblem problem) {
  const GlobalMatrix<const T, kCols> x_gmem{static_cast<const T *>(problem.x), problem.rows};
  const GlobalMatrix<T, kCols> y_gmem{static_cast<T *>(problem.y), problem.rows};
  const int row = (blockIdx.x * kWarps + threadIdx.x / 32) * kRows;

  RegTile<T, kRows, kCols> in_dtype;
  RegTile<float, kRows, kCols> x;
  typename RegTile<float, kRows, kCols>::ColVec maximum, sum;
  load(in_dtype, x_gmem, row);
  copy(x, in_dtype);
  row_max(maximum, x);
  sub_row(x, x, maximum);
  exp(x, x);
  row_sum(sum, x);
  div_row(x, x, sum);
  copy(in_dtype, x);
  store(y_gmem, in_dtype, row);
}

} // namespace

void ladder::launch(const RowSoftmaxProblem &p, cudaStream_t stream) {
  const dim3 grid = launch_grid((p.rows + kWarps * kRows - 1) / (kWarps * kRows), 1);
  dispatch_16_bit(p, [&](auto element) {
    dispatch_size<32, 64, 128>("cols", p.cols, [&](auto cols) {
      row_softmax<decltype(element), cols><<<grid, kWarps * 32, 0, stream>>>(p);
    });
  });
  check(cudaGetLastError(), "row_softmax: launch");
}
