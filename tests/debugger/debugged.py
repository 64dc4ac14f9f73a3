"""A program to debug, and what the prompt shows of a session."""

from ladder.common.terminal import SafeConsole
from ladder.debugger import Prompt, Session

#: Even threads read what the other warp wrote, without a barrier.
RACE = """
#include <cuda_runtime.h>
__device__ float twice(float value) {
  const float result = 2 * value;
  return result;
}

__global__ void shift(float *out, int count) {
  __shared__ float s[64];
  const int t = threadIdx.x;

  s[t] = twice(t);
  float next = 0;
  if (t % 2 == 0)
    next = s[(t + 33) % 64];
  else
    next = s[t] + count;
  out[t] = next;
}

int main() {
  float *out;
  cudaMalloc(&out, 256);
  cudaMemset(out, 0, 256);
  shift<<<1, 64>>>(out, 7);
  return cudaDeviceSynchronize() != cudaSuccess;
}
"""


def line_of(text: str) -> int:
    """The number of the line of the program with this text."""
    return next(number for number, line in enumerate(RACE.lstrip().splitlines(), 1) if text in line)


def transcript(session: Session, *commands: str) -> str:
    """What the prompt shows for these commands."""
    console = SafeConsole(record=True, width=120, quiet=False, file=open("/dev/null", "w"))  # noqa: SIM115
    Prompt(session, console).run(commands, echoes=True)
    return console.export_text()
