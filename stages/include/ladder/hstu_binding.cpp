#include "ladder/hstu_arguments.h"

ladder::Launch ladder::bind_launch(Arguments &arguments) {
  HstuProblem problem = hstu_problem(arguments);
  arguments.tensor("o", problem.o, kHstuAlignment);
  return [problem](cudaStream_t stream) { launch(problem, stream); };
}
