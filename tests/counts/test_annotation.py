"""Counts beside the source: helpers' lines and the kernel's, in the terminal and on the page."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

from ladder.counts import PLACE, VALUES, Annotated, Line, Listing, annotate
from ladder.operations import Problem
from ladder.show.render import page, source_note, source_table

COUNTED = (Problem(1, 4, 64, 64, 64, kv_heads=2, dtype="f16", is_causal=True), "sm_80")

KERNEL = """\
template <typename T> __device__ void helper(T *smem) {
  *smem = 1; // stores
}
// far away
// from
// everything
// that
// costs
__global__ void kernel(float *o) {
  helper(smem);
  helper(smem + 1 < 2 ? a : b);
  x = smem[0] & 1;
}
"""


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    path = tmp_path / "stages" / "v9" / "kernel.cu"
    path.parent.mkdir(parents=True)
    path.write_text(KERNEL)
    return path


def row(kernel: Path, line: int, kernel_line: int, file: str = "", **counts: int | None) -> dict[str, object]:
    place = dict(zip(PLACE, (file or str(kernel), line, str(kernel), kernel_line), strict=True))
    return {**place, **dict.fromkeys(VALUES, 0), **counts}


def table(*rows: dict[str, object]) -> pd.DataFrame:
    frame = pd.DataFrame(list(rows), columns=[*PLACE, *VALUES])
    return frame.astype(dict.fromkeys(VALUES, "Int64"))


@pytest.fixture
def annotated(kernel: Path) -> Annotated:
    return annotate(
        table(
            row(kernel, 2, 10, wavefronts_st=60, conflicts_st=30, conflicts=30, ideal_st=30),
            row(kernel, 2, 11, wavefronts_st=20, ideal_st=20),
            row(kernel, 12, 12, wavefronts_ld=20, conflicts_ld=10, conflicts=10, ideal_ld=10),
            row(kernel, 12, 12, file="/usr/include/cuda_fp16.hpp", executed=7),
        )
    )


def test_kernel_lines_and_helper_lines(annotated: Annotated, kernel: Path) -> None:
    assert [listing.path for listing in annotated.files] == [kernel]
    lines = {line.number: line for line in annotated.files[0].lines}
    helper, caller, direct = lines[2], lines[10], lines[12]
    assert helper.counts is not None and caller.counts is not None and direct.counts is not None
    assert helper.is_helper and not caller.is_helper and not direct.is_helper
    assert (helper.counts.wavefronts, helper.counts.conflicts, helper.counts.ideal) == (80, 30, 50)
    assert (caller.counts.wavefronts, caller.counts.conflicts) == (60, 30)
    assert [(part.number, part.counts.wavefronts) for part in helper.parts] == [(10, 60), (11, 20)]
    assert [(part.number, part.text) for part in caller.parts] == [(2, "*smem = 1; // stores")]
    assert direct.parts == () and lines[4].counts is None
    assert (annotated.total.wavefronts, annotated.total.conflicts) == (100, 40)
    assert annotated.conflict_share(caller.counts) == 0.75
    assert annotated.wavefront_share(direct.counts) == 0.2


def test_an_open_count_stays_open(kernel: Path) -> None:
    annotated = annotate(table(row(kernel, 2, 10, wavefronts_st=None, conflicts=None), row(kernel, 12, 12)))
    (listing,) = annotated.files
    counts = listing.lines[9].counts
    assert counts is not None and counts.wavefronts is None and counts.conflicts is None
    assert annotated.conflict_share(counts) is None
    assert "?" in terminal(annotated) and "?" in page(annotated, "v9", *COUNTED)


def test_a_kernel_without_shared_memory(kernel: Path) -> None:
    annotated = annotate(table(row(kernel, 12, 12, executed=5)))
    assert len(annotated.files[0].lines) == len(list(annotated.files[0].near(0))) == 13
    assert source_note(annotated) == "no access to shared memory"
    assert "helper(smem)" in terminal(annotated)
    page(annotated, "v9", *COUNTED)


def terminal(annotated: Annotated, width: int | None = 100, context: int | None = 0) -> str:
    console = Console(width=width or 1000, color_system=None)
    with console.capture() as capture:
        for listing in annotated.files:
            console.print(source_table(listing, annotated, context, width))
    return capture.get()


def test_terminal(annotated: Annotated) -> None:
    lines = terminal(annotated).splitlines()
    assert any(re.search(r"80 +80\.0% +50 +30 +75\.0% +↳ 2 +\*smem = 1;", line) for line in lines)
    assert any(re.search(r"20 +20\.0% +20 +11 +helper\(smem \+ 1", line) for line in lines)
    assert sum("⋮" in line for line in lines) == 1 and not any("everything" in line for line in lines)
    assert "everything" in terminal(annotated, context=None)
    assert "again" in source_note(annotated)


def test_a_narrow_terminal_cuts_source_and_no_number(annotated: Annotated) -> None:
    text = terminal(annotated, width=70)
    assert re.search(r"80 +50 +30 +↳ 2 ", text) and "wavefronts" in text
    assert all(len(line) <= 70 for line in text.splitlines())


def test_the_shares_go_before_the_source_is_cut(annotated: Annotated) -> None:
    long = "x = " + "1 + " * 20 + "1;"
    listing = Listing(Path("long.cu"), (Line(1, long, annotated.total),))
    long_lines = Annotated((listing,), annotated.total)
    assert "100.0%" in terminal(long_lines, width=140) and long in terminal(long_lines, width=140)
    without_shares = terminal(long_lines, width=117)
    assert "%" not in without_shares and "ideal" in without_shares and long[:-8] in without_shares
    narrow = terminal(long_lines, width=60)
    assert "ideal" not in narrow and "conflicts" in narrow and "…" in narrow
    assert "100.0%" in terminal(long_lines, width=None) and long in terminal(long_lines, width=None)


def test_page(annotated: Annotated) -> None:
    html = page(annotated, "v9 <script>", *COUNTED)
    assert "stages/v9/kernel.cu" in html and "v9 &lt;script&gt;" in html and "Hkv=2" in html
    assert "causal" in html
    # The file is self-contained and has every line of the kernel.
    assert not re.search(r"(src|href)=\"(?!#)", html) and "url(" not in html and "@import" not in html
    text = re.sub(r"<[^>]+>", "", html)
    assert "helper(smem + 1 &lt; 2 ? a : b);" in text and "// everything" in text
    assert "called by kernel.cu:10  60 wavefronts, 30 conflicts" in text
    assert "in kernel.cu:2  60 wavefronts, 30 conflicts" in text
    assert re.search(r'id="kernel.cu-10"', html) and 'href="#kernel.cu-10"' in html
    for tag in ("table", "details", "span", "tr", "td"):
        assert len(re.findall(rf"<{tag}[ >]", html)) == html.count(f"</{tag}>")
