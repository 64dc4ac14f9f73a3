// Attention in CuTe, CUTLASS's layouts and tiles: v3's ideas in the words that much of today's CUDA
// code uses. 64 queries per block, 16 per warp; tiles of 64 keys; d = 64; fp16. cute_attention.md has the
// comparison.
//
// The program compares with float64 and returns 1 if they differ by more than rounding explains.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#if !__has_include(<cute/tensor.hpp>)
#error "this example needs CuTe's headers, see cute_attention.md: pip install --no-deps nvidia-cutlass"
#endif
#include <cute/tensor.hpp>

using namespace cute;

// CuTe has an unnamed namespace of its own, with which one of ours would clash.
namespace attention {

using T = half_t;
constexpr int kThreads = 128;
using Rows = Int<64>; // queries per block
using Keys = Int<64>; // per tile
using Dim = Int<64>;
constexpr float kLog2E = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

// A tile in shared memory: rows of 128 bytes, in which chunk c of 16 bytes lies at place c XOR row % 8. This
// is v3's function. Swizzle<3, 3, 3>: 3 bits, 3 bits above the element's lowest 3, from 3 bits
// further.
using Tile64 = decltype(tile_to_shape(
    composition(Swizzle<3, 3, 3>{}, Layout<Shape<_8, Dim>, Stride<Dim, _1>>{}), Shape<Keys, Dim>{}));
// The same bytes read as V^T: rows of keys become columns.
using Transposed = decltype(composition(Tile64{}, Layout<Shape<Dim, Keys>, Stride<Keys, _1>>{}));

// Four warps side by side along the rows, each with mma.m16n8k16: v2's and v3's product.
using Mma = TiledMMA<MMA_Atom<SM80_16x8x16_F32F16F16F32_TN>, Layout<Shape<_4, _1, _1>>, Tile<_64, _16, _16>>;
// cp.async of 16 bytes per thread: 16 rows of 8 chunks per pass.
using Fill = decltype(make_tiled_copy(Copy_Atom<SM80_CP_ASYNC_CACHEALWAYS<uint128_t>, T>{},
                                      Layout<Shape<_16, _8>, Stride<_8, _1>>{}, Layout<Shape<_1, _8>>{}));
using LoadRows = Copy_Atom<SM75_U32x4_LDSM_N, T>;    // ldmatrix.x4
using LoadColumns = Copy_Atom<SM75_U16x8_LDSM_T, T>; // ldmatrix.x4.trans

/// An accumulator ((2, 2), M, N) as a matrix (rows, columns) of the elements that the thread holds.
template <class Accumulator> CUTE_DEVICE auto as_matrix(Accumulator &&values) {
  const auto layout = values.layout();
  return make_tensor(values.data(), make_layout(make_layout(get<0, 1>(layout), get<1>(layout)),
                                                make_layout(get<0, 0>(layout), get<2>(layout))));
}

/// An accumulator ((2, 2), M, N) as operand A of the next product, ((2, 2, 2), M, N / 2): v2's trick that P
/// needs no exchange between lanes.
template <class Accumulator> CUTE_DEVICE auto as_operand_a(Accumulator &&values) {
  const auto halves = logical_divide(values.layout(), Shape<X, X, _2>{});
  return make_tensor(values.data(), make_layout(make_layout(get<0>(halves), get<2, 0>(halves)),
                                                get<1>(halves), get<2, 1>(halves)));
}

/// The reduction over the four lanes that hold a row.
template <class Op> CUTE_DEVICE float over_quad(float value, Op op) {
  value = op(value, __shfl_xor_sync(0xffffffffu, value, 1));
  return op(value, __shfl_xor_sync(0xffffffffu, value, 2));
}

/// q, o: (heads, queries, 64), k, v: (heads, keys, 64), lse: (heads, queries); multiples of 64.
__global__ void __launch_bounds__(kThreads)
    attend(const T *q, const T *k, const T *v, T *o, float *lse, int queries, int keys, float scale_log2) {
  __shared__ alignas(128) T q_bytes[cosize_v<Tile64>], k_bytes[cosize_v<Tile64>], v_bytes[cosize_v<Tile64>];
  const int64_t head = blockIdx.y;
  const auto tiles_of = [](auto *data, int64_t matrix, int rows) { // (64, 64, number of the tile)
    const auto whole = make_tensor(make_gmem_ptr(data + matrix * rows * Dim{}), make_shape(rows, Dim{}),
                                   make_stride(Dim{}, _1{}));
    return local_tile(whole, Shape<Rows, Dim>{}, make_coord(_, 0));
  };
  const Tensor q_gmem = tiles_of(q, head, queries)(_, _, blockIdx.x);
  const Tensor k_gmem = tiles_of(k, head, keys), v_gmem = tiles_of(v, head, keys);
  const Tensor q_smem = make_tensor(make_smem_ptr(q_bytes), Tile64{});
  const Tensor k_smem = make_tensor(make_smem_ptr(k_bytes), Tile64{});
  const Tensor v_smem = make_tensor(make_smem_ptr(v_bytes), Tile64{});
  const Tensor vt_smem = make_tensor(make_smem_ptr(v_bytes), Transposed{});

  const auto fill = Fill{}.get_thread_slice(threadIdx.x);
  const auto fill_tile = [&](const auto &from, const auto &to) {
    copy(Fill{}, fill.partition_S(from), fill.partition_D(to));
  };

  // What this thread holds of each operand: fragments, as the PTX manual draws them.
  Mma mma;
  const auto thread = mma.get_thread_slice(threadIdx.x);
  Tensor q_rmem = thread.partition_fragment_A(q_smem);
  Tensor k_rmem = thread.partition_fragment_B(k_smem);
  Tensor v_rmem = thread.partition_fragment_B(vt_smem);
  Tensor o_rmem = partition_fragment_C(mma, Shape<Rows, Dim>{});
  const auto load_q = make_tiled_copy_A(LoadRows{}, mma);
  const auto load_k = make_tiled_copy_B(LoadRows{}, mma);
  const auto load_v = make_tiled_copy_B(LoadColumns{}, mma);
  const auto load = [&](const auto &tiled, const auto &from, auto &to) {
    const auto lane = tiled.get_thread_slice(threadIdx.x);
    copy(tiled, lane.partition_S(from), lane.retile_D(to));
  };

  fill_tile(q_gmem, q_smem);
  cp_async_fence();
  cp_async_wait<0>();
  __syncthreads();
  load(load_q, q_smem, q_rmem);

  constexpr int kHeld = 2 * decltype(size<1>(o_rmem))::value; // rows of a thread
  float m[kHeld], l[kHeld];
  for (int row = 0; row < kHeld; row++)
    m[row] = -INFINITY, l[row] = 0.f;
  clear(o_rmem);

  for (int tile = 0; tile < keys / Keys{}; tile++) {
    __syncthreads(); // all warps have used the last tile
    fill_tile(k_gmem(_, _, tile), k_smem);
    fill_tile(v_gmem(_, _, tile), v_smem);
    cp_async_fence();
    cp_async_wait<0>();
    __syncthreads();

    // S = Q K^T
    Tensor s_rmem = partition_fragment_C(mma, Shape<Rows, Keys>{});
    clear(s_rmem);
    load(load_k, k_smem, k_rmem);
    gemm(mma, q_rmem, k_rmem, s_rmem);

    // P = exp(S - m) with the running maximum m; l and O are rescaled.
    Tensor s = as_matrix(s_rmem), o_rows = as_matrix(o_rmem);
    for (int row = 0; row < kHeld; row++) {
      float largest = m[row];
      for (int col = 0; col < size<1>(s); col++)
        largest = fmaxf(largest, s(row, col) * scale_log2);
      largest = over_quad(largest, [](float a, float b) { return fmaxf(a, b); });
      const float rescale = exp2f(m[row] - largest);
      m[row] = largest;
      float sum = 0.f;
      for (int col = 0; col < size<1>(s); col++)
        sum += s(row, col) = exp2f(s(row, col) * scale_log2 - largest);
      l[row] = l[row] * rescale + over_quad(sum, [](float a, float b) { return a + b; });
      for (int col = 0; col < size<1>(o_rows); col++)
        o_rows(row, col) *= rescale;
    }

    // O += P V
    Tensor p_16 = make_fragment_like<T>(s_rmem);
    for (int i = 0; i < size(s_rmem); i++)
      p_16(i) = T(s_rmem(i));
    load(load_v, vt_smem, v_rmem);
    gemm(mma, as_operand_a(p_16), v_rmem, o_rmem);
  }

  Tensor o_gmem = thread.partition_C(tiles_of(o, head, queries)(_, _, blockIdx.x));
  Tensor o_rows = as_matrix(o_rmem);
  for (int row = 0; row < kHeld; row++)
    for (int col = 0; col < size<1>(o_rows); col++)
      o_rows(row, col) /= l[row];
  for (int i = 0; i < size(o_rmem); i++)
    o_gmem(i) = T(o_rmem(i));

  // The first lane of each quad writes the lse of its rows; identity coordinates say which they are.
  const Tensor places = as_matrix(thread.partition_C(make_identity_tensor(Shape<Rows, Dim>{})));
  if (threadIdx.x % 4 == 0)
    for (int row = 0; row < kHeld; row++)
      lse[head * queries + blockIdx.x * Rows{} + get<0>(places(row, 0))] = m[row] * kLn2 + logf(l[row]);
}

#define CHECK(call)                                                                                          \
  do {                                                                                                       \
    if (const cudaError_t error = (call); error != cudaSuccess) {                                            \
      fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error));                                         \
      exit(2);                                                                                               \
    }                                                                                                        \
  } while (0)

