// Rotary embedding in tiles: a warp loads 16 rows of a head as two tiles, the first and the second half of
// their columns, and rotates pairs of their elements.
#include "ladder/dispatch.h"
#include "ladder/rotary.h"
#include "tiles/tiles.h"

namespace {

using namespace tiles;

constexpr int kWarps = 4, kRows = 16;

template <typename T, int d>
__global__ void __launch_bounds__(kWarps * 32) rotary(const __grid_constant__ ladder::RotaryProblem problem) {
  constexpr int half = d / 2;
  const int64_t head = int64_t(blockIdx.y) * problem.length * d;
  const T *x = static_cast<const T *>(problem.x) + head;
  T *y = static_cast<T *>(problem.y) + head;
  const StridedMatrix<const T, half> x_first{x, problem.length, d}, x_second{x + half, problem.length, d};
  const StridedMatrix<T, half> y_first{y, problem.length, d}, y_second{y + half, problem.length, d};
  const int row = (blockIdx.x * kWarps + threadIdx.x / 32) * kRows;

  RegTile<T, kRows, half> in_dtype;
  RegTile<float, kRows, half> first, second, cos, sin, product, turned;
  load(in_dtype, x_first, row);
  copy(first, in_dtype);
  load(in_dtype, x_second, row);
  copy(second, in_dtype);
  load(cos, GlobalMatrix<const float, half>{problem.cos, problem.length}, row);
  load(sin, GlobalMatrix<const float, half>{problem.sin, problem.length}, row);

  mul(turned, first, cos);
  mul(product, second, sin);
  sub(turned, turned, product);
  copy(in_dtype, turned);
  store(y_first, in_dtype, row);

  mul(turned, second, cos);
  mul(product, first, sin);
  add(turned, turned, product);
  copy(in_dtype, turned);
  store(y_second, in_dtype, row);
}

} // namespace

void ladder::launch(const RotaryProblem &p, cudaStream_t stream) {
  const dim3 grid = launch_grid((p.length + kWarps * kRows - 1) / (kWarps * kRows), p.heads);
  dispatch_16_bit(p, [&](auto element) {
    dispatch_head_dim<64, 128>(
        p, [&](auto d) { rotary<decltype(element), d><<<grid, kWarps * 32, 0, stream>>>(p); });
  });
  check(cudaGetLastError(), "rotary_embedding: launch");
}
