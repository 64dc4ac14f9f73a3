"""The page that ``ladder report`` writes."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path

import pytest
from rungs import named

from ladder.cli import main
from ladder.operations import Problem, get_operation
from ladder.run.backends import Timing
from ladder.run.evaluation import Comparison, make_row
from ladder.show.render import Report, RungReport, report_document
from ladder.stages import discover

#: A block of two warps.
SMALL = ["--problem", "1,1,64,9,32"]
#: Changes ``naive`` so that one thread writes a word that the others read, without a barrier.
RACE = (
    "  float m = -INFINITY",
    "  __shared__ volatile float word;\n  if (threadIdx.x == 0)\n    word = 1;\n"
    "  if (word > 2)\n    return;\n  float m = -INFINITY",
)


def text_of(page: Path) -> str:
    body = page.read_text(encoding="utf-8").partition("<body>")[2]
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", body)))


def test_one_file_says_it_all(naive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "report.html"
    rungs = ["naive", named("v3"), "--problem", "1,1,64,64,32"]
    assert main(["report", *rungs, "--out", str(page)]) == 0
    assert "wrote" in capsys.readouterr().err
    main(["compare", *rungs, "--backend", "emulator", "--json", "-"])
    rows = json.loads(capsys.readouterr().out)
    text, markup = text_of(page), page.read_text(encoding="utf-8")
    assert "2 of 2 right , no finding of the sanitizer" in text
    for column in ("wavefronts_ld", "global_sectors_ld", "mma_instructions"):
        assert all(f" {row[column]:,} " in text for row in rows)
    assert "one thread a row" in text and "clean" in text and "C++ compiler" in text
    # Lines with counts, and the rest of the source.
    assert "ldmatrix_x4" in text and "void ladder::launch" in text
    assert f'id="{named("v3")}-kernel.cu-' in markup and "data:image/svg+xml;base64," in markup
    assert not re.search(r'(src|href)="(?!#|data:)', markup) and "url(" not in markup
    for name in set(re.findall(r'href="#([^"]+)"', markup)):
        assert f'id="{name}"' in markup


def test_what_is_wrong_stands_in_it(drop_stage, tmp_path: Path) -> None:
    source = drop_stage.kernel
    drop_stage("racing", kernel=source.replace(*RACE))
    drop_stage("unbuilt", kernel=source.replace("float s = 0;", "flout s = 0;"))
    drop_stage("broken", toml="title = 1")
    page = tmp_path / "report.html"
    assert main(["report", "racing", "unbuilt", "broken", *SMALL, "--out", str(page)]) == 1
    text = text_of(page)
    assert "1 of 2 right" in text
    assert "race in a warp" in text and "if (word > 2)" in text
    assert 'identifier "flout" is undefined' in text
    assert "stage.toml" in text


def test_times_of_a_gpu_have_a_table_of_their_own() -> None:
    problem = Problem(1, 2, 64, 64, 64, dtype="f16")
    row = make_row(named("v3"), "cuda", "sm_90", problem) | {"time_ms": 2.0, "tflops": 9.0, "passed": True}
    timed = Comparison(
        get_operation("attention"),
        rows=[row],
        timings={named("v3"): Timing(2.0, 1.75, 2.25, 10)},
        baselines={"f16": {"torch flash": 18.0}},
    )
    page = report_document(
        Report("title", "made", [timed], [RungReport(named("v3"), "idea")], []), discover()
    )
    text = re.sub(r"<[^>]+>", " ", page)
    assert "on the cuda sm_90" in text and "1.750-2.250" in text and "of torch flash" in text
    assert " 0.50 " in text and "<img" not in page


def test_a_name_that_is_none(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    assert main(["report", "v3_swizle", "--out", str(page)]) == 2
    assert f"did you mean {named('v3')}?" in capsys.readouterr().err and not page.exists()
