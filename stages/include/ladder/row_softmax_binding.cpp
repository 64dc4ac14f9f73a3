#include "ladder/arguments.h"
#include "ladder/row_softmax.h"

ladder::Launch ladder::bind_launch(Arguments &arguments) {
  RowSoftmaxProblem problem{};
  arguments.tensor("x", problem.x);
  arguments.tensor("y", problem.y);
  arguments.size("rows", problem.rows);
  arguments.size("cols", problem.cols);
  arguments.dtype("dtype", problem.dtype);
  return [problem](cudaStream_t stream) { launch(problem, stream); };
}
