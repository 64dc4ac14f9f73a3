"""Fixtures for the tests of all rungs. ``pytest stages/`` alone builds, checks and compares every rung."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from rich.console import Console

from ladder.comparison import Evaluation, evaluate, run_comparison
from ladder.errors import LadderError
from ladder.render import comparison_table
from ladder.stages import discover

BACKENDS = ["emulator", "cuda"] if torch.cuda.is_available() else ["emulator"]


@pytest.fixture(scope="session", params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    """The emulator, and the GPU too where there is one."""
    return str(request.param)


@pytest.fixture(scope="session")
def run_stage() -> Callable[..., Evaluation]:
    """``run_stage(stage, problem, arch=..., options=...)`` on the emulator; a wrong result fails the test.

    ``.row`` of what it returns holds the counts, ``.execution`` the outputs and launches.
    """

    def run(stage: str, problem: object, **choices: object) -> Evaluation:
        result = evaluate(stage, problem, **{"backend": "emulator", **choices})  # type: ignore[arg-type]
        assert result.passed, result.describe()
        return result

    return run


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The table of all rungs below the tests' results."""
    console = Console(file=terminalreporter._tw._file, width=100)
    try:
        console.print(comparison_table(run_comparison(backend="emulator"), discover()))
    except LadderError as error:
        terminalreporter.write_line(str(error))
