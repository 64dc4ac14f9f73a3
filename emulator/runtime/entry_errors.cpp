// cudaGetLastError and the names of errors.
#include "runtime/cuda_api.h"
