#include "ladder/arguments.h"
#include "ladder/linear_attention.h"

ladder::Launch ladder::bind_launch(Arguments &arguments) {
  LinearAttentionProblem problem{};
  arguments.tensor("q", problem.q);
  arguments.tensor("k", problem.k);
  arguments.tensor("v", problem.v);
  arguments.tensor("o", problem.o);
  arguments.size("heads", problem.heads);
  arguments.size("length", problem.length);
  arguments.size("head_dim", problem.head_dim);
  arguments.dtype("dtype", problem.dtype);
  return [problem](cudaStream_t stream) { launch(problem, stream); };
}
