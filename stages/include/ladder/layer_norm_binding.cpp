#include "ladder/arguments.h"
#include "ladder/layer_norm.h"

ladder::Launch ladder::bind_launch(Arguments &arguments) {
  LayerNormProblem problem{};
  arguments.tensor("x", problem.x);
  arguments.tensor("weight", problem.weight);
  arguments.tensor("bias", problem.bias);
  arguments.tensor("y", problem.y);
  arguments.size("rows", problem.rows);
  arguments.size("cols", problem.cols);
  arguments.dtype("dtype", problem.dtype);
  return [problem](cudaStream_t stream) { launch(problem, stream); };
}
