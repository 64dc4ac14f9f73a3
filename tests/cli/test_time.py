"""``ladder time``: of a rung, from the cache the second time, and of programs."""

import json

import pytest
from rungs import named

from ladder.cli import main
from ladder.run.backends import EmulatorRunner

PROGRAM = """
__global__ void halve(float *x) {
  __shared__ float values[128];
  values[threadIdx.x] = exp2f(x[threadIdx.x]);
  __syncthreads();
  x[threadIdx.x] = values[threadIdx.x * 8 % 128]; // 16 values of a warp, in banks 0, 8, 16 and 24
}
int main(int count, char **) {
  float *x;
  cudaMalloc(&x, 512);
  if (count > 1)
    halve<<<216, 128>>>(x);
  return cudaDeviceSynchronize();
}
"""


def rows(capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, object]]:
    return {row["unit"]: row for row in json.loads(capsys.readouterr().out)}


def test_a_program(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prog.cu").write_text(PROGRAM)
    assert main(["time", "prog.cu"]) == 2
    assert "has launched no kernel" in capsys.readouterr().err
    assert main(["time", "prog.cu", "--gpu", "a100", "--json", "-", "--", "1"]) == 0
    found = rows(capsys)
    # Per block of 4 warps: each stores 1 wavefront and loads 4, since its 16 values are in 4 banks; of global
    # memory each loads 1 and stores 1.
    shared = found["shared memory and L1"]
    assert shared["amounts"] == {"shared": 216 * (4 + 16), "l1": 216 * 8}
    assert shared["bounds"] and shared["ms"] == shared["bound_ms"] == pytest.approx(56 / 1410e3)
    assert found["exponential unit"]["amounts"] == {"exponential": 216 * 128}
    assert found["exponential unit"]["ms"] == pytest.approx(2 * 128 / 16 / 1410e3)


def test_a_rung_is_counted_once(capsys, monkeypatch):
    command = ["time", named("v3"), "--problem", "1,1,64,48,64", "--gpu", "h200", "--json", "-"]
    assert main([*command, "--fresh"]) == 0
    first = rows(capsys)
    monkeypatch.setattr(EmulatorRunner, "run", lambda *_, **__: pytest.fail("it was counted again"))
    assert main(command) == 0
    assert rows(capsys) == first
    # One block, one tile of 48 keys: 2 products of 64 x 48 x 64, at 2,730.7 operations per clock cycle.
    tensor = first["tensor cores"]
    assert tensor["amounts"] == {"mma f32 f16": 2 * 2 * 64 * 48 * 64}
    assert tensor["ms"] == pytest.approx(2 * 2 * 64 * 48 * 64 / 2730.7 / 1980e3)


def test_a_table_and_lines(capsys):
    assert main(["time", "v3", "--problem", "1,1,64,64,64", "--gpu", "h200", "--clock", "990"]) == 0
    shown = capsys.readouterr().out
    assert "on NVIDIA H200 SXM 141 GB at 990 MHz, by shared memory and L1" in shown
    assert "ldmatrix_x4" in shown and "Counted by the emulator on this problem." in shown


def test_in_other_commands(capsys):
    problem = ["--problem", "1,1,64,64,64"]
    assert main(["compare", "v2", "v3", *problem, "--time", "a100"]) == 0
    shown = capsys.readouterr().out
    assert "The least time on NVIDIA A100 SXM 80 GB at 1,410 MHz" in shown
    assert len([line for line in shown.splitlines() if "shared memory and L1" in line]) == 2
    assert main(["lines", "v3", *problem, "--time", "a100"]) == 0
    shown = capsys.readouterr().out
    assert "Lines by their share of the work of shared memory and L1" in shown
