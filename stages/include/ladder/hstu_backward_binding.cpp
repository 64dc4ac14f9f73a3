#include "ladder/hstu_arguments.h"
#include "ladder/hstu_backward.h"

PYBIND11_MODULE(ladder_stage, module) {
  ladder::define_launch(module, [](ladder::Arguments &arguments) {
    ladder::HstuBackwardProblem problem{};
    problem.forward = ladder::hstu_problem(arguments);
    arguments.tensor("d_o", problem.d_o);
    arguments.tensor("dq", problem.dq);
    arguments.tensor("dk", problem.dk);
    arguments.tensor("dv", problem.dv);
    arguments.optional_tensor("d_rab", problem.d_rab);
    return problem;
  });
}
