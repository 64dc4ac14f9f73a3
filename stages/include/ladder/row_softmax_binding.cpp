#include "ladder/binding.h"
#include "ladder/row_softmax.h"

PYBIND11_MODULE(ladder_stage, module) {
  ladder::define_launch(module, [](ladder::Arguments &arguments) {
    ladder::RowSoftmaxProblem problem{};
    arguments.tensor("x", problem.x);
    arguments.tensor("y", problem.y);
    arguments.size("rows", problem.rows);
    arguments.size("cols", problem.cols);
    arguments.dtype("dtype", problem.dtype);
    return problem;
  });
}
