// What a GPU does when lanes execute a _sync instruction whose mask does not name them, which the manual
// leaves undefined: `masks NAME` runs a case and prints a value a lane, `masks --list` prints the cases'
// names.
#include <cooperative_groups.h>
#include <cstdio>
#include <cstring>

namespace {

/// `mask` is known to the compiler or not; only lanes from `first` on execute the instruction.
template <int kCase, bool kConstant> __global__ void run(unsigned *out, unsigned given, int first) {
  const unsigned mask = kConstant ? 0xffffu : given;
  const int lane = int(threadIdx.x);
  unsigned result = 9999;
  if (lane >= first) {
    if (kCase == 0)
      result = __shfl_xor_sync(mask, 100 + lane, 1);
    if (kCase == 1)
      result = __shfl_xor_sync(mask, 100 + lane, 16);
    if (kCase == 2)
      result = __shfl_down_sync(mask, 100 + lane, 8);
    if (kCase == 3)
      result = __shfl_sync(mask, 100 + lane, 3);
    if (kCase == 4)
      result = __shfl_sync(mask, 100 + lane, 20);
    if (kCase == 5)
      result = __ballot_sync(mask, lane % 3 == 0);
    if (kCase == 6)
      result = __any_sync(mask, lane == 20);
    if (kCase == 7)
      result = __all_sync(mask, lane < 16);
    if (kCase == 8)
      result = __match_any_sync(mask, lane % 4);
    if (kCase == 9)
      result = __reduce_add_sync(mask, unsigned(lane));
    if (kCase == 10) {
      __syncwarp(mask);
      result = lane;
    }
    if (kCase == 11)
      result = __reduce_max_sync(mask, unsigned(lane));
  }
  out[lane] = result;
}

const char *const kNames[] = {"shfl_xor 1", "shfl_xor 16", "shfl_down 8", "shfl 3",
                              "shfl 20",    "ballot",      "any",         "all",
                              "match_any",  "reduce_add",  "syncwarp",    "reduce_max"};
constexpr int kCases = 12;

template <int kCase = 0> void launch(const char *wanted, unsigned *out) {
  if constexpr (kCase < kCases) {
    for (const bool constant : {true, false})
      for (const int first : {0, 16, 12}) {
        char name[80];
        snprintf(name, sizeof name, "%s, %s mask, lanes from %d", kNames[kCase],
                 constant ? "constant" : "variable", first);
        if (!strcmp(wanted, "--list")) {
          puts(name);
        } else if (!strcmp(wanted, name)) {
          if (constant)
            run<kCase, true><<<1, 32>>>(out, 0xffff, first);
          else
            run<kCase, false><<<1, 32>>>(out, 0xffff, first);
        }
      }
    launch<kCase + 1>(wanted, out);
  }
}

} // namespace

int main(int count, char **words) {
  const char *const wanted = count > 1 ? words[1] : "--list";
  unsigned *out = nullptr, host[32] = {};
  if (strcmp(wanted, "--list"))
    cudaMalloc(&out, sizeof host);
  launch(wanted, out);
  if (!out)
    return 0;
  const cudaError_t error = cudaMemcpy(host, out, sizeof host, cudaMemcpyDeviceToHost);
  if (error != cudaSuccess) {
    puts(cudaGetErrorName(error));
    return 0;
  }
  for (const unsigned value : host)
    printf("%u ", value);
  puts("");
}
