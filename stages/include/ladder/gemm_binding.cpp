#include "ladder/binding.h"
#include "ladder/gemm.h"

PYBIND11_MODULE(ladder_stage, module) {
  ladder::define_launch(module, [](ladder::Arguments &arguments) {
    ladder::GemmProblem problem{};
    arguments.tensor("a", problem.a);
    arguments.tensor("b", problem.b);
    arguments.tensor("c", problem.c);
    arguments.size("rows", problem.rows);
    arguments.size("cols", problem.cols);
    arguments.size("depth", problem.depth);
    arguments.dtype("dtype", problem.dtype);
    return problem;
  });
}
