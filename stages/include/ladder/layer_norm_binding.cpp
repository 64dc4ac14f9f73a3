#include "ladder/binding.h"
#include "ladder/layer_norm.h"

PYBIND11_MODULE(ladder_stage, module) {
  ladder::define_launch(module, [](ladder::Arguments &arguments) {
    ladder::LayerNormProblem problem{};
    arguments.tensor("x", problem.x);
    arguments.tensor("weight", problem.weight);
    arguments.tensor("bias", problem.bias);
    arguments.tensor("y", problem.y);
    arguments.size("rows", problem.rows);
    arguments.size("cols", problem.cols);
    arguments.dtype("dtype", problem.dtype);
    return problem;
  });
}
