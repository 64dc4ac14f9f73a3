"""Rungs in a headless Chromium: what they count, find and show is what the native emulator does."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from browser import Browser, served
from live_page import assert_same_counts, changed_rung, comparable, edit, open_page, press, text_of
from rungs import named

from ladder.compile import EmulatorTarget
from ladder.stages import discover
from tools.pages import live_pages, live_recording

_MEGABYTE = 2**20


def _native(rung: str, size: int, mask: str) -> Any:
    stage = discover()[rung]
    offered = live_pages.problems(stage)
    problem = next(one for one in offered if (one.q_len, one.is_causal) == (size, mask == "causal"))
    return live_recording.record_run(stage.narrowed(offered), EmulatorTarget(stage.arch(None)), problem)


def _offered() -> list[Any]:
    return [
        pytest.param(rung, size, mask, id=f"{rung}-{size}-{mask}")
        for rung in live_pages.OFFERED
        for size, mask in ((64, "none"), (100, "causal"), (256, "causal"))
    ]


@pytest.mark.full
@pytest.mark.parametrize(("rung", "size", "mask"), _offered())
def test_counts_equal_the_native_ones(
    browser: Browser, address: str, rung: str, size: int, mask: str
) -> None:
    native = _native(rung, size, mask)
    open_page(browser, address, rung)
    kernels = press(browser, "run", size=size, mask=mask)["log"]["kernels"]
    assert_same_counts(kernels, native)
    assert "those of the native emulator" in browser.value("document.getElementById('said').textContent")


@pytest.mark.full
@pytest.mark.parametrize("example", live_pages.EXAMPLES)
def test_counts_of_an_example_equal_the_native_ones(browser: Browser, address: str, example: str) -> None:
    stage = discover()[example]
    offered = live_pages.problems(stage)
    open_page(browser, address, example)
    for problem in offered:
        native = live_recording.record_run(stage.narrowed(offered), EmulatorTarget(stage.arch(None)), problem)
        assert_same_counts(press(browser, "run", problem=str(problem))["log"]["kernels"], native)
        said = text_of(browser, "said")
        assert "those of the native emulator" in said and "At most" not in said


@pytest.mark.full
def test_v1_is_small_fast_and_accurate(browser: Browser, address: str, pages: Path) -> None:
    browser.requests.clear()
    open_page(browser, address, named("v1"))
    for size in (64, 100, 128, 256):
        assert press(browser, "run", size=size, mask="none")["elapsed_ms"] < 5000
        said = browser.value("document.getElementById('said').textContent")
        error = re.search(r"Largest error of o: ([\d.e+-]+)\.", said)
        assert error and float(error[1]) < 1e-5
    asked = {one.removeprefix(address).lstrip("/") for one in browser.requests}
    assert "worker.js" in asked and not any("//" in one for one in asked)  # all from this server
    assert sum((pages / name).stat().st_size for name in asked if (pages / name).is_file()) < 4 * _MEGABYTE


@pytest.mark.full
def test_a_missing_barrier_is_found(browser: Browser, address: str) -> None:
    recording, stage = live_recording, discover()["v1"]
    problem = live_pages.problems(stage)[0]
    open_page(browser, address, named("v1"))
    as_it_is = press(browser, "run", size=64, mask="none", program=0, check=True)
    assert as_it_is["log"]["findings"] == []
    for number, line in enumerate(recording.barrier_lines(stage), 1):
        log = press(browser, "run", size=64, mask="none", program=number, check=True)["log"]
        changed = changed_rung(stage, [problem], recording.with_line(stage.kernel.read_text(), line, ""))
        native = recording.record_run(changed, EmulatorTarget(stage.arch(None)), problem, check=True)
        assert comparable(log["findings"]) == comparable(json.loads(native.findings))
        kinds = {one["kind"] for one in log["findings"]}
        assert kinds & {"race between warps", "uninitialised read"}
        assert "race between warps" in browser.value("document.getElementById('findings').textContent")
        assert browser.value("document.querySelectorAll('#lines tr.found').length") > 0
        assert browser.value("document.querySelector('#lines tr.removed .number').textContent") == str(line)


@pytest.mark.full
def test_out_of_memory_names_the_size_that_fits(browser: Browser, address: str, pages: Path) -> None:
    open_page(browser, address, named("v1"))
    small = press(browser, "run", size=64, mask="none", check=True)["memory_bytes"]
    large = press(browser, "run", size=256, mask="none", check=True)["memory_bytes"]
    assert small < large
    limit = f"""{{ const grow = WebAssembly.Memory.prototype.grow;
        WebAssembly.Memory.prototype.grow = function (pages) {{
          const bytes = this.buffer.byteLength + 65536 * pages;
          if (bytes > {(small + large) // 2}) throw new RangeError("too much");
          return grow.call(this, pages);
        }}; }}"""
    with served(pages, {"worker.js": limit}) as limited:
        open_page(browser, limited, named("v1"))
        fits = press(browser, "run", size=256, mask="none", check=True)["problem"]
        said = browser.value("document.getElementById('said').textContent")
    assert re.match(r"N = M = 256, no mask does not fit .* This is N = M = \d+, no mask, which fits\.", said)
    assert fits in said and fits != "N = M = 256, no mask"


@pytest.mark.full
def test_steps_show_the_debuggers_variables(browser: Browser, address: str) -> None:
    from ladder.debugger import How, debug_stage, record

    stage = discover()["v1"]
    offered = live_pages.problems(stage)
    line = next(
        number for number, text in enumerate(stage.kernel.read_text().splitlines(), 1) if "float part" in text
    )
    open_page(browser, address, named("v1"))
    shown = press(browser, "step", size=64, mask="none", line=line)["moments"]
    with debug_stage(stage.narrowed(offered), offered[0], How()) as session:
        session.add_breakpoint("", line, "block == 0 && warp == 0")
        session.go()
        native = record(session, 60)
    assert len(shown) == 200
    for own, wanted in zip(shown, native, strict=False):
        assert (own["line"], own["function"], own["together"], own["number"]) == (
            wanted.line, wanted.function, wanted.together, wanted.number,
        )  # fmt: skip
        same, differing = dict(own["same"]), own["differing"]
        assert {"j0", "keys", "y", "x0"} <= same.keys() and {"q_row", "s_row"} <= {*differing}
        values = dict(wanted.same)
        for name, text in same.items():
            assert text == values[name] or text.startswith("0x"), name
        for name in differing:
            column = wanted.differing.index(name)
            assert [row[differing.index(name)] for row in own["lanes"]] == [
                row[column] for row in wanted.lanes
            ]
    assert any("part" in dict(one["same"]) or "part" in one["differing"] for one in shown)
    table = browser.value("document.querySelector('#steps .values').textContent")
    assert "q_row" in table and "shared+0x" in table


@pytest.mark.full
def test_steps_from_a_line_without_code_begin_at_the_next(browser: Browser, address: str) -> None:
    lines = discover()["v1"].kernel.read_text().splitlines()
    comment = next(number for number, text in enumerate(lines, 1) if "A sum of short sums" in text)
    open_page(browser, address, named("v1"))
    shown = press(browser, "step", size=64, mask="none", line=comment)["moments"]
    assert shown[0]["line"] == comment + 1
    said = text_of(browser, "said")
    assert said == f"Line {comment} has no code; this begins at line {comment + 1}."
    assert "no code at line 4000 or behind it" in press(browser, "step", line=4000)["error"]


#: A rung, a text of its kernel, what takes its place, and what that changes.
EDITS = [
    (named("v1"), "    __syncthreads();\n", "\n", "a race"),
    (named("v3"), "smem + swizzle<B, M, S>(row * kCols + col)", "smem + (row * kCols + col)", "conflicts"),
    (named("v2"), "p.is_causal ? min(rows", "p.is_causal && rows[half] != 40 ? min(rows", "the mask"),
]


@pytest.mark.full
@pytest.mark.parametrize(("rung", "old", "new", "changes"), EDITS, ids=[one[3] for one in EDITS])
def test_a_kernel_changed_in_the_page_does_what_it_does_natively(
    browser: Browser, compiling: str, rung: str, old: str, new: str, changes: str
) -> None:
    recording, stage = live_recording, discover()[rung]
    offered = live_pages.problems(stage)
    problem = next(one for one in offered if (one.q_len, one.is_causal) == (64, True))
    lines = stage.kernel.read_text().splitlines()
    number = next(at for at, line in enumerate(lines, 1) if old.strip("\n") in f"{line}\n")
    line = lines[number - 1].replace(old.strip("\n"), new.strip("\n"))
    changed = changed_rung(stage, offered, recording.with_line(stage.kernel.read_text(), number, line))
    native = recording.record_run(changed, EmulatorTarget(stage.arch(None)), problem, check=True)
    open_page(browser, compiling, rung)
    own = press(browser, "run", size=64, mask="causal", check=True)["log"]
    edit(browser, old, new)
    log = press(browser, "compile")["log"]
    assert [one["totals"] for one in log["kernels"]] == [launch.totals() for launch in native.counted]
    assert comparable(log["findings"]) == comparable(json.loads(native.findings))
    said = text_of(browser, "said")
    wrong = float(re.search(r"Largest error of o: ([\d.e+-]+|NaN)\.", said)[1])  # type: ignore[index]
    if changes == "a race":
        assert {"race between warps"} <= {one["kind"] for one in log["findings"]}
    elif changes == "conflicts":
        conflicts = [one["kernels"][0]["totals"]["conflicts"] for one in (own, log)]
        assert conflicts[0] == 0 < conflicts[1] and wrong < 1e-2
    else:
        assert wrong > 1e-2 and not log["findings"]
    assert new.strip() in text_of(browser, "lines") and browser.value(
        "document.getElementById('check').checked"
    )
    assert f"{log['kernels'][0]['totals']['conflicts']:,} bank conflicts" in text_of(browser, "ran")
    # The rung itself is still there.
    assert press(browser, "run", program=0)["log"]["kernels"] == own["kernels"]


@pytest.mark.full
def test_an_edited_kernel_has_steps(browser: Browser, compiling: str) -> None:
    """Those of the rung, in lines that are further down by one."""
    lines = discover()["v1"].kernel.read_text().splitlines()
    line = next(number for number, text in enumerate(lines, 1) if "float part" in text)
    open_page(browser, compiling, named("v1"))
    own = press(browser, "step", size=100, mask="causal", line=line)["moments"]
    browser.value("{ const field = document.getElementById('source'); field.value = `\\n${field.value}`; } 0")
    assert "log" in press(browser, "compile")
    shown = press(browser, "step", size=100, mask="causal", line=line + 1)["moments"]
    assert len(shown) == len(own) == 200

    def without_addresses(moment: dict[str, Any], down: int) -> Any:
        same = [(name, text) for name, text in moment["same"] if not text.startswith("0x")]
        return [same, moment["differing"], moment["lanes"], moment["number"], moment["line"] - down]

    in_source = [one["file"] == "kernel.cu" for one in own]
    assert all(in_source)
    assert [without_addresses(one, 1) for one in shown] == [without_addresses(one, 0) for one in own]
    # It runs all sizes of the page, too.
    said = [
        press(browser, "run", size=size, mask="none", check=False)["log"]["kernels"][0] for size in (64, 256)
    ]
    assert said[0]["totals"]["executed"] < said[1]["totals"]["executed"]


@pytest.mark.full
def test_an_error_of_the_compiler_is_shown_at_its_line(browser: Browser, compiling: str) -> None:
    open_page(browser, compiling, named("v1"))
    edit(browser, "float part = 0", "float part = nothing")
    assert "does not compile" in press(browser, "compile")["error"]
    assert 'identifier "nothing" is undefined' in text_of(browser, "messages")
    field = "document.getElementById('source')"
    selected = browser.value(f"{field}.value.slice({field}.selectionStart, {field}.selectionEnd)")
    assert selected.strip() == "float part = nothing.f;"
    edit(browser, "float part = nothing", "float part = 0")
    edit(browser, "launch_tiles<d, 128, 32>", "launch_tiles<d, 64, 32>")
    assert "cannot launch this kernel" in press(browser, "compile")["error"]
    assert "the sizes of tiles stay as they are" in text_of(browser, "messages")
    browser.value("document.getElementById('reset').click()")
    assert "log" in press(browser, "compile") and text_of(browser, "messages") == ""
