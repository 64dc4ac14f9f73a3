#include "attention_v1.cu"
#include "attention_v2.cu"
#include "attention_v3.cu"
#include "attention_v4.cu"
#include "attention_v5.cu"

#include "driver.cuh"

int main(int argc, char **argv) {
  constexpr int heads = 2, N = 128, d = 128;
  auto *Q = driver::array<nv_bfloat16>(heads * N * d), *K = driver::array<nv_bfloat16>(heads * N * d),
       *V = driver::array<nv_bfloat16>(heads * N * d), *O = driver::array<nv_bfloat16>(heads * N * d);
  return driver::repeat(argc, argv, [&] {
    for (auto *attention : {attention_v1, attention_v2, attention_v3, attention_v4, attention_v5})
      attention(Q, K, V, O, heads, N, N, d);
  });
}
