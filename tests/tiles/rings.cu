// Tiles through a ring: brought by TMA, doubled by consumers, stored by TMA; vectors that come with tiles,
// and fragments that blocks add up; and warpgroups that work in turn. Prints what is wrong, and "ok" at the
// end if nothing is.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "tiles/ring.h"
#include "tiles/roles.h"
#include "tiles/tensor_map.h"
#include "tiles/tiles.h"
#include "tiles/warpgroup.h"

using namespace tiles;

constexpr int kTileRows = 16, kParts = 2, kBuffers = 2, kConsumers = 2;

template <int cols> struct Shared {
  using Tile = SharedTile<__half, kTileRows, cols>;
  Ring<Tile, kBuffers, kParts> ring;
  alignas(1024) Tile doubled[kConsumers][kParts];
};

/// A block a matrix; consumers take the ring's buffers by turns, each all of them.
template <int cols>
__global__ void __launch_bounds__(128 * (kConsumers + 1), 1)
    double_rows(const __grid_constant__ tma::TensorMap<typename Shared<cols>::Tile> src,
                const __grid_constant__ tma::TensorMap<typename Shared<cols>::Tile> dst, int rows) {
  extern __shared__ __align__(1024) unsigned char bytes[];
  auto &smem = *reinterpret_cast<Shared<cols> *>(bytes);
  if (threadIdx.x == 0) {
    init(smem.ring.full, 1);
    init(smem.ring.empty, 4 * kConsumers);
    fence_barrier_init();
  }
  __syncthreads();
  const int role = warpgroup::index();
  Turn<kBuffers> turn;
  if (role == kConsumers) {
    decrease_registers<24>();
    if (warpgroup::warp() == 0 && elect_one())
      for (int row = 0; row < rows; row += kParts * kTileRows, turn.advance()) {
        smem.ring.wait_empty(turn);
        smem.ring.load_async(turn, src, row, blockIdx.x);
      }
    return;
  }
  increase_registers<168>();
  for (int row = 0, step = 0; row < rows; row += kParts * kTileRows, step++, turn.advance()) {
    for (int part = 0; part < kParts; part++) {
      const auto &tile = smem.ring.wait_full(turn, part);
      if (step % kConsumers == role)
        for (int i = warpgroup::thread(); i < kTileRows * cols; i += 128)
          *smem.doubled[role][part].at(i / cols, i % cols) = *tile.at(i / cols, i % cols) * __half(2.f);
    }
    __syncwarp();
    smem.ring.release(turn);
    if (step % kConsumers != role)
      continue;
    fence_async_proxy();
    warpgroup::sync(1 + role);
    if (warpgroup::thread() == 0) {
      for (int part = 0; part < kParts; part++)
        tma::store_async(dst, smem.doubled[role][part], row + part * kTileRows, blockIdx.x);
      tma::store_commit();
      tma::store_wait_read();
    }
    warpgroup::sync(1 + role);
  }
}

/// Writes out the tiles of a block's only buffer, after those of the blocks before it; `block` is its number.
template <int cols>
__device__ void write_out(Ring<typename Shared<cols>::Tile, 1, kParts> &ring, int block, __half *out) {
  for (int part = 0; part < kParts; part++) {
    const auto &tile = ring.wait_full({}, part);
    const int first = (block * kParts + part) * kTileRows * cols;
    for (int i = threadIdx.x; i < kTileRows * cols; i += blockDim.x)
      out[first + i] = *tile.at(i / cols, i % cols);
  }
}

/// A block a head of a sequence: writes out the tiles that begin at `row` of it.
template <int cols>
__global__ void copy_segment(const __grid_constant__ tma::JaggedMap<typename Shared<cols>::Tile> src,
                             const int *offsets, int row, __half *out) {
  using Tile = typename Shared<cols>::Tile;
  __shared__ Ring<Tile, 1, kParts> ring;
  if (threadIdx.x == 0) {
    ring.init(1);
    fence_barrier_init();
    const int first = offsets[blockIdx.y];
    ring.load_async({}, src, row, tma::Segment{first, offsets[blockIdx.y + 1] - first, int(blockIdx.x)});
  }
  __syncthreads();
  write_out<cols>(ring, blockIdx.y * gridDim.x + blockIdx.x, out);
}

