// In place of torch's header; see torch/extension.h.
#pragma once

#ifdef LADDER_WHOLE_TORCH
#include_next <torch/torch.h>
#else
#include <torch/extension.h>
#endif
