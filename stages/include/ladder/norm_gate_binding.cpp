#include "ladder/norm_gate_arguments.h"

ladder::Launch ladder::bind_launch(Arguments &arguments) {
  NormGateProblem problem = norm_gate_problem(arguments);
  arguments.tensor("y", problem.y, kMatrixAlignment);
  return [problem](cudaStream_t stream) { launch(problem, stream); };
}
