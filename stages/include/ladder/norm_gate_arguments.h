// The fields of a NormGateProblem from Python.
#pragma once

#include "ladder/arguments.h"
#include "ladder/norm_gate.h"

namespace ladder {

/// Kernels access two elements at once.
constexpr unsigned kPairBytes = 4;

inline NormGateProblem norm_gate_problem(Arguments &arguments) {
  NormGateProblem p{};
  arguments.tensor("x", p.x, kPairBytes);
  arguments.tensor("gate", p.gate, kPairBytes);
  arguments.tensor("weight", p.weight);
  arguments.tensor("bias", p.bias);
  arguments.size("rows", p.rows);
  arguments.size("cols", p.cols);
  arguments.dtype("dtype", p.dtype);
  return p;
}

} // namespace ladder
