// cuFFT, cuRAND, NVTX and small functions of the runtime.
#include "check.h"

#include <cub/detail/nvtx.cuh> // which looks for NVTX itself
#include <cufft.h>
#include <curand.h>
#include <nvToolsExt.h>

#include <cmath>
#include <complex>
#include <vector>

using Complex = std::complex<double>;
const double kPi = std::acos(-1.0);

#define FFT(call) CHECK((call) == CUFFT_SUCCESS)
#define RAND(call) CHECK((call) == CURAND_STATUS_SUCCESS)

/// The transform by its definition, of an array of a x b x c.
std::vector<Complex> slow(const std::vector<Complex> &in, int a, int b, int c, int sign) {
  std::vector<Complex> out(in.size());
  for (int i = 0; i < a * b * c; ++i)
    for (int j = 0; j < a * b * c; ++j) {
      const double turn = double(i / (b * c)) * (j / (b * c)) / a + double(i / c % b) * (j / c % b) / b +
                          double(i % c) * (j % c) / c;
      out[i] += in[j] * std::polar(1.0, sign * 2 * kPi * turn);
    }
  return out;
}

std::vector<Complex> numbers(int n) {
  std::vector<Complex> values;
  for (int i = 0; i < n; ++i)
    values.emplace_back(std::sin(i * i + 1.0), std::cos(3.0 * i));
  return values;
}

