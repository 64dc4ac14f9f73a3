#pragma once

#include "runtime/work/cuda_api.h"

namespace ladder::runtime {

const char *error_name(cudaError_t code);
const char *error_text(cudaError_t code);

} // namespace ladder::runtime
