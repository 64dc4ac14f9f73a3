#include "ladder/binding.h"
#include "ladder/rotary.h"

PYBIND11_MODULE(ladder_stage, module) {
  ladder::define_launch(module, [](ladder::Arguments &arguments) {
    ladder::RotaryProblem problem{};
    arguments.tensor("x", problem.x);
    arguments.tensor("cos", problem.cos);
    arguments.tensor("sin", problem.sin);
    arguments.tensor("y", problem.y);
    arguments.size("heads", problem.heads);
    arguments.size("length", problem.length);
    arguments.size("head_dim", problem.head_dim);
    arguments.dtype("dtype", problem.dtype);
    return problem;
  });
}
