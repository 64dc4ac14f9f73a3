#include "ladder/norm_gate_arguments.h"

ladder::Launch ladder::bind_launch(Arguments &arguments) {
  NormGateBackwardProblem problem{};
  problem.forward = norm_gate_problem(arguments);
  arguments.tensor("d_y", problem.d_y, kMatrixAlignment);
  arguments.tensor("dx", problem.dx, kMatrixAlignment);
  arguments.tensor("d_gate", problem.d_gate, kMatrixAlignment);
  arguments.tensor("d_weight", problem.d_weight);
  arguments.tensor("d_bias", problem.d_bias);
  return [problem](cudaStream_t stream) { launch(problem, stream); };
}
