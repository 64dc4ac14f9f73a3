"""A GPU machine where nothing can be installed: no emulator and few libraries (results/README.md)."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
#: Runs a module with some modules hidden.
BARE = """
import importlib.abc, runpy, sys
class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name in ("ladder._emulator", "matplotlib", "pygments", "ncu_report", "scikit_build_core"):
            raise ImportError(f"{name} is not installed")
sys.meta_path.insert(0, Missing())
program, sys.argv = sys.argv[1], sys.argv[1:]
runpy.run_module(program, run_name="__main__")
"""


def run_bare(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", BARE, *words], capture_output=True, text=True, cwd=ROOT)


def test_the_emulator_is_not_there() -> None:
    result = run_bare("tools.bench", "emulator")
    assert result.returncode == 1 and "ladder._emulator is not installed" in result.stderr


def test_the_gpus_backend_needs_no_emulator() -> None:
    result = run_bare("ladder.run.backends.cuda")
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("what", ["gpu", "ceilings"])
def test_benchmarks_of_a_gpu_run_up_to_the_gpu(what: str) -> None:
    no_gpu = "import ladder.run.backends.choice as choice; choice.gpu_is_there = lambda: False"
    program = BARE.replace("program, sys.argv", f"{no_gpu}\nprogram, sys.argv")
    result = subprocess.run(
        [sys.executable, "-c", program, "tools.bench", what], capture_output=True, text=True
    )
    assert (result.returncode, "torch sees no CUDA GPU" in result.stderr) == (2, True), result.stderr


@pytest.mark.parametrize("script", ["measure_counters", "measure_bounds", "measure_climb"])
def test_measurements_begin(script: str) -> None:
    result = run_bare(f"tools.measure.{script}", "--help")
    assert result.returncode == 0 and "--out" in result.stdout, result.stderr
