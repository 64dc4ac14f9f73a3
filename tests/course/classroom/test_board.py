"""``ladder class board``: right rungs are ranked by their counts, wrong ones are refused."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import pytest

from ladder.cli import main

NAIVE = Path(__file__).parents[2] / "data" / "stages" / "naive"
_DOT = "    s *= p.scale;\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two rungs that are right, one without a barrier, and two that are no rungs.

    ``ben`` and ``cid`` take their scale from shared memory; ``cid`` does not wait for it.
    """
    monkeypatch.delenv("LADDER_STAGES", raising=False)
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "class"
    for student in ("ann", "ben-2", "cid", "dan", "eve"):
        rung = folder / student
        shutil.copytree(NAIVE, rung)
        for name in ("kernel.cu", "stage.toml"):
            text = (rung / name).read_text().replace("kHeadDim = 32", "kHeadDim = 64").replace("[32]", "[64]")
            (rung / name).write_text(text)
    for student, barrier in (("ben-2", "__syncthreads();"), ("cid", "")):
        kernel = folder / student / "kernel.cu"
        load = f"  __shared__ float scale;\n  if (threadIdx.x == 0)\n    scale = p.scale;\n  {barrier}\n"
        begin = "  const int row ="
        kernel.write_text(kernel.read_text().replace(begin, load + begin).replace(_DOT, "    s *= scale;\n"))
    (folder / "dan" / "kernel.cu").unlink()
    (folder / "eve" / "stage.toml").write_text("dtypes = [")
    return folder


def test_right_rungs_are_ranked_and_wrong_ones_refused(folder: Path, capsys) -> None:
    assert main(["class", "board", "class"]) == 1
    said = capsys.readouterr().err
    assert "cid is refused: " in said and "in another order of blocks and warps" in said
    assert "dan is refused: dan/kernel.cu cannot be read" in said
    assert "eve is refused: eve/stage.toml is not TOML" in said
    with Path("board.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["rank"], row["student"]) for row in rows] == [
        ("1", "ann"),
        ("2", "ben-2"),
        ("", "cid"),
        ("", "dan"),
        ("", "eve"),
    ]
    assert rows[0]["wavefronts"] == "0" and int(rows[1]["wavefronts"]) > 0
    assert {row["problem"] for row in rows[:2]} == {"B=1 H=2 N=256 M=256 d=64"}
    assert 0 < int(rows[0]["time_ns"]) <= int(rows[1]["time_ns"])
    assert main(["class", "board", "class", "--by", "time"]) == 1
    assert "time_ns" in capsys.readouterr().out
