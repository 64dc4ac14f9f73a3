"""ladder lines, explain and bank on a real rung, as the command line shows them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from rich.console import Console
from rungs import named

from ladder.cli import main
from ladder.counts.banks import explain, parse_place
from ladder.errors import LadderError
from ladder.operations import Problem
from ladder.run import emulator
from ladder.run.emulator import WorstAccess
from ladder.run.evaluation import evaluate
from ladder.show.render import explanation_lines

SMALL = Problem(1, 1, 64, 64, 64)
OPTIONS = ["--problem", "1,1,64,64,64"]


def line_of(text: str, file: str = f"{named('v2')}/kernel.cu") -> int:
    """The number of the line of a stage's file that contains a text."""
    lines = (Path(__file__).parents[3] / "stages" / file).read_text().splitlines()
    return next(number for number, line in enumerate(lines, start=1) if text in line)


def test_places() -> None:
    assert parse_place("v2:12") == ("v2", "kernel.cu", 12)
    assert parse_place("v2:ptx.h:3") == ("v2", "ptx.h", 3)
    for place in (named("v2"), "v2:", "v2:x", ":1", "a:b:c:1", "v2:0"):
        with pytest.raises(LadderError):
            parse_place(place)


def test_a_kernel_line_and_the_helper_behind_it() -> None:
    line = line_of("ldmatrix_x4(k_rmem")
    found = explain(f"v2:{line}", SMALL)
    assert found.chosen.ptx.startswith("ldmatrix") and found.chosen.file.name == "ptx.h"
    assert found.chosen.kernel_line == line and found.text.startswith("ldmatrix_x4(k_rmem")
    # A row of d = 64 elements has 128 bytes: eight rows of a tile lie in the same banks.
    assert [one.wavefronts for one in found.service.passes] == [8] * 4
    assert found.service.conflicts == found.chosen.worst.conflicts == 28
    assert found.chosen.conflicts == 28 * found.chosen.executed
    assert sum(one.conflicts for one in found.instructions) == found.conflicts <= found.total_conflicts

    helper = explain(f"v2:ptx.h:{found.chosen.line}", SMALL)
    assert {one.number for one in found.instructions} <= {one.number for one in helper.instructions}
    other = found.instructions[-1].number
    assert explain(f"v2:{line}", SMALL, instruction=other).chosen.number == other


def test_places_without_an_access() -> None:
    line = line_of("ldmatrix_x4(k_rmem")
    with pytest.raises(LadderError, match="makes no access") as caught:
        explain("v2:1", SMALL)
    assert str(line) in caught.value.hint
    with pytest.raises(LadderError, match="makes no access") as caught:
        explain("v2:nothing.h:1", SMALL)
    assert "ptx.h" in caught.value.hint
    with pytest.raises(LadderError, match="no instruction 0"):
        explain(f"v2:{line}", SMALL, instruction=0)


def test_explain_command(capsys, tmp_path) -> None:
    place = f"v2:{line_of('ldmatrix_x4(k_rmem')}"
    picture = tmp_path / "a.svg"
    assert main(["explain", place, *OPTIONS, "--picture", str(picture)]) == 0
    out = capsys.readouterr().out
    assert "pass 4 of 4, lanes 24-31: 8 wavefronts" in out and "in ptx.h:" in out
    assert picture.read_text().startswith("<?xml")
    assert main(["explain", "v2:1", *OPTIONS]) == 2
    assert "makes no access" in capsys.readouterr().err


def test_what_explain_says_fits_the_terminal() -> None:
    width = 80
    found = explain(f"v2:{line_of('ldmatrix_x4(k_rmem')}", SMALL)
    console = Console(width=1000, color_system=None)
    with console.capture() as capture:
        for line in explanation_lines(found, width):
            console.print(line, highlight=False)
    source = (found.text, found.chosen.ptx)
    said = [line for line in capture.get().splitlines() if line.strip() not in source]
    assert [line for line in said if len(line.rstrip()) > width] == []
    assert any("for --instruction" in line for line in said)


def test_lines_command(capsys, tmp_path) -> None:
    html = tmp_path / "a.html"
    assert main(["lines", "v3", *OPTIONS, "--html", str(html)]) == 0
    out = capsys.readouterr().out
    assert (
        f"{named('v3')}/kernel.cu" in out
        and "ptx.h" in out
        and re.search(r"all: [\d,]+ wavefronts, 0 conf", out)
    )
    # Output to a file or a pipe is not cut off.
    assert "uint32_t k_rmem[4];" in out and "\N{HORIZONTAL ELLIPSIS}" not in out
    assert f"{named('v3')}, line by line" in html.read_text()
    assert main(["lines", "v3", *OPTIONS, "--html", str(tmp_path / "no" / "a.html")]) == 2


def test_bank_command(capsys, tmp_path) -> None:
    words = ["bank", "ldmatrix.x4", "lane % 16 * 256 + lane / 16 * 16"]
    assert main([*words, "--picture", str(tmp_path / "a.png")]) == 0
    out = capsys.readouterr().out
    assert (
        "28 conflicts" in out
        and "swizzle<3, 4, 4> on byte addresses, <3, 3, 4> on elements of 2 bytes" in out
    )
    assert (tmp_path / "a.png").exists()
    assert main([*words, "--swizzle", "3,4,4"]) == 0
    assert "no conflict" in capsys.readouterr().out
    assert main(["bank", "ld", "lane * 128", "--element", "8"]) == 0
    assert "which it would tear apart" in capsys.readouterr().out
    assert main(["bank", "atom", "0", "--active", "0-3"]) == 0
    assert "no swizzle<B, M, S>" in capsys.readouterr().out
    for wrong in (
        ["ld", "lane *"],
        ["ld", "lane", "--swizzle", "1"],
        ["ld", "0", "--active", "x"],
        ["mov", "0"],
    ):
        assert main(["bank", *wrong]) == 2
        assert "error:" in capsys.readouterr().err


def test_the_worst_access_does_not_depend_on_the_host_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Problem(2, 2, 100, 70, 32)

    def worst(threads: int) -> list[WorstAccess]:
        monkeypatch.setenv("LADDER_THREADS", str(threads))
        launches = evaluate("v2", problem, backend="emulator").execution.launches
        return [access for launch in launches for access in launch.worst_accesses()]

    accesses = worst(1)
    assert accesses == worst(4)
    for access in accesses:
        cost = emulator.shared_access(
            {"matrix": "ldmatrix"}.get(access.op, access.op), access.width, access.addresses
        )
        assert (cost.wavefronts, cost.conflicts) == (access.wavefronts, access.conflicts)
