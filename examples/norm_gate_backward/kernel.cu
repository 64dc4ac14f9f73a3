// The gradients of norm_gate. With xh = (x - mean) r and r = 1 / sqrt(variance + epsilon) it was
//   n = xh weight + bias       y = n gate
// and with g = d_y gate weight
//   d_gate = d_y n             d_bias   = sum over the rows of d_y gate
//   dx     = r (g - mean(g) - xh mean(g xh))
//   d_weight                            = sum over the rows of d_y gate xh
// All of that is computed per row in registers, except the sums over the rows. Each warp stores its part of
// these, and a second kernel adds the parts in a fixed order, so that two runs give the same bits.
#include "ladder/dispatch.h"
#include "ladder/norm_gate.h"
#include "ladder/workspace.h"
#include "tiles/tiles.h"

namespace {

using ladder::NormGateBackwardProblem;
using namespace tiles;

constexpr int kWarps = 4, kRows = 16;

template <typename T, int kCols>
__global__ void __launch_bounds__(kWarps * 32)
    differentiate(const __grid_constant__ NormGateBackwardProblem problem, float *parts) {
  using Tile = RegTile<float, kRows, kCols>;
  const auto &forward = problem.forward;
  const int warp = blockIdx.x * kWarps + threadIdx.x / 32, row = warp * kRows;
  const auto read = [&](Tile &tile, const void *gmem) {
    RegTile<T, kRows, kCols> in_dtype;
    load(in_dtype, GlobalMatrix<const T, kCols>{static_cast<const T *>(gmem), forward.rows}, row);
    copy(tile, in_dtype);
  };
  const auto write = [&](void *gmem, const Tile &tile) {
    RegTile<T, kRows, kCols> in_dtype;
    copy(in_dtype, tile);
    store(GlobalMatrix<T, kCols>{static_cast<T *>(gmem), forward.rows}, in_dtype, row);
  };

  Tile xh, g, other;
  typename Tile::ColVec mean, scale;
  typename Tile::RowVec weight, bias, sum;
  read(xh, forward.x);
  read(g, problem.d_y);
  load(weight, GlobalVec<const T>{static_cast<const T *>(forward.weight), kCols});
  load(bias, GlobalVec<const T>{static_cast<const T *>(forward.bias), kCols});
  row_sum(mean, xh);
  mul(mean, mean, 1.f / kCols);
  sub_row(xh, xh, mean);
  mul(other, xh, xh);
  row_sum(scale, other);
  mul(scale, scale, 1.f / kCols); // the variance
  add(scale, scale, forward.epsilon);
  rsqrt(scale, scale);
  mul_row(xh, xh, scale);

  mul_col(other, xh, weight);
  add_col(other, other, bias);
  mul(other, other, g);
  write(problem.d_gate, other);

  read(other, forward.gate);
  mul(g, g, other);
  row_sum(sum, transposed(g));
  store(GlobalVec<float>{parts + (2 * warp + 1) * int64_t(kCols), kCols}, sum);
  mul(other, g, xh);
  row_sum(sum, transposed(other));
  store(GlobalVec<float>{parts + 2 * warp * int64_t(kCols), kCols}, sum);

  mul_col(g, g, weight);
  row_sum(mean, g);
  mul(mean, mean, 1.f / kCols);
  sub_row(g, g, mean);
  mul_col(other, other, weight);
  row_sum(mean, other);
  mul(mean, mean, 1.f / kCols);
  mul_row(xh, xh, mean);
  sub(g, g, xh);
  mul_row(g, g, scale);
  write(problem.dx, g);
}

/// d_weight and d_bias: one thread per column and gradient.
__global__ void add_up(const __grid_constant__ NormGateBackwardProblem problem, const float *parts,
                       int warps) {
  const int cols = problem.forward.cols, column = threadIdx.x;
  float sum = 0;
  for (int warp = 0; warp < warps; warp++)
    sum += parts[int64_t(warp) * 2 * cols + column];
  *(column < cols ? problem.d_weight + column : problem.d_bias + (column - cols)) = sum;
}

} // namespace

void ladder::launch(const NormGateBackwardProblem &p, cudaStream_t stream) {
  const int blocks = (p.forward.rows + kWarps * kRows - 1) / (kWarps * kRows);
  const dim3 grid = launch_grid(blocks, 1);
  const Workspace<float> parts(size_t(blocks) * kWarps * 2 * p.forward.cols, stream,
                               "norm_gate_backward: workspace");
  dispatch_16_bit(p.forward, [&](auto element) {
    dispatch_size<64, 128>("cols", p.forward.cols, [&](auto cols) {
      differentiate<decltype(element), cols><<<grid, kWarps * 32, 0, stream>>>(p, parts.data());
    });
  });
  check(cudaGetLastError(), "norm_gate_backward: launch");
  add_up<<<1, 2 * p.forward.cols, 0, stream>>>(p, parts.data(), blocks * kWarps);
  check(cudaGetLastError(), "norm_gate_backward: launch");
}