/// A block a matrix: writes out the tiles that begin at `row` and `col` of it.
template <int cols>
__global__ void copy_part(const __grid_constant__ tma::WideMap<typename Shared<cols>::Tile> src, int row,
                          int col, __half *out) {
  __shared__ Ring<typename Shared<cols>::Tile, 1, kParts> ring;
  if (threadIdx.x == 0) {
    ring.init(1);
    fence_barrier_init();
    ring.load_async({}, src, row, tma::MatrixColumn{col, int(blockIdx.x)});
  }
  __syncthreads();
  write_out<cols>(ring, blockIdx.x, out);
}

constexpr int kSums = 3; // of a block's vectors

/// Each block adds, to the same sums, tiles whose columns are a vector's entries and whose rows are 0.
__global__ void __launch_bounds__(64, 1)
    add_columns(const __grid_constant__ tma::TensorMap<SharedTile<__half, 16, 32>> zeros,
                const float *vectors, GlobalFragments<16, 32, 4> sums) {
  struct Shared {
    Ring<SharedTile<__half, 16, 32>, kBuffers> ring;
    SharedVec<float, 32> vectors[kBuffers];
  };
  extern __shared__ __align__(1024) unsigned char bytes[];
  auto &smem = *reinterpret_cast<Shared *>(bytes);
  if (threadIdx.x == 0) {
    smem.ring.init(1);
    fence_barrier_init();
  }
  __syncthreads();
  Turn<kBuffers> turn;
  if (group<2>::warp() == 1) {
    if (elect_one())
      for (int i = 0; i < kSums; i++, turn.advance()) {
        smem.ring.wait_empty(turn);
        smem.ring.load_async(turn, smem.vectors[turn.buffer], GlobalVec<const float>{vectors, 32 * kSums},
                             32 * i);
        smem.ring.load_async(turn, zeros, 0, 0);
      }
    return;
  }
  for (int i = 0; i < kSums; i++, turn.advance()) {
    RegTile<__half, 16, 32> tile;
    RegTile<float, 16, 32> difference;
    load(tile, smem.ring.wait_full(turn));
    copy(columns<16>(difference, 0), columns<16>(tile, 0));
    copy(columns<16>(difference, 16), columns<16>(tile, 16));
    sub_col(difference, difference, smem.vectors[turn.buffer]);
    fence_async_proxy();
    __syncwarp();
    smem.ring.release(turn);
    atomic_add(sums, difference);
  }
}

__global__ void put_in_order(GlobalFragments<16, 32, 4> sums, float *out) {
  RegTile<float, 16, 32> tile;
  load(tile, sums);
  store(GlobalMatrix<float, 32>{out, 16}, tile);
}

__global__ void __launch_bounds__(384, 1) write_in_turn(int *order) {
  __shared__ int next;
  if (threadIdx.x == 0)
    next = 0;
  __syncthreads();
  const int group = warpgroup::index();
  const InTurn<3, 1> in_turn{group};
  in_turn.start();
  for (int i = 0; i < 4; i++) {
    in_turn.wait();
    if (warpgroup::thread() == 0)
      order[next++] = group;
    in_turn.pass();
  }
  in_turn.stop();
}

int errors = 0;
void require(bool right, const char *what, int cols, int i) {
  if (!right && errors++ < 10)
    printf("%s: cols %d, element %d\n", what, cols, i);
}

