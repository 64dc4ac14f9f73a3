// Attention with one thread a query row and nothing in shared memory, as a student's first try might be.
#include "ladder/attention.h"
#include "ladder/errors.h"

namespace {
constexpr int kHeadDim = 32;

__global__ void naive(ladder::AttentionProblem p) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= p.q_len)
    return;
  const int head = blockIdx.y % p.heads, batch = blockIdx.y / p.heads;
  const long query = (long(blockIdx.y) * p.q_len + row) * kHeadDim;
  const long keys = (long(batch) * p.kv_heads + head / (p.heads / p.kv_heads)) * p.kv_len * kHeadDim;
  const float *q = static_cast<const float *>(p.q) + query;
  const float *k = static_cast<const float *>(p.k) + keys, *v = static_cast<const float *>(p.v) + keys;
  float m = -INFINITY, l = 0, o[kHeadDim] = {};
  for (int j = 0; j < (p.is_causal ? min(row + 1, p.kv_len) : p.kv_len); ++j) {
    float s = 0;
    for (int x = 0; x < kHeadDim; ++x)
      s += q[x] * k[j * kHeadDim + x];
    s *= p.scale;
    const float new_m = fmaxf(m, s), old = expf(m - new_m), weight = expf(s - new_m);
    l = l * old + weight;
    for (int x = 0; x < kHeadDim; ++x)
      o[x] = o[x] * old + weight * v[j * kHeadDim + x];
    m = new_m;
  }
  for (int x = 0; x < kHeadDim; ++x)
    static_cast<float *>(p.o)[query + x] = o[x] / l;
  p.lse[long(blockIdx.y) * p.q_len + row] = m + logf(l);
}
} // namespace

void ladder::launch(const AttentionProblem &p, cudaStream_t stream) {
  if (p.dtype != DType::f32 || p.head_dim != kHeadDim)
    refuse("naive takes f32 and d = 32");
  naive<<<dim3((p.q_len + 63) / 64, p.batch * p.heads), 64, 0, stream>>>(p);
  if (const cudaError_t error = cudaGetLastError())
    fail("naive", cudaGetErrorString(error));
}
