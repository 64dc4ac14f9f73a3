// In place of torch's header: all that extensions use of it but the C++ frontend (torch::nn, optim, data,
// jit), which takes most of its compile time. An extension that needs those defines LADDER_WHOLE_TORCH.
#pragma once

#ifdef LADDER_WHOLE_TORCH
#include_next <torch/extension.h>
#else

#include <torch/autograd.h>
#include <torch/fft.h>
#include <torch/special.h>
#include <torch/types.h>
#include <torch/utils.h>
#include <torch/version.h>

#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#endif
