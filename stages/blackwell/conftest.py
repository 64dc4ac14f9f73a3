"""Counts of tcgen05 instructions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ladder.run.evaluation import Evaluation


@pytest.fixture(scope="session")
def executed() -> Callable[[Evaluation, str], int]:
    """``executed(evaluation, "tcgen05.ld")``: the warp instructions whose PTX begins with that."""

    def count(evaluation: Evaluation, begin: str) -> int:
        tables = [launch.instructions() for launch in evaluation.execution.launches]
        return sum(int(table.executed[table.ptx.str.startswith(begin)].sum()) for table in tables)

    return count
