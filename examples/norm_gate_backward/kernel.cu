// The gradients of norm_gate. With xh = (x - mean) r and r = 1 / sqrt(variance + epsilon) it was
//   n = xh weight + bias       y = n gate
// and with g = d_y gate weight
//   d_gate = d_y n             d_bias   = sum over the rows of d_y gate
//   dx     = r (g - mean(g) - xh mean(g xh))
//   d_weight                            = sum over the rows of d_y gate xh
// The README of examples/ compares this form of dx with three others.
//
// Each block computes 16 rows at a time in registers, and each lane adds up its own rows. A second kernel
// adds the sums of the blocks in a fixed order, so that two runs give the same bits.
#include <algorithm>

#include "ladder/dispatch.h"
#include "ladder/norm_gate.h"
#include "ladder/norm_gate_rows.h"
#include "ladder/workspace.h"
#include "tiles/tiles.h"

namespace {

using ladder::NormGateBackwardProblem, ladder::NormGateProblem;
using namespace ladder::norm_gate_rows;

constexpr int kAddingWarps = 32;

/// A block's sums over rows, in each lane those of the lane's own rows until add_lanes.
template <int kParts> struct ColumnSums {
  Columns of_weight[kParts], of_bias[kParts];

  __device__ void clear() {
#pragma unroll
    for (int part = 0; part < kParts; part++)
      zero(of_weight[part]), zero(of_bias[part]);
  }

  /// Stores the block's d_weight and d_bias, cols values each, one after the other.
  __device__ void store(float *row, int cols) {
    for_each_part<kParts>(cols, [&](int part, int col) {
      add_lanes(of_weight[part]);
      add_lanes(of_bias[part]);
      ladder::norm_gate_rows::store(row, of_weight[part], col);
      ladder::norm_gate_rows::store(row + cols, of_bias[part], col);
    });
  }
};

/// Of each row: mean and r of x, mean(g) and mean(g xh).
struct Statistics {
  RegTile<float, kRows, kCols>::ColVec mean, scale, mean_g, mean_gx;
};

template <typename T, int kParts>
__device__ inline void compute(Statistics &of, const NormGateProblem &forward, Rows<T, kParts> &x_in,
                               Rows<T, kParts> &gate_in, Rows<T, kParts> &d_y_in, Exchange *exchanges) {
  const int cols = forward.cols;
  RegTile<float, kRows, kCols> x, g, other;
  row_mean(of.mean, x_in, cols, &exchanges[0]);
  zero(of.scale), zero(of.mean_g), zero(of.mean_gx);
  for_each_part<kParts>(cols, [&](int part, int col) {
    Columns weight;
    load(weight, forward.weight, col);
    x_in.read(x, part, col);
    sub_row(x, x, of.mean);
    mul(other, x, x);
    row_sum_in_lane(of.scale, other, of.scale);
    d_y_in.read(g, part, col);
    gate_in.read(other, part, col);
    mul(g, g, other);
    mul_col(g, g, weight);
    row_sum_in_lane(of.mean_g, g, of.mean_g);
    mul(g, g, x);
    row_sum_in_lane(of.mean_gx, g, of.mean_gx);
  });
  sum_over_block(&exchanges[1], of.scale, of.mean_g, of.mean_gx);
  invert_deviation(of.scale, forward);
  mul(of.mean_g, of.mean_g, 1.f / cols);
  mul(of.mean_gx, of.mean_gx, 1.f / cols);
  mul(of.mean_gx, of.mean_gx, of.scale); // xh = (x - mean) r
}

template <typename T, int kParts>
__global__ void __launch_bounds__(kMostWarps * 32)
    differentiate(const __grid_constant__ NormGateBackwardProblem problem, float *parts) {
  using Tile = RegTile<float, kRows, kCols>;
  const NormGateProblem &forward = problem.forward;
  const int cols = forward.cols;
  __shared__ Exchange exchanges[4];
  ColumnSums<kParts> sums;
  sums.clear();

  for (int row = blockIdx.x * kRows; row < forward.rows; row += gridDim.x * kRows) {
    Rows<T, kParts> x_in{forward, forward.x, row}, gate_in{forward, forward.gate, row},
        d_y_in{forward, problem.d_y, row};
    Statistics of;
    compute(of, forward, x_in, gate_in, d_y_in, exchanges);
    Tile xh, g, other;
    Columns weight, bias;
    for_each_part<kParts>(cols, [&](int part, int col) {
      x_in.read(xh, part, col);
      sub_row(xh, xh, of.mean);
      mul_row(xh, xh, of.scale);
      load(weight, forward.weight, col);
      load(bias, forward.bias, col);
      d_y_in.read(g, part, col);
      mul_col(other, xh, weight);
      add_col(other, other, bias);
      mul(other, other, g);
      write<T>(problem.d_gate, other, forward, row, col);

      gate_in.read(other, part, col);
      mul(g, g, other);
      add_rows_in_lane(sums.of_bias[part], g);
      mul(other, g, xh);
      add_rows_in_lane(sums.of_weight[part], other);

      mul_col(g, g, weight);
      sub_row(g, g, of.mean_g);
      mul_row(xh, xh, of.mean_gx);
      sub(g, g, xh);
      mul_row(g, g, of.scale);
      write<T>(problem.dx, g, forward, row, col);
    });
  }
  sums.store(parts + int64_t(blockIdx.x) * 2 * cols, cols);
}

/// d_weight and d_bias of 32 columns: each warp adds every 32nd block's sums, the first one the warps'.
__global__ void __launch_bounds__(kAddingWarps * 32)
    add_up(const __grid_constant__ NormGateBackwardProblem problem, const float *parts, int blocks) {
  __shared__ float sums[kAddingWarps][32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int cols = problem.forward.cols, column = blockIdx.x * 32 + lane;
  float sum = 0;
#pragma unroll 4
  for (int block = warp; block < blocks; block += kAddingWarps)
    sum += parts[int64_t(block) * 2 * cols + column];
  sums[warp][lane] = sum;
  __syncthreads();
  if (warp != 0)
    return;
  for (int other = 1; other < kAddingWarps; other++)
    sum += sums[other][lane];
  *(column < cols ? problem.d_weight + column : problem.d_bias + (column - cols)) = sum;
}

/// Two blocks for each of 132 SMs, or more with 16 warps per SM. It is the same on all GPUs, and so are the
/// sums.
int blocks_of(int rows, int threads) {
  return std::min((rows + kRows - 1) / kRows, std::max(264, 2112 * 32 / threads));
}

} // namespace

void ladder::launch(const NormGateBackwardProblem &p, cudaStream_t stream) {
  const int cols = p.forward.cols;
  dispatch_16_bit(p.forward, [&](auto element) {
    dispatch_columns(cols, [&](auto kept, int threads) {
      const int blocks = blocks_of(p.forward.rows, threads);
      const Workspace<float> parts(size_t(blocks) * 2 * cols, stream, "norm_gate_backward: workspace");
      differentiate<decltype(element), kept><<<blocks, threads, 0, stream>>>(p, parts.data());
      check(cudaGetLastError(), "norm_gate_backward: launch");
      add_up<<<2 * cols / 32, kAddingWarps * 32, 0, stream>>>(p, parts.data(), blocks);
      check(cudaGetLastError(), "norm_gate_backward: launch");
    });
  });
}
