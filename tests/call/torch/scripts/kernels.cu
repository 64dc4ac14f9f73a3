// One extension for the scripts of this folder: what torch's extensions commonly use, in one build.
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/CUDAGraphsUtils.cuh>
#include <c10/cuda/CUDAGuard.h>
#include <torch/extension.h>

namespace {

constexpr int kThreads = 128;

template <typename T> __global__ void scale_kernel(const T *x, T *y, float factor, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    y[i] = T(float(x[i]) * factor);
}

__global__ void row_sum_kernel(const float *x, float *y, int columns) {
  __shared__ float part[kThreads];
  float sum = 0;
  for (int c = threadIdx.x; c < columns; c += kThreads)
    sum += x[blockIdx.x * columns + c];
  part[threadIdx.x] = sum;
  __syncthreads();
  for (int half = kThreads / 2; half; half /= 2) {
    if (threadIdx.x < half)
      part[threadIdx.x] += part[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0)
    y[blockIdx.x] = part[0];
}

__global__ void racy_kernel(float *y) {
  __shared__ float part[kThreads];
  part[threadIdx.x] = threadIdx.x;
  y[threadIdx.x] = part[(threadIdx.x + 32) % kThreads]; // no barrier
}

__global__ void transpose_kernel(const float *x, float *y) {
  __shared__ float tile[32][32];
  tile[threadIdx.y][threadIdx.x] = x[threadIdx.y * 32 + threadIdx.x];
  __syncthreads();
  y[threadIdx.y * 32 + threadIdx.x] = tile[threadIdx.x][threadIdx.y];
}

__global__ void unpack_kernel(at::PhiloxCudaState philox, int64_t *seed) {
  *seed = int64_t(std::get<0>(at::cuda::philox::unpack(philox)));
}

__global__ void accumulate_kernel(const float *x, float *y) { y[threadIdx.x] += x[threadIdx.x]; }

} // namespace

torch::Tensor scale(torch::Tensor x, double factor) {
  TORCH_CHECK(x.is_cuda(), "x must be a CUDA tensor");
  TORCH_CHECK(x.is_contiguous(), "x must be contiguous");
  const c10::cuda::CUDAGuard guard(x.device());
  torch::Tensor y = torch::empty_like(x);
  const int n = x.numel();
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "scale", [&] {
    scale_kernel<scalar_t><<<(n + kThreads - 1) / kThreads, kThreads, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), float(factor), n);
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return y;
}

torch::Tensor row_sum(const torch::Tensor &x) {
  torch::Tensor y = torch::empty({x.size(0)}, x.options());
  row_sum_kernel<<<x.size(0), kThreads>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(1));
  AT_CUDA_CHECK(cudaGetLastError());
  return y;
}

torch::Tensor racy() {
  torch::Tensor y = torch::zeros({kThreads}, torch::device(torch::kCUDA).dtype(torch::kFloat32));
  racy_kernel<<<1, kThreads>>>(y.data_ptr<float>());
  return y;
}

torch::Tensor transpose(torch::Tensor x) {
  torch::Tensor y = torch::empty_like(x);
  transpose_kernel<<<1, dim3(32, 32)>>>(x.data_ptr<float>(), y.data_ptr<float>());
  return y;
}

/// Adds to memory that nothing has written.
torch::Tensor accumulated(torch::Tensor x) {
  torch::Tensor y = torch::empty_like(x);
  accumulate_kernel<<<1, x.numel()>>>(x.data_ptr<float>(), y.data_ptr<float>());
  return y;
}

/// Another stream adds x to y after this one has set y to 1.
torch::Tensor accumulated_beside(torch::Tensor x) {
  const at::cuda::CUDAStream side = at::cuda::getStreamFromPool();
  torch::Tensor y = torch::ones_like(x);
  at::cuda::CUDAEvent set, added(cudaEventDefault);
  set.record();
  {
    const at::cuda::CUDAStreamGuard guard(side);
    set.block(side);
    accumulate_kernel<<<1, x.numel(), 0, side>>>(x.data_ptr<float>(), y.data_ptr<float>());
    added.record(side);
    y.record_stream(side);
  }
  added.block(at::cuda::getCurrentCUDAStream());
  added.synchronize();
  TORCH_CHECK(added.query());
  return y;
}

/// The seed with which a kernel would draw.
torch::Tensor drawn_seed() {
  auto *const generator = at::get_generator_or_default<at::CUDAGeneratorImpl>(
      std::nullopt, at::cuda::detail::getDefaultCUDAGenerator());
  at::PhiloxCudaState state;
  {
    const std::lock_guard<std::mutex> lock(generator->mutex_);
    state = generator->philox_cuda_state(4);
  }
  torch::Tensor seed = torch::empty({1}, torch::device(torch::kCUDA).dtype(torch::kInt64));
  unpack_kernel<<<1, 1>>>(state, seed.data_ptr<int64_t>());
  return seed;
}

/// Launches as many threads as it is told, on as many elements.
torch::Tensor out_of_bounds(torch::Tensor x, int64_t threads) {
  accumulate_kernel<<<1, threads>>>(x.data_ptr<float>(), x.data_ptr<float>());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return x;
}

int64_t crash() { return *static_cast<volatile int64_t *>(nullptr); }

int64_t multiprocessors() { return at::cuda::getCurrentDeviceProperties()->multiProcessorCount; }

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("scale", &scale, "x * factor");
  m.def("row_sum", &row_sum);
  m.def("racy", &racy);
  m.def("transpose", &transpose);
  m.def("accumulated", &accumulated);
  m.def("accumulated_beside", &accumulated_beside);
  m.def("drawn_seed", &drawn_seed);
  m.def("out_of_bounds", &out_of_bounds);
  m.def("crash", &crash);
  m.def("multiprocessors", &multiprocessors);
}

TORCH_LIBRARY(ladder_scripts, m) {
  m.def("scale(Tensor x, float factor) -> Tensor");
  m.def("row_sum(Tensor x) -> Tensor");
}

TORCH_LIBRARY_IMPL(ladder_scripts, CUDA, m) {
  m.impl("scale", &scale);
  m.impl("row_sum", &row_sum);
}