template <int cols> void test_ring(int matrices, int rows) {
  using Tile = typename Shared<cols>::Tile;
  const int size = matrices * rows * cols;
  std::vector<__half> in(size), out(size);
  for (int i = 0; i < size; i++)
    in[i] = __half(float(i % 1009 - 500));
  __half *src = nullptr, *dst = nullptr;
  cudaMalloc(&src, size * sizeof(__half));
  cudaMalloc(&dst, size * sizeof(__half));
  cudaMemcpy(src, in.data(), size * sizeof(__half), cudaMemcpyHostToDevice);
  cudaMemset(dst, 0xff, size * sizeof(__half));
  const auto kernel = double_rows<cols>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared<cols>));
  kernel<<<matrices, 128 * (kConsumers + 1), sizeof(Shared<cols>)>>>(
      tma::tensor_map<Tile>(src, rows, matrices), tma::tensor_map<Tile>(dst, rows, matrices), rows);
  require(cudaDeviceSynchronize() == cudaSuccess, "launch", cols, 0);
  cudaMemcpy(out.data(), dst, size * sizeof(__half), cudaMemcpyDeviceToHost);
  for (int i = 0; i < size; i++)
    require(float(out[i]) == 2 * float(in[i]), "doubled", cols, i);
  cudaFree(src);
  cudaFree(dst);
}

/// Sequences shorter and longer than the tiles, in rows that are wider than their heads.
template <int cols> void test_jagged(int row) {
  using Tile = typename Shared<cols>::Tile;
  constexpr int kHeads = 3, kSequences = 4, kLongest = 70, kRows = kParts * kTileRows;
  constexpr int kStride = (kHeads + 1) * cols, kCopied = kSequences * kHeads * kRows * cols;
  const std::vector<int> offsets{0, 0, 1, 1 + kLongest, 1 + kLongest + 17};
  const int tokens = offsets.back(), size = tokens * kStride;
  std::vector<__half> in(size), out(kCopied);
  for (int i = 0; i < size; i++)
    in[i] = __half(float(i % 1009 + 1));
  __half *src = nullptr, *dst = nullptr;
  int *ends = nullptr;
  cudaMalloc(&src, size * sizeof(__half));
  cudaMalloc(&dst, kCopied * sizeof(__half));
  cudaMalloc(&ends, offsets.size() * sizeof(int));
  cudaMemcpy(src, in.data(), size * sizeof(__half), cudaMemcpyHostToDevice);
  cudaMemcpy(ends, offsets.data(), offsets.size() * sizeof(int), cudaMemcpyHostToDevice);
  copy_segment<cols>
      <<<dim3(kHeads, kSequences), 64>>>(tma::jagged_map<Tile>(src, tokens, kHeads, kStride), ends, row, dst);
  require(cudaDeviceSynchronize() == cudaSuccess, "launch", cols, 0);
  cudaMemcpy(out.data(), dst, kCopied * sizeof(__half), cudaMemcpyDeviceToHost);
  for (int i = 0; i < kCopied; i++) {
    const int col = i % cols, token = row + i / cols % kRows, head = i / cols / kRows % kHeads,
              sequence = i / cols / kRows / kHeads, first = offsets[sequence];
    const bool there = token < offsets[sequence + 1] - first;
    require(float(out[i]) == (there ? float(in[(first + token) * kStride + head * cols + col]) : 0.f),
            "a row of a sequence, or zeros past its end", cols, i);
  }
  cudaFree(src);
  cudaFree(dst);
  cudaFree(ends);
}

/// Matrices of more columns than a tile, in rows that are wider than the matrices.
template <int cols> void test_wide(int row, int col) {
  constexpr int kMatrices = 3, kRows = 70, kCols = 2 * cols + 5, kStride = 2 * cols + 8;
  constexpr int kSize = kMatrices * kRows * kStride, kTiles = kParts * kTileRows;
  constexpr int kCopied = kMatrices * kTiles * cols;
  std::vector<__half> in(kSize), out(kCopied);
  for (int i = 0; i < kSize; i++)
    in[i] = __half(float(i % 1009 + 1));
  __half *src = nullptr, *dst = nullptr;
  cudaMalloc(&src, kSize * sizeof(__half));
  cudaMalloc(&dst, kCopied * sizeof(__half));
  cudaMemcpy(src, in.data(), kSize * sizeof(__half), cudaMemcpyHostToDevice);
  const auto map = tma::wide_map<typename Shared<cols>::Tile>(src, kMatrices, kRows, kCols, kStride);
  copy_part<cols><<<kMatrices, 64>>>(map, row, col, dst);
  require(cudaDeviceSynchronize() == cudaSuccess, "launch", cols, 0);
  cudaMemcpy(out.data(), dst, kCopied * sizeof(__half), cudaMemcpyDeviceToHost);
  for (int i = 0; i < kCopied; i++) {
    const int c = col + i % cols, r = row + i / cols % kTiles, matrix = i / cols / kTiles;
    const bool there = r >= 0 && r < kRows && c < kCols;
    require(float(out[i]) == (there ? float(in[(matrix * kRows + r) * kStride + c]) : 0.f),
            "a part of a matrix, or zeros out of bounds", cols, i);
  }
  cudaFree(src);
  cudaFree(dst);
}

