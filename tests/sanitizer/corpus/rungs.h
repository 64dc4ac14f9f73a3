// Runs a rung, or one with a line changed, on two problems and compares it with a reference. Ends with 3 when
// the result is wrong.
#pragma once

#include "ladder/attention.h"

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <cuda_fp16.h>
#include <exception>
#include <type_traits>
#include <vector>

struct Rung {
  const char *name;
  void (*launch)(const ladder::AttentionProblem &, cudaStream_t);
};

// One head dimension and one element type compile in a sixth of the time.
template <typename F> void only_64(const ladder::AttentionProblem &, F &&f) {
  f(std::integral_constant<int, 64>{});
}
template <typename F> void only_half(const ladder::AttentionProblem &, F &&f) { f(__half{}); }

inline float as_float(float x) { return x; }
inline float as_float(__half x) { return __half2float(x); }

template <typename T> std::vector<T> numbers(size_t n, uint32_t seed) {
  std::vector<T> values(n);
  for (T &value : values) {
    seed = seed * 1664525u + 1013904223u;
    value = T(float(seed >> 8) / float(1 << 23) * 2.f - 2.f);
  }
  return values;
}

// The largest difference of a row's o from the reference, in float64.
template <typename T>
double row_error(const ladder::AttentionProblem &p, const std::vector<T> &q, const std::vector<T> &k,
                 const std::vector<T> &v, const std::vector<T> &o, int head, int row) {
  const int d = p.head_dim, keys = p.is_causal ? std::min(row + 1, p.kv_len) : p.kv_len;
  const size_t q_row = (size_t(head) * p.q_len + row) * d;
  const size_t first_key = size_t(head / (p.heads / p.kv_heads)) * p.kv_len;
  std::vector<double> sums(d);
  double total = 0;
  for (int key = 0; key < keys; key++) {
    double s = 0;
    for (int x = 0; x < d; x++)
      s += double(as_float(q[q_row + x])) * as_float(k[(first_key + key) * d + x]);
    const double weight = std::exp(s * p.scale);
    total += weight;
    for (int x = 0; x < d; x++)
      sums[x] += weight * as_float(v[(first_key + key) * d + x]);
  }
  double error = 0;
  for (int x = 0; x < d; x++) {
    const double difference = std::abs(sums[x] / total - as_float(o[q_row + x]));
    error = std::isnan(difference) ? INFINITY : std::max(error, difference);
  }
  return error;
}

template <typename T> bool is_right(const Rung &rung, ladder::AttentionProblem p) {
  const size_t queries = size_t(p.heads) * p.q_len * p.head_dim;
  const size_t keys = size_t(p.kv_heads) * p.kv_len * p.head_dim, rows = size_t(p.heads) * p.q_len;
  const std::vector<T> q = numbers<T>(queries, 1), k = numbers<T>(keys, 2), v = numbers<T>(keys, 3);
  std::vector<T> o(queries);
  T *device[4];
  const size_t bytes[4] = {queries * sizeof(T), keys * sizeof(T), keys * sizeof(T), queries * sizeof(T)};
  for (int i = 0; i < 4; i++)
    cudaMalloc(&device[i], bytes[i]);
  cudaMalloc(&p.lse, rows * sizeof(float));
  cudaMemcpy(device[0], q.data(), bytes[0], cudaMemcpyHostToDevice);
  cudaMemcpy(device[1], k.data(), bytes[1], cudaMemcpyHostToDevice);
  cudaMemcpy(device[2], v.data(), bytes[2], cudaMemcpyHostToDevice);
  p.q = device[0], p.k = device[1], p.v = device[2], p.o = device[3];
  rung.launch(p, nullptr);
  cudaMemcpy(o.data(), p.o, bytes[3], cudaMemcpyDeviceToHost);
  for (T *memory : device)
    cudaFree(memory);
  cudaFree(p.lse);
  double error = 0;
  for (int head = 0; head < p.heads; head++)
    for (int row = 0; row < p.q_len; row++)
      error = std::max(error, row_error(p, q, k, v, o, head, row));
  printf("%s: N=%d M=%d error %g\n", rung.name, p.q_len, p.kv_len, error);
  return error < 4e-3;
}

template <typename T> int run_rung(const Rung &rung, ladder::DType dtype) {
  try {
    ladder::AttentionProblem p{};
    p.batch = 1, p.heads = 2, p.kv_heads = 1, p.head_dim = 64, p.dtype = dtype, p.scale = 0.125f;
    p.q_len = 100, p.kv_len = 77, p.is_causal = true;
    bool right = is_right<T>(rung, p);
    p.q_len = 64, p.kv_len = 128, p.is_causal = false;
    right = is_right<T>(rung, p) && right;
    return right ? 0 : 3;
  } catch (const std::exception &error) {
    fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

// Of a stage that holds all variants of a rung.
inline void launch_one(const std::vector<Rung> &all, const char *name, const ladder::AttentionProblem &p,
                       cudaStream_t stream) {
  for (const Rung &rung : all)
    if (!strcmp(name, rung.name))
      rung.launch(p, stream);
}

template <typename T> int run_one(const std::vector<Rung> &all, const char *name, ladder::DType dtype) {
  for (const Rung &rung : all)
    if (!strcmp(name, rung.name))
      return run_rung<T>(rung, dtype);
  fprintf(stderr, "there is no rung %s\n", name);
  return 2;
}
