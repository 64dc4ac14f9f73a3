// A program that finds something wrong says where and ends with 1.
#pragma once

#include <cstdio>
#include <cstdlib>

#define CHECK(condition)                                                                                     \
  do {                                                                                                       \
    if (!(condition)) {                                                                                      \
      std::printf("%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition);                              \
      std::exit(1);                                                                                          \
    }                                                                                                        \
  } while (0)

#define CUDA(call) CHECK_CODE(call, cudaSuccess)
#define CHECK_CODE(call, wanted)                                                                             \
  do {                                                                                                       \
    const cudaError_t code_ = (call);                                                                        \
    if (code_ != (wanted)) {                                                                                 \
      std::printf("%s:%d: %s gives %s, not %s\n", __FILE__, __LINE__, #call, cudaGetErrorName(code_),        \
                  cudaGetErrorName(wanted));                                                                 \
      std::exit(1);                                                                                          \
    }                                                                                                        \
  } while (0)
