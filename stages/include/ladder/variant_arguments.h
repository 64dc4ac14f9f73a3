// A Variant from the arguments of a launch.
#pragma once

#include "ladder/arguments.h"

namespace ladder {

inline void bind_variant(Arguments &arguments, Variant &variant) {
  arguments.number("begin", variant.begin);
  arguments.number("end", variant.end);
  arguments.number("softcap", variant.softcap);
  arguments.optional_tensor("sinks", variant.sinks);
  arguments.optional_tensor("cu_seqlens_q", variant.cu_seqlens_q);
  arguments.optional_tensor("cu_seqlens_k", variant.cu_seqlens_k);
  arguments.number("total_q", variant.total_q);
  arguments.number("total_k", variant.total_k);
}

} // namespace ladder
