"""Fixtures for the tests of all rungs. ``pytest stages/`` alone builds, checks and compares every rung."""

from __future__ import annotations

import functools
import os
import random
import re
import subprocess
import tempfile
from collections.abc import Callable

import pytest
import torch
from rich.console import Console

from ladder.build import toolchain
from ladder.errors import LadderError
from ladder.evaluation import Evaluation, evaluate, run_comparison
from ladder.evaluation.isolation import call
from ladder.render import comparison_tables
from ladder.stages import Stage, discover, include_directory

BACKENDS = ["emulator", "cuda"] if torch.cuda.is_available() else ["emulator"]


def pytest_configure() -> None:
    os.environ.setdefault("LADDER_SEED", str(random.randrange(2**32)))  # parallel workers inherit it


def pytest_report_header() -> str:
    return f"random problems: LADDER_SEED={os.environ['LADDER_SEED']}"


@pytest.fixture(scope="session", params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    """The emulator, and the GPU too where there is one."""
    return str(request.param)


@pytest.fixture(scope="session")
def run_stage() -> Callable[..., Evaluation]:
    """``run_stage(stage, problem, arch=..., options=...)`` on the emulator; a wrong result fails the test.

    In a process of its own, since host code may end the one that it runs in. ``.row`` of what it returns
    holds the counts, ``.execution`` the outputs and launches.
    """

    def run(stage: str, problem: object, **choices: object) -> Evaluation:
        result = call(functools.partial(evaluate, **{"backend": "emulator", **choices}), stage, problem)
        assert result.passed, result.describe()
        return result

    return run


@pytest.fixture(scope="session")
def spilled_bytes(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], list[int]]:
    """``spilled_bytes(stage, arch)``: of each kernel of a stage what ptxas stores beside the registers."""

    def compile_and_read(stage: str, arch: str) -> list[int]:
        nvcc, cubin = toolchain.pinned_nvcc(), tmp_path_factory.mktemp("spills") / "kernel.cubin"
        command = [str(nvcc.path), "-std=c++20", "-O3", f"-arch={arch}", "-cubin", "-Xptxas", "-v"]
        command += [f"-I{include_directory()}", str(discover()[stage].kernel), "-o", str(cubin)]
        report = subprocess.run(command, check=True, capture_output=True, text=True).stderr
        return [int(number) for number in re.findall(r"(\d+) bytes spill stores", report)]

    return compile_and_read


@pytest.fixture(scope="session")
def ptxas_report() -> Callable[..., str]:
    """``ptxas_report(stage, flags...)``: what ptxas says of a stage for sm_90a, of registers and spills, and
    which products it serialises.
    """

    def report(stage: Stage, *flags: str) -> str:
        nvcc = toolchain.pinned_nvcc()
        command = [str(nvcc.path), "-std=c++20", "-O3", "-gencode=arch=compute_90a,code=sm_90a", "-cubin"]
        command += ["-ccbin", toolchain.gxx(), f"-I{include_directory()}", "-Xptxas", "-v", *flags]
        with tempfile.TemporaryDirectory() as folder:
            command += [str(stage.kernel), "-o", f"{folder}/kernel.cubin"]
            return subprocess.run(command, check=True, capture_output=True, text=True).stderr

    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The table of the attention ladder below the tests' results."""
    console = Console(file=terminalreporter._tw._file, width=100)
    try:
        for table in comparison_tables(run_comparison(backend="emulator"), discover(), console.width):
            console.print(table)
    except LadderError as error:
        terminalreporter.write_line(str(error))
