#include "ladder/hstu_arguments.h"
#include "ladder/hstu_backward.h"

ladder::Launch ladder::bind_launch(Arguments &arguments) {
  HstuBackwardProblem problem{};
  problem.forward = hstu_problem(arguments);
  arguments.tensor("d_o", problem.d_o, kHstuAlignment);
  arguments.tensor("dq", problem.dq, kHstuAlignment);
  arguments.tensor("dk", problem.dk, kHstuAlignment);
  arguments.tensor("dv", problem.dv, kHstuAlignment);
  arguments.optional_tensor("d_rab", problem.d_rab, kHstuAlignment);
  return [problem](cudaStream_t stream) { launch(problem, stream); };
}