template <typename E> E *on_gpu(const std::vector<E> &values) {
  E *data;
  CHECK(cudaMalloc(&data, values.size() * sizeof(E)));
  CHECK(cudaMemcpy(data, values.data(), values.size() * sizeof(E), cudaMemcpyHostToDevice));
  return data;
}

/// The largest errors of a head's O and lse, against float64.
void compare(const T *q, const T *k, const T *v, const T *o, const float *lse, int queries, int keys,
             double scale, double &o_error, double &lse_error) {
  std::vector<double> p(keys);
  for (int row = 0; row < queries; row++) {
    double largest = -INFINITY, sum = 0;
    for (int key = 0; key < keys; key++) {
      p[key] = 0;
      for (int x = 0; x < Dim{}; x++)
        p[key] += double(q[row * Dim{} + x]) * double(k[key * Dim{} + x]) * scale;
      largest = std::max(largest, p[key]);
    }
    for (double &weight : p)
      sum += weight = std::exp(weight - largest);
    lse_error = std::max(lse_error, std::abs(lse[row] - largest - std::log(sum)));
    for (int x = 0; x < Dim{}; x++) {
      double value = 0;
      for (int key = 0; key < keys; key++)
        value += p[key] * double(v[key * Dim{} + x]);
      o_error = std::max(o_error, std::abs(double(o[row * Dim{} + x]) - value / sum));
    }
  }
}

} // namespace attention

