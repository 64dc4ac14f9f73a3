// What a GPU does where the member mask of a _sync instruction and the lanes that execute it differ: lanes
// that the mask does not name, which the manual leaves undefined, and lanes that it names and that skip the
// instruction. `masks NAME` runs a case and prints a value per lane, `masks --list` prints the names of all.
#include <cooperative_groups.h>
#include <cstdio>
#include <cstring>

namespace {

const char *const kNames[] = {"shfl_xor 1", "shfl_xor 16", "shfl_down 8", "shfl 3",
                              "shfl 20",    "ballot",      "any",         "all",
                              "match_any",  "reduce_add",  "syncwarp",    "reduce_max"};
constexpr int kCases = 12;

template <int kCase> __device__ unsigned exchange(unsigned mask, int lane) {
  if (kCase == 0)
    return __shfl_xor_sync(mask, 100 + lane, 1);
  if (kCase == 1)
    return __shfl_xor_sync(mask, 100 + lane, 16);
  if (kCase == 2)
    return __shfl_down_sync(mask, 100 + lane, 8);
  if (kCase == 3)
    return __shfl_sync(mask, 100 + lane, 3);
  if (kCase == 4)
    return __shfl_sync(mask, 100 + lane, 20);
  if (kCase == 5)
    return __ballot_sync(mask, lane % 3 == 0);
  if (kCase == 6)
    return __any_sync(mask, lane == 20);
  if (kCase == 7)
    return __all_sync(mask, lane < 16);
  if (kCase == 8)
    return __match_any_sync(mask, lane % 4);
  if (kCase == 9)
    return __reduce_add_sync(mask, unsigned(lane));
  if (kCase == 10) {
    __syncwarp(mask);
    return lane;
  }
  return __reduce_max_sync(mask, unsigned(lane));
}

/// The mask names lanes 0 to 15, and is known to the compiler or not; lanes from `first` on execute the
/// instruction.
template <int kCase, bool kConstant> __global__ void not_named(unsigned *out, unsigned given, int first) {
  const unsigned mask = kConstant ? 0xffffu : given;
  const int lane = int(threadIdx.x);
  unsigned result = 9999;
  if (lane >= first)
    result = exchange<kCase>(mask, lane);
  out[lane] = result;
}

/// How lanes 16 to 31, which the mask names, skip the instruction.
enum How { have_exited, exit_then, store_then, leave_a_loop, kHows };
const char *const kHowNames[kHows] = {"have exited", "skip it and exit", "skip it and store",
                                      "leave its loop"};

/// `rounds` is 1 or, of a loop, 3: lanes 16 to 31 leave it after the first.
template <int kCase, bool kConstant, How kHow>
__global__ void skipped(unsigned *out, unsigned given, int lanes, int rounds) {
  const unsigned mask = kConstant ? 0xffffffffu : given;
  const int lane = int(threadIdx.x);
  if (kHow == have_exited && lane >= lanes)
    return;
  if (kHow == exit_then) {
    if (lane < lanes)
      out[lane] = exchange<kCase>(mask, lane);
    return;
  }
  unsigned result = 9999;
  if (kHow == leave_a_loop) {
    result = 0;
    for (int i = 0; i < (lane < lanes ? rounds : 1); ++i)
      result += exchange<kCase>(mask, lane);
  } else if (lane < lanes) {
    result = exchange<kCase>(mask, lane);
  }
  out[lane] = result;
}

/// Runs `launch` if the case of this name is wanted, or prints the name.
template <typename Launch> void offer(const char *wanted, const char *name, Launch launch) {
  if (!strcmp(wanted, "--list"))
    puts(name);
  else if (!strcmp(wanted, name))
    launch();
}

template <int kCase, int kHow> void offer_skipped(const char *wanted, unsigned *out) {
  if constexpr (kHow < kHows) {
    for (const bool constant : {true, false}) {
      char name[80];
      snprintf(name, sizeof name, "%s, full %s mask, lanes 16-31 %s", kNames[kCase],
               constant ? "constant" : "variable", kHowNames[kHow]);
      offer(wanted, name, [&] {
        if (constant)
          skipped<kCase, true, How(kHow)><<<1, 32>>>(out, ~0u, 16, 3);
        else
          skipped<kCase, false, How(kHow)><<<1, 32>>>(out, ~0u, 16, 3);
      });
    }
    offer_skipped<kCase, kHow + 1>(wanted, out);
  }
}

template <int kCase = 0> void offer_all(const char *wanted, unsigned *out) {
  if constexpr (kCase < kCases) {
    for (const bool constant : {true, false})
      for (const int first : {0, 16, 12}) {
        char name[80];
        snprintf(name, sizeof name, "%s, %s mask, lanes from %d", kNames[kCase],
                 constant ? "constant" : "variable", first);
        offer(wanted, name, [&] {
          if (constant)
            not_named<kCase, true><<<1, 32>>>(out, 0xffff, first);
          else
            not_named<kCase, false><<<1, 32>>>(out, 0xffff, first);
        });
      }
    offer_skipped<kCase, 0>(wanted, out);
    offer_all<kCase + 1>(wanted, out);
  }
}

} // namespace

int main(int count, char **words) {
  const char *const wanted = count > 1 ? words[1] : "--list";
  unsigned *out = nullptr, host[32] = {};
  if (strcmp(wanted, "--list")) {
    cudaMalloc(&out, sizeof host);
    cudaMemset(out, 0, sizeof host);
  }
  offer_all(wanted, out);
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
