#pragma once

/// Exports what the Python module uses of this library. cuda_api.h does the same for the CUDA entry points.
#define LADDER_API __attribute__((visibility("default")))