int main(int count, char **words) {
  using namespace attention;
  const int heads = count > 1 ? atoi(words[1]) : 2, queries = count > 2 ? atoi(words[2]) : 256;
  const int keys = count > 3 ? atoi(words[3]) : 256;
  if (heads < 1 || queries < 1 || keys < 1 || queries % Rows{} || keys % Keys{}) {
    fprintf(stderr, "usage: attention [heads [queries keys]]; queries and keys are multiples of 64\n");
    return 2;
  }
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  const auto drawn = [&](int rows) {
    std::vector<T> values(size_t(heads) * rows * Dim{});
    for (T &value : values)
      value = T(normal(random));
    return values;
  };
  const std::vector<T> q = drawn(queries), k = drawn(keys), v = drawn(keys);
  std::vector<T> o(q.size());
  std::vector<float> lse(size_t(heads) * queries);
  T *o_gmem = on_gpu(o);
  float *lse_gmem = on_gpu(lse);
  const double scale = 1 / std::sqrt(double(Dim{}));
  attend<<<dim3(queries / Rows{}, heads), kThreads>>>(on_gpu(q), on_gpu(k), on_gpu(v), o_gmem, lse_gmem,
                                                      queries, keys, float(scale) * kLog2E);
  CHECK(cudaGetLastError());
  CHECK(cudaMemcpy(o.data(), o_gmem, o.size() * sizeof(T), cudaMemcpyDeviceToHost));
  CHECK(cudaMemcpy(lse.data(), lse_gmem, lse.size() * sizeof(float), cudaMemcpyDeviceToHost));

  double o_error = 0, lse_error = 0;
  for (int head = 0; head < heads; head++) {
    const size_t row = size_t(head) * queries, key = size_t(head) * keys;
    compare(&q[row * Dim{}], &k[key * Dim{}], &v[key * Dim{}], &o[row * Dim{}], &lse[row], queries, keys,
            scale, o_error, lse_error);
  }
  const bool is_right = o_error < 2e-3 && lse_error < 1e-5; // two roundings to fp16 near 1; fp32 sums
  printf("error of O %.2e, of lse %.2e: %s\n", o_error, lse_error, is_right ? "right" : "WRONG");
  return !is_right;
}
