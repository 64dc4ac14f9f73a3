#include "ladder/arguments.h"
#include "ladder/attention_backward.h"
#include "ladder/variant_arguments.h"

ladder::Launch ladder::bind_launch(Arguments &arguments) {
  AttentionBackwardVariant problem{};
  arguments.tensor("q", problem.q);
  arguments.tensor("k", problem.k);
  arguments.tensor("v", problem.v);
  arguments.tensor("o", problem.o);
  arguments.tensor("lse", problem.lse);
  arguments.tensor("d_o", problem.d_o);
  arguments.optional_tensor("d_lse", problem.d_lse);
  arguments.tensor("dq", problem.dq);
  arguments.tensor("dk", problem.dk);
  arguments.tensor("dv", problem.dv);
  arguments.strides("q_strides", problem.q_strides);
  arguments.strides("k_strides", problem.k_strides);
  arguments.strides("v_strides", problem.v_strides);
  arguments.strides("d_o_strides", problem.d_o_strides);
  arguments.size("batch", problem.batch);
  arguments.size("heads", problem.heads);
  arguments.size("kv_heads", problem.kv_heads);
  arguments.size("q_len", problem.q_len);
  arguments.size("kv_len", problem.kv_len);
  arguments.size("head_dim", problem.head_dim);
  arguments.dtype("dtype", problem.dtype);
  arguments.flag("is_causal", problem.is_causal);
  arguments.number("scale", problem.scale);
  bind_variant(arguments, problem);
  arguments.optional_tensor("d_sinks", problem.d_sinks);
  if (problem.heads % problem.kv_heads != 0)
    throw std::invalid_argument("heads must be a multiple of kv_heads");
  return [problem](cudaStream_t stream) { launch(problem, stream); };
}
