#include "ladder/arguments.h"
#include "ladder/rotary.h"

ladder::Launch ladder::bind_launch(Arguments &arguments) {
  RotaryProblem problem{};
  arguments.tensor("x", problem.x);
  arguments.tensor("cos", problem.cos);
  arguments.tensor("sin", problem.sin);
  arguments.tensor("y", problem.y);
  arguments.size("heads", problem.heads);
  arguments.size("length", problem.length);
  arguments.size("head_dim", problem.head_dim);
  arguments.dtype("dtype", problem.dtype);
  return [problem](cudaStream_t stream) { launch(problem, stream); };
}