template <typename T> T *on_device(const std::vector<T> &values) {
  T *pointer;
  CUDA(cudaMalloc(&pointer, values.size() * sizeof(T)));
  CUDA(cudaMemcpy(pointer, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  return pointer;
}

template <typename T> std::vector<T> back(const T *pointer, size_t count) {
  std::vector<T> values(count);
  CUDA(cudaMemcpy(values.data(), pointer, count * sizeof(T), cudaMemcpyDeviceToHost));
  return values;
}

bool close(Complex a, Complex b) { return std::abs(a - b) < 1e-9; }

void complex_of_every_length() {
  for (const int n : {1, 2, 3, 7, 8, 12, 60, 64, 97}) {
    const int batch = 2;
    const std::vector<Complex> in = numbers(n * batch);
    auto *const data = reinterpret_cast<cufftDoubleComplex *>(on_device(in));
    cufftHandle plan;
    FFT(cufftPlan1d(&plan, n, CUFFT_Z2Z, batch));
    for (const int sign : {CUFFT_FORWARD, CUFFT_INVERSE}) {
      const auto before = back(reinterpret_cast<Complex *>(data), n * batch);
      FFT(cufftExecZ2Z(plan, data, data, sign));
      const auto after = back(reinterpret_cast<Complex *>(data), n * batch);
      for (int b = 0; b < batch; ++b) {
        const auto wanted = slow({before.begin() + b * n, before.begin() + (b + 1) * n}, 1, 1, n, sign);
        for (int i = 0; i < n; ++i)
          CHECK(close(after[b * n + i], wanted[i]));
      }
    }
    FFT(cufftDestroy(plan));
    CHECK(cufftExecZ2Z(plan, data, data, CUFFT_FORWARD) == CUFFT_INVALID_PLAN);
    CUDA(cudaFree(data));
  }
}

void three_dimensions() {
  const int a = 3, b = 4, c = 5, n = a * b * c;
  const std::vector<Complex> in = numbers(n);
  std::vector<std::complex<float>> narrow(in.begin(), in.end());
  auto *const data = reinterpret_cast<cufftComplex *>(on_device(narrow));
  cufftHandle plan;
  FFT(cufftPlan3d(&plan, a, b, c, CUFFT_C2C));
  FFT(cufftExecC2C(plan, data, data, CUFFT_FORWARD));
  const auto out = back(reinterpret_cast<std::complex<float> *>(data), n);
  const auto wanted = slow(in, a, b, c, CUFFT_FORWARD);
  for (int i = 0; i < n; ++i)
    CHECK(std::abs(Complex(out[i]) - wanted[i]) < 1e-4);
  CHECK(cufftExecR2C(plan, reinterpret_cast<float *>(data), data) == CUFFT_INVALID_PLAN);
  FFT(cufftDestroy(plan));
  CUDA(cudaFree(data));
}

/// Real to complex and back, in place (rows with room for the spectrum) and out of place.
void real(int rows, int columns, bool in_place) {
  const int half = columns / 2 + 1, row = in_place ? 2 * half : columns;
  std::vector<Complex> values = numbers(rows * columns);
  std::vector<double> padded(rows * row, -1);
  for (int i = 0; i < rows * columns; ++i) {
    values[i] = values[i].real();
    padded[i / columns * row + i % columns] = values[i].real();
  }
  double *const input = on_device(padded);
  cufftDoubleComplex *spectrum = reinterpret_cast<cufftDoubleComplex *>(input);
  if (!in_place)
    CUDA(cudaMalloc(&spectrum, rows * half * sizeof *spectrum));
  cufftHandle forward, backward;
  FFT(cufftPlan2d(&forward, rows, columns, CUFFT_D2Z));
  FFT(cufftPlan2d(&backward, rows, columns, CUFFT_Z2D));
  FFT(cufftExecD2Z(forward, input, spectrum));
  const auto found = back(reinterpret_cast<Complex *>(spectrum), rows * half);
  const auto wanted = slow(values, 1, rows, columns, CUFFT_FORWARD);
  for (int i = 0; i < rows * half; ++i)
    CHECK(close(found[i], wanted[i / half * columns + i % half]));
  FFT(cufftExecZ2D(backward, spectrum, input));
  const auto again = back(input, rows * row);
  for (int i = 0; i < rows * columns; ++i)
    CHECK(close(again[i / columns * row + i % columns], double(rows * columns) * values[i].real()));
  FFT(cufftDestroy(forward));
  FFT(cufftDestroy(backward));
  CUDA(cudaFree(input));
  if (!in_place)
    CUDA(cudaFree(spectrum));
}

/// Columns of a matrix: a stride above 1 and a distance of 1.
void strided() {
  const int n = 6, columns = 4;
  const std::vector<Complex> in = numbers(n * columns);
  auto *const data = reinterpret_cast<cufftDoubleComplex *>(on_device(in));
  cufftHandle plan;
  int size = n;
  FFT(cufftPlanMany(&plan, 1, &size, &size, columns, 1, &size, columns, 1, CUFFT_Z2Z, columns));
  FFT(cufftExecZ2Z(plan, data, data, CUFFT_FORWARD));
  const auto out = back(reinterpret_cast<Complex *>(data), n * columns);
  for (int c = 0; c < columns; ++c) {
    std::vector<Complex> column;
    for (int i = 0; i < n; ++i)
      column.push_back(in[i * columns + c]);
    const auto wanted = slow(column, 1, 1, n, CUFFT_FORWARD);
    for (int i = 0; i < n; ++i)
      CHECK(close(out[i * columns + c], wanted[i]));
  }
  FFT(cufftDestroy(plan));
  CUDA(cudaFree(data));
}

void random_numbers() {
  const int n = 40000;
  curandGenerator_t first, second, host;
  CHECK(curandCreateGenerator(&first, CURAND_RNG_QUASI_SOBOL32) == CURAND_STATUS_TYPE_ERROR);
  RAND(curandCreateGenerator(&first, CURAND_RNG_PSEUDO_DEFAULT));
  RAND(curandCreateGenerator(&second, CURAND_RNG_PSEUDO_DEFAULT));
  RAND(curandCreateGeneratorHost(&host, CURAND_RNG_PSEUDO_DEFAULT));
  for (curandGenerator_t one : {first, second, host})
    RAND(curandSetPseudoRandomGeneratorSeed(one, 1234));
  float *a, *b;
  std::vector<float> c(n);
  CUDA(cudaMalloc(&a, n * sizeof(float)));
  CUDA(cudaMalloc(&b, n * sizeof(float)));
  RAND(curandGenerateUniform(first, a, n));
  RAND(curandGenerateUniform(second, b, n));
  RAND(curandGenerateUniform(host, c.data(), n));
  CHECK(back(a, n) == back(b, n) && back(a, n) == c); // the same seed
  double sum = 0;
  for (const float x : c) {
    CHECK(x > 0 && x <= 1);
    sum += x;
  }
  CHECK(std::fabs(sum / n - 0.5) < 0.01);
  RAND(curandSetGeneratorOffset(first, 10));
  RAND(curandGenerateUniform(first, a, n - 10));
  CHECK(back(a, 1)[0] == c[10]);
  RAND(curandGenerateNormal(second, b, n, 5, 2));
  double square = 0;
  sum = 0;
  for (const float x : back(b, n)) {
    sum += x;
    square += x * x;
  }
  CHECK(std::fabs(sum / n - 5) < 0.05 && std::fabs(square / n - sum * sum / n / n - 4) < 0.15);
  CHECK(curandGenerateNormal(second, b, 3, 0, 1) == CURAND_STATUS_LENGTH_NOT_MULTIPLE);
  CHECK(curandGenerateUniform(second, c.data(), n) == CURAND_STATUS_LAUNCH_FAILURE); // host memory
  cudaGetLastError();
  for (curandGenerator_t one : {first, second, host})
    RAND(curandDestroyGenerator(one));
  CHECK(curandGenerateUniform(first, a, n) == CURAND_STATUS_NOT_INITIALIZED);
  CUDA(cudaFree(a));
  CUDA(cudaFree(b));
}

void runtime_functions() {
  cudaStream_t stream, other;
  CUDA(cudaStreamCreate(&stream));
  CUDA(cudaStreamCreate(&other));
  cudaStreamAttrValue value{}, found{};
  value.accessPolicyWindow.num_bytes = 4096;
  CUDA(cudaStreamSetAttribute(stream, cudaStreamAttributeAccessPolicyWindow, &value));
  CUDA(cudaStreamGetAttribute(other, cudaStreamAttributeAccessPolicyWindow, &found));
  CHECK(found.accessPolicyWindow.num_bytes == 0);
  CUDA(cudaStreamCopyAttributes(other, stream));
  CUDA(cudaStreamGetAttribute(other, cudaStreamAttributeAccessPolicyWindow, &found));
  CHECK(found.accessPolicyWindow.num_bytes == 4096);
  CUDA(cudaCtxResetPersistingL2Cache());
  CUDA(cudaStreamDestroy(other));
  CHECK_CODE(cudaStreamSetAttribute(other, cudaStreamAttributeAccessPolicyWindow, &value),
             cudaErrorInvalidResourceHandle);

  cudaMemPool_t pool;
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location = {cudaMemLocationTypeDevice, 0};
  CUDA(cudaMemPoolCreate(&pool, &properties));
  cudaMemAccessDesc access{properties.location, cudaMemAccessFlagsProtReadWrite};
  CUDA(cudaMemPoolSetAccess(pool, &access, 1));
  access.location.id = 1;
  CHECK_CODE(cudaMemPoolSetAccess(pool, &access, 1), cudaErrorInvalidDevice);
  int *memory;
  CUDA(cudaMallocFromPoolAsync((void **)&memory, 64, pool, stream));
  CUDA(cudaMemsetAsync(memory, 0, 64, stream));
  CUDA(cudaFreeAsync(memory, stream));
  CUDA(cudaMemPoolDestroy(pool));
  CUDA(cudaStreamDestroy(stream));
  nvtxRangePushA("a range");
  CUB_DETAIL_NVTX_RANGE_SCOPE("another");
}

int main() {
  complex_of_every_length();
  three_dimensions();
  for (const bool in_place : {false, true})
    for (const int columns : {1, 5, 8})
      real(3, columns, in_place);
  strided();
  random_numbers();
  runtime_functions();
}
