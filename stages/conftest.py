"""Fixtures for the tests of all rungs. ``pytest stages/`` builds, checks and compares every rung."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from nightly import is_nightly
from rich.console import Console

from ladder.compile import PTXAS_REPORT, build
from ladder.errors import LadderError
from ladder.operations import AnyProblem
from ladder.run.backends import get_backend
from ladder.run.evaluation import Evaluation, evaluate, run_comparison
from ladder.show.render import comparison_tables
from ladder.stages import Ladder, Stage, discover, root

BACKENDS = ["emulator", "cuda"] if torch.cuda.is_available() else ["emulator"]


def pytest_configure() -> None:
    os.environ.setdefault("LADDER_SEED", "1")  # the same problems in each run: a verdict can be made again


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what is left to the nightly run. Tests that compile whole rungs come first."""
    items.sort(key=lambda item: item.path.name != "test_shared_claims.py")
    ladder = discover()
    for item in items:
        if item.path.is_relative_to(root()):
            rung = _rung_of(item, ladder)
            if rung and is_nightly(rung, item.name.partition("[")[0]):
                item.add_marker("nightly")


def _rung_of(item: pytest.Item, ladder: Ladder) -> Stage | None:
    """The rung that a test is about: its parameter, or the folder that it is in."""
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    stage = parameters.get("stage", parameters.get("name", item.path.parent.name))
    if isinstance(stage, Stage):
        return stage
    name = ladder.today(str(stage))
    return next((one for one in ladder if one.name == name), None)


def pytest_report_header() -> str:
    return f"random problems: LADDER_SEED={os.environ['LADDER_SEED']}"


@pytest.fixture(scope="session", params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    """The emulator, and the GPU too where there is one."""
    return str(request.param)


@pytest.fixture(scope="session")
def run_stage() -> Callable[..., Evaluation]:
    """``run_stage(stage, problem, arch=..., options=...)`` on the emulator; a wrong result fails the test.

    ``.row`` of what it returns holds the counts, ``.execution`` the outputs and launches.
    """

    def run(stage: Stage | str, problem: AnyProblem, **choices: object) -> Evaluation:
        result = evaluate(stage, problem, **{"backend": "emulator", **choices})
        assert result.passed, result.text
        return result

    return run


@pytest.fixture(scope="session")
def ptxas_report() -> Callable[..., str]:
    """``ptxas_report(stage, arch, problems)``: ptxas on a stage: registers and spills of each kernel, and
    which products it serialises. The build is the emulator's, which other tests of the stage run; or,
    with ``problems``, one of what they need alone.
    """

    def report(stage: str, arch: str = "", problems: Sequence[AnyProblem] = ()) -> str:
        found = discover()[stage].narrowed(problems) if problems else discover()[stage]
        target = get_backend("emulator").target(found, arch or None)
        return (build(found, target, found.chosen_options({})).parent / PTXAS_REPORT).read_text()

    return report


@pytest.fixture(scope="session")
def spilled_bytes(ptxas_report: Callable[..., str]) -> Callable[..., list[int]]:
    """``spilled_bytes(stage, arch, problems)``: of each kernel in that report what ptxas stores beside the
    registers and what it loads from there.
    """

    def read(*build: object) -> list[int]:
        found = re.findall(r"(\d+) bytes spill stores, (\d+) bytes spill loads", ptxas_report(*build))
        return [int(stores) + int(loads) for stores, loads in found]

    return read


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """The table of the attention ladder below the results of tests in stages/ alone."""
    named = [Path(argument.partition("::")[0]).resolve() for argument in config.args]
    if config.option.collectonly or not all(path.is_relative_to(root()) for path in named):
        return
    console = Console(file=terminalreporter._tw._file, width=100)
    try:
        for table in comparison_tables(run_comparison(backend="emulator"), discover(), console.width):
            console.print(table)
    except LadderError as error:
        terminalreporter.write_line(str(error))
