import ctypes
import os
import subprocess

import torch

SOURCE = r"""
#include <cuda_fp16.h>

template <class Sum> __global__ void row_sum(const float *x, float *y, int n) {
  __shared__ float part[32];
  Sum sum = Sum(0.f);
  for (int i = threadIdx.x; i < n; i += 32)
    sum = sum + Sum(fmaxf(x[blockIdx.x * n + i], 0.f));
  part[threadIdx.x] = float(sum);
  __syncthreads();
  Sum all = Sum(0.f);
  for (int i = 0; i < 32; ++i)
    all = all + Sum(part[i]);
  if (threadIdx.x == 0)
    y[blockIdx.x] = float(all);
}
__global__ void idle(float *x) {}
__global__ void zero(float *x, int n) {
  for (int i = threadIdx.x; i < n; i += 32)
    x[i] = 0;
}
extern "C" void sum(float *x, float *y, int rows, int n) { row_sum<float><<<rows, 32>>>(x, y, n); }
extern "C" void sum_in_half(float *x, float *y, int rows, int n) { row_sum<__half><<<rows, 32>>>(x, y, n); }
extern "C" void do_nothing(float *x, float *y, int rows, int n) { idle<<<1, 32>>>(x); }
extern "C" void clear(float *x, float *y, int rows, int n) { zero<<<1, 32>>>(x, rows * n); }
"""


def library():
    path = os.path.join(os.environ["HOME"], "row_sum")
    if not os.path.exists(path + ".so"):
        with open(path + ".cu", "w") as file:
            file.write(SOURCE)
        subprocess.run(
            ["nvcc", "-shared", "-Xcompiler", "-fPIC", "-o", path + ".so", path + ".cu"], check=True
        )
    return ctypes.CDLL(path + ".so")


def call(name, x, y):
    getattr(library(), name)(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr()), *x.shape)
    return y


def empty(x):
    return torch.empty(x.shape[0], device="cuda")


def with_torch(x):
    return torch.relu(x).sum(dim=1)
