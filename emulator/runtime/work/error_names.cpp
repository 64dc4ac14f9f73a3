#include "runtime/work/error_names.h"

namespace ladder::runtime {

namespace {
constexpr const char *kUnknown = "unrecognized error code";
}

const char *error_name(cudaError_t code) {
  switch (code) {
#define LADDER_ERROR(name, text)                                                                             \
  case name:                                                                                                 \
    return #name;
#include "runtime/work/error_names.def"
  default:
    return kUnknown;
  }
}

const char *error_text(cudaError_t code) {
  switch (code) {
#define LADDER_ERROR(name, text)                                                                             \
  case name:                                                                                                 \
    return text;
#include "runtime/work/error_names.def"
  default:
    return kUnknown;
  }
}

} // namespace ladder::runtime
