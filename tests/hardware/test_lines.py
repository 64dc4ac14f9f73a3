"""Line by line, the emulator's costs equal those on Nsight Compute's source page.

``results/h200/pages.tar.gz`` holds the source page of one launch per rung, by CUDA line. Lines are matched by
their costs, not by their numbers, which an added comment would change. Lines that call helpers are not
compared, since ptxas's optimisations do not preserve all of their line information.
"""

from __future__ import annotations

import functools
import json
import tarfile
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest
from rungs import named

from ladder.counts import line_table, nsight
from ladder.operations import Problem
from ladder.run.evaluation import evaluate
from ladder.stages.renamed import CHANGED

PAGES = Path(__file__).parents[2] / "results" / "h200" / "pages.tar.gz"

#: The name that today's v6e had when it was measured.
RENAMED = {named("v4"): named("v6e")}


@functools.cache
def pages() -> tuple[list[dict[str, object]], pd.DataFrame]:
    """The launches, and the costs of their lines."""
    with tarfile.open(PAGES) as archive:
        runs, page = (
            archive.extractfile("pages/source.json"),
            archive.extractfile("pages/source_cuda_sass.csv"),
        )
        assert runs is not None and page is not None
        launches = json.loads(runs.read())
        return launches, nsight.source_lines(nsight.read_source(page.read().decode(), len(launches)))


@pytest.mark.parametrize("number", range(4))
def test_lines_cost_on_the_emulator_what_they_cost_on_the_gpu(number: int) -> None:
    launches, lines = pages()
    run = launches[number]
    if run["stage"] in CHANGED:
        pytest.skip(f"{run['stage']} was another kernel when it was measured")
    stage = RENAMED.get(str(run["stage"]), str(run["stage"]))
    emulated = evaluate(stage, Problem(**run["problem"]), backend="emulator", arch="sm_90")  # type: ignore[arg-type]
    table = line_table(emulated.execution.launches)
    table["wavefronts"] = table["wavefronts_ld"] + table["wavefronts_st"]
    predicted = table.groupby(["file", "line"])["wavefronts"].sum().reset_index()
    measured = lines[lines["launch"] == number]
    compared = 0
    for file, rows in predicted[predicted["wavefronts"] > 0].groupby("file"):
        path = Path(str(file))
        theirs = measured[measured["file"].str.endswith("/".join(path.parts[-2:]))]
        costs = Counter(theirs["wavefronts"][theirs["wavefronts"] > 0].to_list())
        expected = Counter(rows["wavefronts"].to_list())
        assert expected <= costs, f"{path.name}: the emulator says {expected}, the GPU {costs}"
        compared += len(rows)
    assert compared >= 2
