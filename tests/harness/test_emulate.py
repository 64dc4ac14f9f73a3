"""``ladder emulate``: any program, as it is."""

import contextlib
import json
import os
import signal
import subprocess
import sys

import pytest

from ladder.cli import main

PROGRAM = r"""
#include <cstdio>
#include <cstdlib>

__global__ void transpose(const float *in, float *out) {
  __shared__ float tile[32][32];
  tile[threadIdx.y][threadIdx.x] = in[threadIdx.y * 32 + threadIdx.x];
  __syncthreads();
  out[threadIdx.y * 32 + threadIdx.x] = tile[threadIdx.x][threadIdx.y];
}

__global__ void forever(volatile int *flag) { while (!*flag) {} }

int main(int argc, char **argv) {
  float *in, *out;
  cudaMalloc(&in, 4096);
  cudaMalloc(&out, 4096);
  if (argc > 1 && argv[1][0] == 'f') {
    std::puts("started");
    std::fflush(stdout);
    forever<<<1, 1>>>((int *)in);
  }
  if (argc > 1 && argv[1][0] == 'b') in += 100000;
  for (int i = 0; i < 2; ++i) transpose<<<1, dim3(32, 32)>>>(in, out);
  const cudaError_t error = cudaDeviceSynchronize();
  std::printf("%s\n", cudaGetErrorName(error));
  return argc > 1 ? std::atoi(argv[1]) : 0;
}
"""


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "prog.cu"
    path.write_text(PROGRAM)
    return str(path)


def test_counts_of_each_kernel(program, capfd):
    assert main(["emulate", program, "--json", "-"]) == 0
    out = capfd.readouterr().out
    assert out.startswith("cudaSuccess\n")
    rows = json.loads(out.partition("\n")[2])
    assert len(rows) == 1 and "transpose" in rows[0]["kernel"]
    assert rows[0]["launches"] == 2 and rows[0]["block"] == [32, 32, 1] and rows[0]["smem_bytes"] == 4096
    # 32 warps read a column of 32 rows each: 32 wavefronts where 1 would do.
    assert rows[0]["conflicts_ld"] == 2 * 32 * 31 and rows[0]["conflicts_st"] == 0


def test_arguments_and_exit_code_are_the_programs(program, capfd):
    assert main(["emulate", program, "--", "5"]) == 5
    out = capfd.readouterr().out
    assert "cudaSuccess" in out and "transpose" in out and "1,984" in out


def test_a_fault_is_shown_with_its_line(program, capfd):
    main(["emulate", program, "--", "b"])
    captured = capfd.readouterr()
    assert "cudaErrorIllegalAddress" in captured.out
    assert "prog.cu:7" in captured.err


def test_ctrl_c_ends_an_endless_kernel(program):
    environment = {**os.environ, "LADDER_WARP_INSTRUCTION_LIMIT": str(10**15)}
    process = subprocess.Popen(
        [sys.executable, "-m", "ladder.cli", "emulate", program, "--", "f"],
        env=environment,
        start_new_session=True,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None and process.stdout.readline() == b"started\n"
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(timeout=30) == 130
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def test_an_endless_kernel_meets_a_limit(program, capfd, monkeypatch):
    monkeypatch.setenv("LADDER_WARP_INSTRUCTION_LIMIT", "100000")
    main(["emulate", program, "--", "f"])
    assert "prog.cu:12" in capfd.readouterr().err
