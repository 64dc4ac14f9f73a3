// A corpus of small programs in one: the first argument names the case to run, --list prints all names.
#pragma once

#include <cstdio>
#include <cstring>

// A list without <vector>, which takes a third of the time that a file of cases takes to compile.
struct Case {
  const char *name;
  void (*run)();
  const Case *before;
};
inline const Case *last_case = nullptr;

#define CASE(name)                                                                                           \
  static void run_##name();                                                                                  \
  static const Case case_##name{#name, run_##name, last_case};                                               \
  static const bool registered_##name = (last_case = &case_##name, true);                                    \
  static void run_##name()

// Device memory, zeroed, freed at the end of the scope.
template <typename T> struct Device {
  T *data = nullptr;
  size_t bytes;
  explicit Device(size_t n) : bytes(n * sizeof(T)) {
    cudaMalloc(&data, bytes);
    cudaMemset(data, 0, bytes);
  }
  ~Device() { cudaFree(data); }
  Device(const Device &) = delete;
  operator T *() const { return data; }
};

#ifndef CORPUS_HAS_OWN_MAIN
int main(int count, char **words) {
  const char *wanted = count > 1 ? words[1] : "--list";
  for (const Case *one = last_case; one; one = one->before) {
    if (!strcmp(wanted, "--list"))
      puts(one->name);
    else if (!strcmp(wanted, one->name)) {
      one->run();
      // A fault that the GPU itself notices shows here; the others need a tool.
      const cudaError_t error = cudaDeviceSynchronize();
      printf("%s: %s\n", one->name, cudaGetErrorName(error));
      return 0;
    }
  }
  if (!strcmp(wanted, "--list"))
    return 0;
  fprintf(stderr, "there is no case %s\n", wanted);
  return 2;
}
#endif
