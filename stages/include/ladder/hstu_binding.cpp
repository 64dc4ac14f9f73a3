#include "ladder/hstu_arguments.h"

PYBIND11_MODULE(ladder_stage, module) {
  ladder::define_launch(module, [](ladder::Arguments &arguments) {
    ladder::HstuProblem problem = ladder::hstu_problem(arguments);
    arguments.tensor("o", problem.o);
    return problem;
  });
}
