#include "ladder/arguments.h"
#include "ladder/gemm.h"

ladder::Launch ladder::bind_launch(Arguments &arguments) {
  GemmProblem problem{};
  arguments.tensor("a", problem.a);
  arguments.tensor("b", problem.b);
  arguments.tensor("c", problem.c);
  arguments.size("rows", problem.rows);
  arguments.size("cols", problem.cols);
  arguments.size("depth", problem.depth);
  arguments.dtype("dtype", problem.dtype);
  return [problem](cudaStream_t stream) { launch(problem, stream); };
}
