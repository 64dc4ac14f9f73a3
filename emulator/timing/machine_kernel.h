// A kernel's machine code, as the model of time needs it: ptxas's order of instructions, and what each keeps
// busy.
#pragma once

#include <cstdint>
#include <vector>

namespace ladder::timing {

/// What an instruction of sm_75 or newer keeps busy in a quarter of a multiprocessor.
enum class Pipe : std::uint8_t { fma, alu, xu, uniform, memory, tensor, other };
inline constexpr int kPipes = int(Pipe::other) + 1;

struct MachineInstruction {
  std::uint32_t place = 0; ///< its number within the kernel
  int ptx_line = 0;
  Pipe pipe = Pipe::other;
  std::uint8_t stall = 1; ///< cycles before the warp's next instruction, by ptxas's control code
};

struct MachineKernel {
  std::vector<MachineInstruction> instructions; ///< in order of place; empty: no machine code
  unsigned registers = 0;                       ///< per thread
};

/// By the lower nine bits of the opcode; read off nvdisasm's listings of the rungs, CUDA 13.
constexpr Pipe pipe_of(unsigned opcode) {
  const unsigned op = opcode & 0x1ff;
  switch (op) {
  case 0x20: // FMUL
  case 0x21: // FADD
  case 0x23: // FFMA
  case 0x24: // IMAD
  case 0x25:
  case 0x27:
  case 0x30: // HADD2
  case 0x31:
  case 0x32:
  case 0x35: // HFMA2
    return Pipe::fma;
  case 0x3c: // HMMA
  case 0x37: // IMMA
    return Pipe::tensor;
  case 0x3b: // LDSM
  case 0x44: // STSM
    return Pipe::memory;
  case 0x104: // F2F
  case 0x105: // F2I
  case 0x106: // I2F
  case 0x108: // MUFU
  case 0x100: // FLO
  case 0x109: // POPC
  case 0x111:
  case 0x112:
    return Pipe::xu;
  default:
    break;
  }
  if (op < 0x80)
    return Pipe::alu;
  if (op < 0xc0)
    return Pipe::uniform;
  if ((op >= 0x181 && op <= 0x18c && op != 0x182) || op == 0x1a8 || op == 0x1ae)
    return Pipe::memory; // LDG, LDL, LDS, STG, STL, STS, SHFL, ATOM, LDGSTS
  return Pipe::other;
}

} // namespace ladder::timing
