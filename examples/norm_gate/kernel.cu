// The step after HSTU's attention: a layer norm of each row, times the gate. In one kernel the normalised
// rows stay in registers. Two kernels would store and load them.
#include "ladder/dispatch.h"
#include "ladder/norm_gate.h"
#include "tiles/tiles.h"

namespace {

using namespace tiles;

constexpr int kWarps = 4, kRows = 16;

template <typename T, int kCols>
__global__ void __launch_bounds__(kWarps * 32)
    norm_gate(const __grid_constant__ ladder::NormGateProblem problem) {
  using Gmem = GlobalMatrix<const T, kCols>;
  const int row = (blockIdx.x * kWarps + threadIdx.x / 32) * kRows;

  RegTile<T, kRows, kCols> in_dtype;
  RegTile<float, kRows, kCols> x, gate;
  typename RegTile<float, kRows, kCols>::ColVec mean, scale;
  typename RegTile<float, kRows, kCols>::RowVec weight, bias;
  load(in_dtype, Gmem{static_cast<const T *>(problem.x), problem.rows}, row);
  load(weight, GlobalVec<const T>{static_cast<const T *>(problem.weight), kCols});
  load(bias, GlobalVec<const T>{static_cast<const T *>(problem.bias), kCols});

  copy(x, in_dtype);
  load(in_dtype, Gmem{static_cast<const T *>(problem.gate), problem.rows}, row);
  row_sum(mean, x);
  mul(mean, mean, 1.f / kCols);
  sub_row(x, x, mean);

  mul(gate, x, x);
  row_sum(scale, gate);
  mul(scale, scale, 1.f / kCols); // the variance
  add(scale, scale, problem.epsilon);
  rsqrt(scale, scale);

  mul_row(x, x, scale);
  mul_col(x, x, weight);
  add_col(x, x, bias);
  copy(gate, in_dtype);
  mul(x, x, gate);
  copy(in_dtype, x);
  store(GlobalMatrix<T, kCols>{static_cast<T *>(problem.y), problem.rows}, in_dtype, row);
}

} // namespace

void ladder::launch(const NormGateProblem &p, cudaStream_t stream) {
  const dim3 grid = launch_grid((p.rows + kWarps * kRows - 1) / (kWarps * kRows), 1);
  dispatch_16_bit(p, [&](auto element) {
    dispatch_size<64, 128>("cols", p.cols, [&](auto cols) {
      norm_gate<decltype(element), cols><<<grid, kWarps * 32, 0, stream>>>(p);
    });
  });
  check(cudaGetLastError(), "norm_gate: launch");
}
