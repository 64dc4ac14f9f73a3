// Operations on vectors (BLAS level 1).
#include "libraries/cublas_call.h"

#include <algorithm>
#include <cmath>

using namespace ladder::libraries;
using Access = Call::Access;

namespace {

void copy(Call &call, cudaDataType type, int n, const void *x_data, int incx, void *y_data, int incy) {
  const Vector x = call.vector("x", type, x_data, n, incx, Access::read);
  const Vector y = call.vector("y", type, y_data, n, incy, Access::write);
  call.begin();
  for (std::int64_t i = 0; i < n; ++i)
    y.set(i, x.get(i));
}

void swap(Call &call, cudaDataType type, int n, void *x_data, int incx, void *y_data, int incy) {
  const Vector x = call.vector("x", type, x_data, n, incx, Access::read_write);
  const Vector y = call.vector("y", type, y_data, n, incy, Access::read_write);
  call.begin();
  for (std::int64_t i = 0; i < n; ++i) {
    const Complex before = x.get(i);
    x.set(i, y.get(i));
    y.set(i, before);
  }
}

/// A product with a real number leaves its parts apart, so that an infinity makes no NaN.
Complex scaled(Complex value, Complex alpha, cudaDataType alpha_type) {
  return is_complex(alpha_type) ? alpha * value : alpha.real() * value;
}

void scal(Call &call, int n, cudaDataType alpha_type, const void *alpha_place, cudaDataType type, void *data,
          int incx) {
  const Complex alpha = call.scalar("alpha", alpha_type, alpha_place);
  const Vector x = call.vector("x", type, data, n, incx, Access::read_write);
  call.begin();
  for (std::int64_t i = 0; i < n; ++i)
    x.set(i, scaled(x.get(i), alpha, alpha_type));
}

void axpy(Call &call, int n, cudaDataType alpha_type, const void *alpha_place, cudaDataType x_type,
          const void *x_data, int incx, cudaDataType y_type, void *y_data, int incy) {
  const Complex alpha = call.scalar("alpha", alpha_type, alpha_place);
  const Vector x = call.vector("x", x_type, x_data, n, incx, Access::read);
  const Vector y = call.vector("y", y_type, y_data, n, incy, Access::read_write);
  call.begin();
  for (std::int64_t i = 0; i < n; ++i)
    y.set(i, scaled(x.get(i), alpha, alpha_type) + y.get(i));
}

void dot(Call &call, int n, cudaDataType x_type, const void *x_data, int incx, cudaDataType y_type,
         const void *y_data, int incy, cudaDataType result_type, void *result, bool conjugates = false) {
  const Vector x = call.vector("x", x_type, x_data, n, incx, Access::read);
  const Vector y = call.vector("y", y_type, y_data, n, incy, Access::read);
  Complex sum = 0;
  if (is_complex(x_type))
    for (std::int64_t i = 0; i < n; ++i)
      sum += (conjugates ? std::conj(x.get(i)) : x.get(i)) * y.get(i);
  else
    for (std::int64_t i = 0; i < n; ++i)
      sum += x.get(i).real() * y.get(i).real();
  call.result(result_type, result, sum);
}

void nrm2(Call &call, int n, cudaDataType type, const void *data, int incx, cudaDataType result_type,
          void *result) {
  const Vector x = call.vector("x", type, data, n, incx, Access::read);
  // Scaled by the largest, so that no square overflows or vanishes.
  double largest = 0, sum = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const Complex value = x.get(i);
    for (const double part : {value.real(), value.imag()})
      largest = std::isnan(part) ? part : std::max(largest, std::fabs(part));
  }
  for (std::int64_t i = 0; i < n && largest != 0 && std::isfinite(largest); ++i) {
    const Complex value = x.get(i) / largest;
    sum += value.real() * value.real() + value.imag() * value.imag();
  }
  call.result(result_type, result, std::isfinite(largest) ? largest * std::sqrt(sum) : largest);
}

double size_of(Complex value) { return std::fabs(value.real()) + std::fabs(value.imag()); }

void asum(Call &call, int n, cudaDataType type, const void *data, int incx, cudaDataType result_type,
          void *result) {
  const Vector x = call.vector("x", type, data, n, incx, Access::read);
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i)
    sum += size_of(x.get(i));
  call.result(result_type, result, sum);
}

