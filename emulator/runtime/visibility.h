#pragma once

/// What the Python module uses of this library. The CUDA entry points get the same from cuda_api.h.
#define LADDER_API __attribute__((visibility("default")))
