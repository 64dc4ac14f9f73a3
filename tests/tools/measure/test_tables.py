"""The tables and pictures of the README and the lessons match the data and the emulator."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from rungs import named

ROOT = Path(__file__).parents[3]


def test_tables_are_what_their_data_says() -> None:
    command = [sys.executable, "-m", "tools.measure.tables", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_pictures_are_drawn_from_their_data() -> None:
    command = [sys.executable, "-m", "tools.measure.pictures", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_picture_of_other_data_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    from tools.measure import pictures

    monkeypatch.setattr(pictures, "PICTURES", tmp_path / "pictures")
    for name, picture in [*pictures.ALL.items()][:2]:
        assert pictures.is_stale(name)
        pictures.write(name)
        assert not pictures.is_stale(name)
        first = pictures.path(name).read_bytes()
        pictures.write(name)
        assert pictures.path(name).read_bytes() == first
        data = picture.data()
        measured = data.select_dtypes("number").columns[-1]
        data.loc[data[measured].last_valid_index(), measured] *= 2
        other = pictures.Picture(lambda data=data: data, picture.draw)
        monkeypatch.setitem(pictures.ALL, name, other)
        assert pictures.is_stale(name)


def test_the_table_of_what_bounds_a_rung(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ladder.counts import nsight
    from ladder.stages import FOLD
    from tools.measure.tables_of import counts, data

    def launch(stage: str, n: int, d: int, shared: float, wait: str) -> dict[str, object]:
        counts = dict.fromkeys(nsight.metric_names(), 0.0)
        counts["l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"] = 400
        counts["l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum"] = 300
        shares = {nsight.BOUNDS["shared"]: shared, nsight.STALLS[wait]: 2.0, nsight.STALLS["selected"]: 9.0}
        return {"stage": stage, "date": FOLD, "N": n, "M": n, "d": d, **counts, **shares}

    launches = [
        launch(named("v1"), 1024, 64, 98.9, "short_scoreboard"),
        launch(named("v1b"), 1024, 64, 97.3, "short_scoreboard"),
        launch(named("v2"), 1024, 64, 93.4, "wait"),
        launch(named("v2"), 4096, 128, 91.2, "wait"),
        launch(named("v3"), 4096, 128, 72.0, "math_pipe_throttle"),
    ]
    pd.DataFrame(launches).to_csv(tmp_path / "bounds.csv", index=False)
    monkeypatch.setattr(data, "H200", tmp_path)
    monkeypatch.setattr(counts, "H200", tmp_path)
    assert "| B4 H16 N1024 d64 | `v1` |" in counts.bounds(named("v1"))
    # Compared with the rung before, on the largest problem that both were measured on.
    assert "| shared memory and L1 | 97% | 93% |" in counts.bounds(named("v2"))
    upper = counts.bounds(named("v3"))
    assert "| B4 H16 N4096 d128 | `v2` | `v3` |" in upper
    assert "| shared memory and L1 | 91% | 72% |" in upper
    assert "| wavefronts that conflicts add | 75% | 75% |" in upper
    assert "| warps wait for | wait | math pipe throttle |" in upper
    assert "tensor" not in upper  # not measured
    assert counts.bounds(named("v4")) == ""