/// The first largest or smallest, counted from 1; 0 of none.
void extreme(Call &call, int n, cudaDataType type, const void *data, int incx, int *result, bool is_largest) {
  const Vector x = call.vector("x", type, data, n, incx, Access::read);
  int found = 0;
  double best = 0;
  for (int i = 0; i < n && incx > 0; ++i) {
    const double size = size_of(x.get(i));
    if (found == 0 || (is_largest ? size > best : size < best)) {
      best = size;
      found = i + 1;
    }
  }
  call.result(CUDA_R_32I, result, double(found));
}

void rot(Call &call, cudaDataType type, int n, void *x_data, int incx, void *y_data, int incy,
         const void *c_place, const void *s_place) {
  const Complex c = call.scalar("c", type, c_place), s = call.scalar("s", type, s_place);
  const Vector x = call.vector("x", type, x_data, n, incx, Access::read_write);
  const Vector y = call.vector("y", type, y_data, n, incy, Access::read_write);
  call.begin();
  for (std::int64_t i = 0; i < n; ++i) {
    const double a = x.get(i).real(), b = y.get(i).real();
    x.set(i, c.real() * a + s.real() * b);
    y.set(i, c.real() * b - s.real() * a);
  }
}

} // namespace

#define LADDER_ALL_TYPES(X, Index, T, type)                                                                  \
  cublasStatus_t cublas##X##copy_v2(cublasHandle_t handle, int n, const T *x, int incx, T *y, int incy) {    \
    return run("cublas" #X "copy", handle, [&](Call &call) { copy(call, type, n, x, incx, y, incy); });      \
  }                                                                                                          \
  cublasStatus_t cublas##X##swap_v2(cublasHandle_t handle, int n, T *x, int incx, T *y, int incy) {          \
    return run("cublas" #X "swap", handle, [&](Call &call) { swap(call, type, n, x, incx, y, incy); });      \
  }                                                                                                          \
  cublasStatus_t cublas##X##scal_v2(cublasHandle_t handle, int n, const T *alpha, T *x, int incx) {          \
    return run("cublas" #X "scal", handle, [&](Call &call) { scal(call, n, type, alpha, type, x, incx); });  \
  }                                                                                                          \
  cublasStatus_t cublas##X##axpy_v2(cublasHandle_t handle, int n, const T *alpha, const T *x, int incx,      \
                                    T *y, int incy) {                                                        \
    return run("cublas" #X "axpy", handle,                                                                   \
               [&](Call &call) { axpy(call, n, type, alpha, type, x, incx, type, y, incy); });               \
  }                                                                                                          \
  cublasStatus_t cublas##Index##amax_v2(cublasHandle_t handle, int n, const T *x, int incx, int *result) {   \
    return run("cublas" #Index "amax", handle,                                                               \
               [&](Call &call) { extreme(call, n, type, x, incx, result, true); });                          \
  }                                                                                                          \
  cublasStatus_t cublas##Index##amin_v2(cublasHandle_t handle, int n, const T *x, int incx, int *result) {   \
    return run("cublas" #Index "amin", handle,                                                               \
               [&](Call &call) { extreme(call, n, type, x, incx, result, false); });                         \
  }
LADDER_ALL_TYPES(S, Is, float, CUDA_R_32F)
LADDER_ALL_TYPES(D, Id, double, CUDA_R_64F)
LADDER_ALL_TYPES(C, Ic, cuComplex, CUDA_C_32F)
LADDER_ALL_TYPES(Z, Iz, cuDoubleComplex, CUDA_C_64F)

#define LADDER_NORMS(X, T, type, Real, real_type)                                                            \
  cublasStatus_t cublas##X##nrm2_v2(cublasHandle_t handle, int n, const T *x, int incx, Real *result) {      \
    return run("cublas" #X "nrm2", handle,                                                                   \
               [&](Call &call) { nrm2(call, n, type, x, incx, real_type, result); });                        \
  }                                                                                                          \
  cublasStatus_t cublas##X##asum_v2(cublasHandle_t handle, int n, const T *x, int incx, Real *result) {      \
    return run("cublas" #X "asum", handle,                                                                   \
               [&](Call &call) { asum(call, n, type, x, incx, real_type, result); });                        \
  }
LADDER_NORMS(S, float, CUDA_R_32F, float, CUDA_R_32F)
LADDER_NORMS(D, double, CUDA_R_64F, double, CUDA_R_64F)
LADDER_NORMS(Sc, cuComplex, CUDA_C_32F, float, CUDA_R_32F)
LADDER_NORMS(Dz, cuDoubleComplex, CUDA_C_64F, double, CUDA_R_64F)

#define LADDER_DOT(name, shown, T, type, conjugates)                                                         \
  cublasStatus_t name(cublasHandle_t handle, int n, const T *x, int incx, const T *y, int incy, T *result) { \
    return run(shown, handle,                                                                                \
               [&](Call &call) { dot(call, n, type, x, incx, type, y, incy, type, result, conjugates); });   \
  }
