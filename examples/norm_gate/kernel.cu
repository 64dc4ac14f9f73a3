// The step after HSTU's attention: a layer norm of each row, times the gate. In one kernel the normalised
// rows stay in registers. Two kernels would store and load them.
#include "ladder/dispatch.h"
#include "ladder/norm_gate.h"
#include "ladder/norm_gate_rows.h"
#include "tiles/tiles.h"

namespace {

using namespace ladder::norm_gate_rows;

template <typename T, int kParts>
__global__ void __launch_bounds__(kMostWarps * 32, 2 * kNarrow / kParts)
    norm_gate(const __grid_constant__ ladder::NormGateProblem problem) {
  using Tile = RegTile<float, kRows, kCols>;
  const int row = blockIdx.x * kRows, cols = problem.cols;
  __shared__ Exchange exchanges[2];
  Rows<T, kParts> x_in{problem, problem.x, row}, gate_in{problem, problem.gate, row};

  Tile x, gate;
  typename Tile::ColVec mean, scale;
  row_mean(mean, x_in, cols, &exchanges[0]);

  zero(scale);
  for_each_part<kParts>(cols, [&](int part, int col) {
    x_in.read(x, part, col);
    sub_row(x, x, mean);
    mul(x, x, x);
    row_sum_in_lane(scale, x, scale);
  });
  sum_over_block(&exchanges[1], scale);
  invert_deviation(scale, problem);

  for_each_part<kParts>(cols, [&](int part, int col) {
    Columns weight, bias;
    load(weight, problem.weight, col);
    load(bias, problem.bias, col);
    x_in.read(x, part, col);
    sub_row(x, x, mean);
    mul_row(x, x, scale);
    mul_col(x, x, weight);
    add_col(x, x, bias);
    gate_in.read(gate, part, col);
    mul(x, x, gate);
    write<T>(problem.y, x, problem, row, col);
  });
}

} // namespace

void ladder::launch(const NormGateProblem &p, cudaStream_t stream) {
  const dim3 grid = launch_grid((p.rows + kRows - 1) / kRows, 1);
  dispatch_16_bit(p, [&](auto element) {
    dispatch_columns(p.cols, [&](auto parts, int threads) {
      norm_gate<decltype(element), parts><<<grid, threads, 0, stream>>>(p);
    });
  });
  check(cudaGetLastError(), "norm_gate: launch");
}
