"""Compares wgmma and TMA on the emulator with an H200: placement of operands and boxes, refusals, counts.

``tools/measure/measure_hopper.py``, whose program is used here, measured the data.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pandas as pd
import pytest

from ladder.compile import EmulatorTarget, build_program
from tools.measure import measure_hopper

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data" / "h200"
#: As many of the 400 and 320 measured cases as run in seconds.
PLACES, BOXES = 160, 320


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("forms")
    (folder / "wgmma_forms.h").write_text(measure_hopper.wgmma_forms())
    return build_program([measure_hopper.PROBE], EmulatorTarget("sm_90a"), [f"-I{folder}"])


def run(program: Path, *arguments: str, log: Path | None = None) -> str:
    environment = {**os.environ, "LADDER_ARCH": "sm_90a"} | ({"LADDER_LAUNCH_LOG": str(log)} if log else {})
    command = [str(program), *arguments]
    return subprocess.run(
        command, env=environment, check=True, capture_output=True, text=True, timeout=300
    ).stdout


def test_operands_lie_where_they_do_on_the_h200(probe: Path, tmp_path: Path) -> None:
    """Random descriptors: misaligned starts, overlapping strides, base offsets."""
    run(probe, "places", str(PLACES), str(tmp_path / "places"))
    measured = pd.read_csv(DATA / "wgmma_places.csv")
    found = pd.DataFrame(measure_hopper.read_places(tmp_path / "places"))
    pd.testing.assert_frame_equal(found, measured[found.columns].head(PLACES))


def test_boxes_are_what_they_are_on_the_h200(probe: Path, tmp_path: Path) -> None:
    """Random maps, most of them valid: the driver's verdict, and shared memory after a load."""
    rows = measure_hopper.probe_boxes(lambda *words: run(probe, *words), tmp_path, BOXES)
    measured = pd.read_csv(DATA / "tma_boxes.csv").set_index("case")
    wrong = []
    for row in rows:
        known = measured.loc[row["case"]]
        refused = "illegal" in str(known["outcome"])
        same = bool(row["outcome"]) if refused else str(row["crc"]) == str(known["crc"]).removesuffix(".0")
        if not refused and pd.isna(known["crc"]):
            same = (row["code"] == 0) == (known["code"] == 0)
        if not same:
            wrong.append((row, known.to_dict()))
    assert not wrong


#: Every seventh launch, which includes all kinds: the whole list would take minutes.
LABELS = list(enumerate(pd.read_csv(DATA / "hopper_counts.csv")["label"]))[::7]


@pytest.mark.parametrize(("launch", "label"), LABELS, ids=[label for _, label in LABELS])
def test_counts_are_those_of_the_h200(probe: Path, tmp_path: Path, launch: int, label: str) -> None:
    log = tmp_path / "log.json"
    assert run(probe, "count", str(launch), str(launch), log=log).splitlines()[launch] == label
    (kernel,) = json.loads(log.read_text())["kernels"]
    counted = pd.read_csv(DATA / "hopper_counts.csv").loc[launch]
    expected = {
        "wavefronts_gmma": counted["l1tex__data_pipe_lsu_wavefronts_mem_shared_op_gmma"],
        "conflicts_gmma": counted["l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_gmma"],
        "tma_load_instructions": counted["smsp__sass_inst_executed_op_tma_ld"],
        "tma_store_instructions": counted["smsp__sass_inst_executed_op_tma_st"]
        + counted["smsp__sass_inst_executed_op_tma_red"],
        "tma_sectors_ld": counted["l1tex__m_xbar2l1tex_read_sectors_mem_global_op_tma_ld"],
        "tma_sectors_st": counted["l1tex__m_l1tex2xbar_write_sectors_mem_global_op_tma_st"]
        + counted["l1tex__m_l1tex2xbar_write_sectors_mem_global_op_tma_red"],
    }
    assert {name: kernel["totals"][name] for name in expected} == expected
