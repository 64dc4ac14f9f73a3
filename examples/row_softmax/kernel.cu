// Softmax of each row of a matrix, in tiles: a warp for 16 rows, which it holds in registers from the load to
// the store.
#include "ladder/dispatch.h"
#include "ladder/row_softmax.h"
#include "tiles/tiles.h"

namespace {

using namespace tiles;

constexpr int kWarps = 4, kRows = 16;

template <typename T, int kCols>
__global__ void __launch_bounds__(kWarps * 32) row_softmax(const ladder::RowSoftmaxProblem problem) {
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

template <typename T> void launch_element(const ladder::RowSoftmaxProblem &p, cudaStream_t stream) {
  const dim3 grid = ladder::launch_grid((p.rows + kWarps * kRows - 1) / (kWarps * kRows), 1);
  if (p.cols == 32)
    row_softmax<T, 32><<<grid, kWarps * 32, 0, stream>>>(p);
  else if (p.cols == 64)
    row_softmax<T, 64><<<grid, kWarps * 32, 0, stream>>>(p);
  else if (p.cols == 128)
    row_softmax<T, 128><<<grid, kWarps * 32, 0, stream>>>(p);
  else
    throw std::invalid_argument("row_softmax takes 32, 64 or 128 columns, not " + std::to_string(p.cols));
}

} // namespace

void ladder::launch(const RowSoftmaxProblem &p, cudaStream_t stream) {
  switch (p.dtype) {
  case DType::f16:
    launch_element<__half>(p, stream);
    break;
  case DType::bf16:
    launch_element<__nv_bfloat16>(p, stream);
    break;
  default:
    throw std::invalid_argument("row_softmax takes f16 and bf16");
  }
  ladder::check(cudaGetLastError(), "row_softmax: launch");
}
