#include "ladder/norm_gate_arguments.h"

PYBIND11_MODULE(ladder_stage, module) {
  ladder::define_launch(module, [](ladder::Arguments &arguments) {
    ladder::NormGateProblem problem = ladder::norm_gate_problem(arguments);
    arguments.tensor("y", problem.y);
    return problem;
  });
}