void test_sums() {
  constexpr int kBlocks = 3, kSize = 16 * 32;
  float *vectors = nullptr, *out = nullptr;
  __half *zeros = nullptr;
  GlobalFragments<16, 32, 4> sums{};
  cudaMallocManaged(&vectors, 32 * kSums * sizeof(float));
  cudaMallocManaged(&out, kSize * sizeof(float));
  cudaMalloc(&zeros, kSize * sizeof(__half));
  cudaMalloc(&sums.data, kSize * sizeof(float));
  for (int i = 0; i < 32 * kSums; i++)
    vectors[i] = float(i * i);
  cudaMemset(zeros, 0, kSize * sizeof(__half));
  cudaMemset(sums.data, 0, kSize * sizeof(float));
  add_columns<<<kBlocks, 64, 16384>>>(tma::tensor_map<SharedTile<__half, 16, 32>>(zeros, 16, 1), vectors,
                                      sums);
  put_in_order<<<1, 32>>>(sums, out);
  require(cudaDeviceSynchronize() == cudaSuccess, "launch", 32, 0);
  for (int i = 0; i < kSize; i++)
    require(out[i] == -kBlocks * (vectors[i % 32] + vectors[i % 32 + 32] + vectors[i % 32 + 64]), "sums", 32,
            i);
  for (void *memory : {(void *)vectors, (void *)out, (void *)zeros, (void *)sums.data})
    cudaFree(memory);
}

int main() {
  test_sums();
  for (int rows : {1, 32, 150}) {
    test_ring<16>(3, rows);
    test_ring<32>(3, rows);
    test_ring<64>(2, rows);
    test_ring<128>(3, rows);
  }
  for (int row : {0, 7, 64, 96}) {
    test_jagged<32>(row);
    test_jagged<128>(row);
  }
  for (int row : {-16, 0, 7, 64}) {
    test_wide<32>(row, 0);
    test_wide<64>(row, 64);
    test_wide<64>(row, 128);
  }
  int *order = nullptr;
  cudaMallocManaged(&order, 12 * sizeof(int));
  write_in_turn<<<1, 384>>>(order);
  require(cudaDeviceSynchronize() == cudaSuccess, "launch", 0, 0);
  for (int i = 0; i < 12; i++)
    require(order[i] == i % 3, "in turn", 0, i);
  cudaFree(order);
  try {
    const auto map = tma::tensor_map<SharedTile<__half, 16, 64>>(reinterpret_cast<void *>(8), 16, 1);
    require(&map == nullptr, "a tensor at a multiple of 8 bytes was taken", 64, 0);
  } catch (const tiles::Unsupported &) {
  }
  try {
    const auto map =
        tma::jagged_map<SharedTile<__half, 16, 64>>(reinterpret_cast<void *>(1 << 20), 16, 1, 68);
    require(&map == nullptr, "tokens 136 bytes apart were taken", 64, 0);
  } catch (const tiles::Unsupported &) {
  }
  try {
    const auto map =
        tma::wide_map<SharedTile<__half, 16, 64>>(reinterpret_cast<void *>(1 << 20), 1, 16, 67, 68);
    require(&map == nullptr, "rows 136 bytes apart were taken", 64, 0);
  } catch (const tiles::Unsupported &) {
  }
  if (errors == 0)
    printf("ok\n");
  return errors != 0;
}
