// ladder emulate program.cu -- 24: attention of 24 queries to two halves of the keys, merged by lse.
#include <cmath>
#include <cstdio>
#include <cstdlib>

constexpr int kKeys = 8, kD = 4;

// One thread per query. o (n, kD) and lse (n) are of the first keys, and become those of all keys; part_o and
// part_lse are of the others. A query that sees no key of a part has o = 0 and lse = -inf there.
__global__ void merge(float *o, float *lse, const float *part_o, const float *part_lse, int n) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= n)
    return;
  const float mine = lse[row], other = part_lse[row];
  const float largest = fmaxf(mine, other);
  const float sum = expf(mine - largest) + expf(other - largest);
  const float share = largest == -INFINITY ? 0.f : expf(other - largest) / sum;
  for (int x = 0; x < kD; x++)
    o[row * kD + x] += share * (part_o[row * kD + x] - o[row * kD + x]);
  if (largest > -INFINITY)
    lse[row] = largest + logf(sum);
}

// The attention of logits s to keys first .. end - 1, in double.
void attend(const double *s, const double (*v)[kD], int first, int end, double *o, double *lse) {
  double largest = -INFINITY, sum = 0;
  for (int j = first; j < end; j++)
    largest = std::fmax(largest, s[j]);
  for (int x = 0; x < kD; x++)
    o[x] = 0;
  *lse = -INFINITY;
  if (std::isinf(largest))
    return;
  for (int j = first; j < end; j++)
    sum += std::exp(s[j] - largest);
  for (int j = first; j < end; j++)
    for (int x = 0; x < kD; x++)
      o[x] += std::exp(s[j] - largest) / sum * v[j][x];
  *lse = largest + std::log(sum);
}

bool is_near(float found, double wanted) {
  if (std::isinf(wanted))
    return found == wanted;
  return std::fabs(found - wanted) <= 1e-4 + 1e-5 * std::fabs(wanted);
}

int main(int argc, char **argv) {
  const int n = argc > 1 ? std::atoi(argv[1]) : 24, half = kKeys / 2;
  float *o, *lse, *part_o, *part_lse;
  cudaMallocManaged(&o, n * kD * sizeof(float));
  cudaMallocManaged(&lse, n * sizeof(float));
  cudaMallocManaged(&part_o, n * kD * sizeof(float));
  cudaMallocManaged(&part_lse, n * sizeof(float));
  double v[kKeys][kD], wanted_o[kD], wanted_lse, s[kKeys];
  for (int j = 0; j < kKeys; j++)
    for (int x = 0; x < kD; x++)
      v[j][x] = (j * 5 + x * 3) % 7 - 3;
  // Query i sees the first i % 9 keys. Some have large logits, some only the keys of the second half.
  const auto logits = [&](int i) {
    for (int j = 0; j < kKeys; j++) {
      s[j] = (i * 3 + j * 7) % 11 / 4.0 + (i % 5 == 3 ? 200 : 0) - (i % 5 == 1 ? 300 : 0);
      if (j >= i % 9 || (i % 4 == 2 && j < half))
        s[j] = -INFINITY;
    }
  };
  for (int i = 0; i < n; i++) {
    logits(i);
    for (int part = 0; part < 2; part++) {
      attend(s, v, part * half, part * half + half, wanted_o, &wanted_lse);
      for (int x = 0; x < kD; x++)
        (part ? part_o : o)[i * kD + x] = wanted_o[x];
      (part ? part_lse : lse)[i] = wanted_lse;
    }
  }
  merge<<<(n + 31) / 32, 32>>>(o, lse, part_o, part_lse, n);
  if (const cudaError_t error = cudaDeviceSynchronize()) {
    std::printf("%s\n", cudaGetErrorString(error));
    return 1;
  }
  for (int i = 0; i < n; i++) {
    logits(i);
    attend(s, v, 0, kKeys, wanted_o, &wanted_lse);
    if (!is_near(lse[i], wanted_lse)) {
      std::printf("lse[%d] is %g, should be %g\n", i, lse[i], wanted_lse);
      return 1;
    }
    for (int x = 0; x < kD; x++)
      if (!is_near(o[i * kD + x], wanted_o[x])) {
        std::printf("o[%d][%d] is %g, should be %g\n", i, x, o[i * kD + x], wanted_o[x]);
        return 1;
      }
  }
  std::printf("right\n");
}