LADDER_DOT(cublasSdot_v2, "cublasSdot", float, CUDA_R_32F, false)
LADDER_DOT(cublasDdot_v2, "cublasDdot", double, CUDA_R_64F, false)
LADDER_DOT(cublasCdotu_v2, "cublasCdotu", cuComplex, CUDA_C_32F, false)
LADDER_DOT(cublasCdotc_v2, "cublasCdotc", cuComplex, CUDA_C_32F, true)
LADDER_DOT(cublasZdotu_v2, "cublasZdotu", cuDoubleComplex, CUDA_C_64F, false)
LADDER_DOT(cublasZdotc_v2, "cublasZdotc", cuDoubleComplex, CUDA_C_64F, true)

cublasStatus_t cublasSrot_v2(cublasHandle_t handle, int n, float *x, int incx, float *y, int incy,
                             const float *c, const float *s) {
  return run("cublasSrot", handle, [&](Call &call) { rot(call, CUDA_R_32F, n, x, incx, y, incy, c, s); });
}

cublasStatus_t cublasDrot_v2(cublasHandle_t handle, int n, double *x, int incx, double *y, int incy,
                             const double *c, const double *s) {
  return run("cublasDrot", handle, [&](Call &call) { rot(call, CUDA_R_64F, n, x, incx, y, incy, c, s); });
}

cublasStatus_t cublasCsscal_v2(cublasHandle_t handle, int n, const float *alpha, cuComplex *x, int incx) {
  return run("cublasCsscal", handle,
             [&](Call &call) { scal(call, n, CUDA_R_32F, alpha, CUDA_C_32F, x, incx); });
}

cublasStatus_t cublasZdscal_v2(cublasHandle_t handle, int n, const double *alpha, cuDoubleComplex *x,
                               int incx) {
  return run("cublasZdscal", handle,
             [&](Call &call) { scal(call, n, CUDA_R_64F, alpha, CUDA_C_64F, x, incx); });
}

namespace {

/// Throws Refusal for a type that no operation here has.
void require_types(std::initializer_list<cudaDataType> types) {
  for (const cudaDataType type : types)
    if (bytes_of(type) == 0)
      throw Refusal(CUBLAS_STATUS_NOT_SUPPORTED,
                    "the type " + std::to_string(type) + " of cudaDataType is not emulated");
}

} // namespace

cublasStatus_t cublasDotEx(cublasHandle_t handle, int n, const void *x, cudaDataType xType, int incx,
                           const void *y, cudaDataType yType, int incy, void *result, cudaDataType resultType,
                           cudaDataType) {
  return run("cublasDotEx", handle, [&](Call &call) {
    require_types({xType, yType, resultType});
    dot(call, n, xType, x, incx, yType, y, incy, resultType, result);
  });
}

cublasStatus_t cublasDotcEx(cublasHandle_t handle, int n, const void *x, cudaDataType xType, int incx,
                            const void *y, cudaDataType yType, int incy, void *result,
                            cudaDataType resultType, cudaDataType) {
  return run("cublasDotcEx", handle, [&](Call &call) {
    require_types({xType, yType, resultType});
    dot(call, n, xType, x, incx, yType, y, incy, resultType, result, true);
  });
}

cublasStatus_t cublasNrm2Ex(cublasHandle_t handle, int n, const void *x, cudaDataType xType, int incx,
                            void *result, cudaDataType resultType, cudaDataType) {
  return run("cublasNrm2Ex", handle, [&](Call &call) {
    require_types({xType, resultType});
    nrm2(call, n, xType, x, incx, resultType, result);
  });
}

cublasStatus_t cublasAxpyEx(cublasHandle_t handle, int n, const void *alpha, cudaDataType alphaType,
                            const void *x, cudaDataType xType, int incx, void *y, cudaDataType yType,
                            int incy, cudaDataType) {
  return run("cublasAxpyEx", handle, [&](Call &call) {
    require_types({alphaType, xType, yType});
    axpy(call, n, alphaType, alpha, xType, x, incx, yType, y, incy);
  });
}

cublasStatus_t cublasScalEx(cublasHandle_t handle, int n, const void *alpha, cudaDataType alphaType, void *x,
                            cudaDataType xType, int incx, cudaDataType) {
  return run("cublasScalEx", handle, [&](Call &call) {
    require_types({alphaType, xType});
    scal(call, n, alphaType, alpha, xType, x, incx);
  });
}
