// The fields of a NormGateProblem from Python.
#pragma once

#include "ladder/arguments.h"
#include "ladder/norm_gate.h"

namespace ladder {

/// Kernels access four elements at once, of 16 or of 32 bits.
constexpr unsigned kMatrixAlignment = 8, kVectorAlignment = 16;

inline NormGateProblem norm_gate_problem(Arguments &arguments) {
  NormGateProblem p{};
  arguments.tensor("x", p.x, kMatrixAlignment);
  arguments.tensor("gate", p.gate, kMatrixAlignment);
  arguments.tensor("weight", p.weight, kVectorAlignment);
  arguments.tensor("bias", p.bias, kVectorAlignment);
  arguments.size("rows", p.rows);
  arguments.size("cols", p.cols);
  arguments.dtype("dtype", p.dtype);
  return p;
}

} // namespace ladder
