#include "ladder/norm_gate_arguments.h"

PYBIND11_MODULE(ladder_stage, module) {
  ladder::define_launch(module, [](ladder::Arguments &arguments) {
    ladder::NormGateBackwardProblem problem{};
    problem.forward = ladder::norm_gate_problem(arguments);
    arguments.tensor("d_y", problem.d_y);
    arguments.tensor("dx", problem.dx);
    arguments.tensor("d_gate", problem.d_gate);
    arguments.tensor("d_weight", problem.d_weight);
    arguments.tensor("d_bias", problem.d_bias);
    return problem;
  });
}
