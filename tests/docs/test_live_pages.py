"""The live pages in a headless Chromium: what they count, find and show is what the native emulator does."""

from __future__ import annotations

import ctypes
import html
import importlib
import itertools
import json
import random
import re
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from expressions import REFUSED, UNDEFINED, WRITTEN, random_expression

from ladder import banks
from ladder.banks.explorer import lane_addresses, swizzled
from ladder.build import DebugTarget, EmulatorTarget, build_program
from ladder.cli import main
from ladder.errors import LadderError
from ladder.exercises import (
    Exercise,
    exercises,
    fill_gap,
    get_exercise,
    read_answers,
    solution_text,
    write_working_copy,
)
from ladder.lessons import changed_copy
from ladder.serving import PageServer
from ladder.stages import Stage, discover, read_stage

sys.path.insert(0, str(Path(__file__).parent))
from browser import Browser, chromium, served

ROOT = Path(__file__).parents[2]
_MEGABYTE = 2**20


def _module(name: str) -> ModuleType:
    if str(ROOT / "docs") not in sys.path:
        sys.path.insert(0, str(ROOT / "docs"))
    return importlib.import_module(name)


@pytest.fixture(scope="module")
def pages() -> Path:
    """The folder of the pages; they are built into the folders of `make site`, once."""
    chromium()
    if not shutil.which("emcmake"):
        pytest.skip("there is no emscripten")
    folder = ROOT / "build" / "site" / "live"
    _module("live_pages").write_pages(folder, ROOT / "build" / "wasm")
    return folder


@pytest.fixture(scope="module")
def banks_page() -> Iterator[str]:
    """The address of the page of accesses, which needs little of the build."""
    chromium()
    if not shutil.which("emcmake"):
        pytest.skip("there is no emscripten")
    path = _module("live_pages").write_banks_page(ROOT / "build" / "site" / "live", ROOT / "build" / "wasm")
    with served(path.parent) as at:
        yield f"{at}/{path.name}"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    opened = Browser(tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def address(pages: Path) -> Iterator[str]:
    with served(pages) as at:
        yield at


def _open(browser: Browser, address: str, name: str) -> None:
    _open_in(browser, address, "", name)


def _open_in(browser: Browser, address: str, folder: str, name: str) -> None:
    """Opens a page in a language's folder."""
    browser.open(f"{address}/{folder}{name}.html")
    browser.wait_for(f"window.live && location.pathname.endsWith({f'/{folder}{name}.html'!r})")


def _press(browser: Browser, button: str, **choices: Any) -> dict[str, Any]:
    """What the page has after the button, with these values of its controls."""
    for name, value in choices.items():
        what = "checked" if isinstance(value, bool) else "selectedIndex" if name == "program" else "value"
        browser.value(f"document.getElementById({name!r}).{what} = {json.dumps(value)}; 0")
    browser.value(f"window.live = {{}}; document.getElementById({button!r}).click()")
    return dict(browser.wait_for("Object.keys(window.live).length && window.live"))


def _native(rung: str, size: int, mask: str) -> Any:
    stage = discover()[rung]
    offered = _module("live_pages").problems(stage)
    problem = next(one for one in offered if (one.q_len, one.is_causal) == (size, mask == "causal"))
    return _module("live_recording").record_run(
        stage.narrowed(offered), EmulatorTarget(stage.arch(None)), problem
    )


def _by_line(rows: Any) -> dict[Any, Any]:
    """Counts by place; the page's files have no folders."""
    places = ("file", "line", "kernel_file", "kernel_line", "own_line")
    counted: dict[Any, Any] = {}
    for row in rows:
        at = tuple(Path(row[name]).name if isinstance(row[name], str) else row[name] for name in places)
        assert at not in counted
        counted[at] = {name: count for name, count in row.items() if name not in places}
    return counted


def _same_counts(kernels: Any, native: Any) -> None:
    """Whether a page has counted what the native emulator has, in total and by line."""
    assert [one["totals"] for one in kernels] == [launch.totals() for launch in native.counted]
    for kernel, launch in zip(kernels, native.counted, strict=True):
        lines = launch.lines().astype(object)
        wanted = _by_line(lines.where(lines.notna(), None).to_dict("records"))
        assert _by_line(kernel["lines"]) == wanted


def _offered() -> list[Any]:
    return [
        pytest.param(rung, size, mask, id=f"{rung}-{size}-{mask}")
        for rung in _module("live_pages").OFFERED
        for size, mask in ((64, "none"), (100, "causal"), (256, "causal"))
    ]


@pytest.mark.full
@pytest.mark.parametrize(("rung", "size", "mask"), _offered())
def test_counts_equal_the_native_ones(
    browser: Browser, address: str, rung: str, size: int, mask: str
) -> None:
    native = _native(rung, size, mask)
    _open(browser, address, rung)
    kernels = _press(browser, "run", size=size, mask=mask)["log"]["kernels"]
    _same_counts(kernels, native)
    assert "those of the native emulator" in browser.value("document.getElementById('said').textContent")


@pytest.mark.full
@pytest.mark.parametrize("example", _module("live_pages").EXAMPLES)
def test_counts_of_an_example_equal_the_native_ones(browser: Browser, address: str, example: str) -> None:
    stage = discover()[example]
    offered = _module("live_pages").problems(stage)
    _open(browser, address, example)
    for problem in offered:
        native = _module("live_recording").record_run(
            stage.narrowed(offered), EmulatorTarget(stage.arch(None)), problem
        )
        _same_counts(_press(browser, "run", problem=str(problem))["log"]["kernels"], native)
        said = _text(browser, "said")
        assert "those of the native emulator" in said and "At most" not in said


@pytest.mark.full
def test_v1_is_small_fast_and_accurate(browser: Browser, address: str, pages: Path) -> None:
    browser.requests.clear()
    _open(browser, address, "v1_minimal")
    for size in (64, 100, 128, 256):
        assert _press(browser, "run", size=size, mask="none")["elapsed_ms"] < 5000
        said = browser.value("document.getElementById('said').textContent")
        error = re.search(r"Largest error of o: ([\d.e+-]+)\.", said)
        assert error and float(error[1]) < 1e-5
    asked = {one.removeprefix(address).lstrip("/") for one in browser.requests}
    assert "worker.js" in asked and not any("//" in one for one in asked)  # all from this server
    assert sum((pages / name).stat().st_size for name in asked if (pages / name).is_file()) < 4 * _MEGABYTE


@pytest.mark.full
def test_a_missing_barrier_is_found(browser: Browser, address: str) -> None:
    recording, stage = _module("live_recording"), discover()["v1_minimal"]
    problem = _module("live_pages").problems(stage)[0]
    _open(browser, address, "v1_minimal")
    as_it_is = _press(browser, "run", size=64, mask="none", program=0, check=True)
    assert as_it_is["log"]["findings"] == []
    for number, line in enumerate(recording.barrier_lines(stage), 1):
        log = _press(browser, "run", size=64, mask="none", program=number, check=True)["log"]
        changed = _changed(stage, [problem], recording.with_line(stage.kernel.read_text(), line, ""))
        native = recording.record_run(changed, EmulatorTarget(stage.arch(None)), problem, check=True)
        assert _findings(log["findings"]) == _findings(json.loads(native.findings))
        kinds = {one["kind"] for one in log["findings"]}
        assert kinds & {"race between warps", "uninitialised read"}
        assert "race between warps" in browser.value("document.getElementById('findings').textContent")
        assert browser.value("document.querySelectorAll('#lines tr.found').length") > 0
        assert browser.value("document.querySelector('#lines tr.removed .number').textContent") == str(line)


@pytest.fixture(scope="module")
def compiling(pages: Path) -> Iterator[str]:
    """The address of the pages where a server compiles."""
    with PageServer(pages.parent, ("127.0.0.1", 0)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/live"
        server.shutdown()


def _edit(browser: Browser, old: str, new: str) -> None:
    """Replaces a text of the editor's source, which has it once."""
    source = browser.value("document.getElementById('source').value")
    assert source.count(old) == 1
    browser.value(f"document.getElementById('source').value = {json.dumps(source.replace(old, new))}; 0")


def _text(browser: Browser, name: str) -> str:
    return str(browser.value(f"document.getElementById({name!r}).textContent"))


#: A rung, a text of its kernel, what takes its place, and what that changes.
EDITS = [
    ("v1_minimal", "    __syncthreads();\n", "\n", "a race"),
    ("v3_swizzle", "smem + swizzle<B, M, S>(row * kCols + col)", "smem + (row * kCols + col)", "conflicts"),
    ("v2_warp_mma", "p.is_causal ? min(rows", "p.is_causal && rows[half] != 40 ? min(rows", "the mask"),
]


@pytest.mark.full
@pytest.mark.parametrize(("rung", "old", "new", "changes"), EDITS, ids=[one[3] for one in EDITS])
def test_a_kernel_changed_in_the_page_does_what_it_does_natively(
    browser: Browser, compiling: str, rung: str, old: str, new: str, changes: str
) -> None:
    recording, stage = _module("live_recording"), discover()[rung]
    offered = _module("live_pages").problems(stage)
    problem = next(one for one in offered if (one.q_len, one.is_causal) == (64, True))
    lines = stage.kernel.read_text().splitlines()
    number = next(at for at, line in enumerate(lines, 1) if old.strip("\n") in f"{line}\n")
    line = lines[number - 1].replace(old.strip("\n"), new.strip("\n"))
    changed = _changed(stage, offered, recording.with_line(stage.kernel.read_text(), number, line))
    native = recording.record_run(changed, EmulatorTarget(stage.arch(None)), problem, check=True)
    _open(browser, compiling, rung)
    own = _press(browser, "run", size=64, mask="causal", check=True)["log"]
    _edit(browser, old, new)
    log = _press(browser, "compile")["log"]
    assert [one["totals"] for one in log["kernels"]] == [launch.totals() for launch in native.counted]
    assert _findings(log["findings"]) == _findings(json.loads(native.findings))
    said = _text(browser, "said")
    wrong = float(re.search(r"Largest error of o: ([\d.e+-]+|NaN)\.", said)[1])  # type: ignore[index]
    if changes == "a race":
        assert {"race between warps"} <= {one["kind"] for one in log["findings"]}
    elif changes == "conflicts":
        conflicts = [one["kernels"][0]["totals"]["conflicts"] for one in (own, log)]
        assert conflicts[0] == 0 < conflicts[1] and wrong < 1e-2
    else:
        assert wrong > 1e-2 and not log["findings"]
    assert new.strip() in _text(browser, "lines") and browser.value(
        "document.getElementById('check').checked"
    )
    assert f"{log['kernels'][0]['totals']['conflicts']:,} bank conflicts" in _text(browser, "ran")
    # The rung itself is still there.
    assert _press(browser, "run", program=0)["log"]["kernels"] == own["kernels"]


@pytest.mark.full
def test_an_edited_kernel_has_steps(browser: Browser, compiling: str) -> None:
    """Those of the rung, in lines that are further down by one."""
    lines = discover()["v1_minimal"].kernel.read_text().splitlines()
    line = next(number for number, text in enumerate(lines, 1) if "float part" in text)
    _open(browser, compiling, "v1_minimal")
    own = _press(browser, "step", size=100, mask="causal", line=line)["moments"]
    browser.value("{ const field = document.getElementById('source'); field.value = `\\n${field.value}`; } 0")
    assert "log" in _press(browser, "compile")
    shown = _press(browser, "step", size=100, mask="causal", line=line + 1)["moments"]
    assert len(shown) == len(own) == 200

    def without_addresses(moment: dict[str, Any], down: int) -> Any:
        same = [(name, text) for name, text in moment["same"] if not text.startswith("0x")]
        return [same, moment["differing"], moment["lanes"], moment["number"], moment["line"] - down]

    in_source = [one["file"] == "kernel.cu" for one in own]
    assert all(in_source)
    assert [without_addresses(one, 1) for one in shown] == [without_addresses(one, 0) for one in own]
    # It runs all sizes of the page, too.
    said = [
        _press(browser, "run", size=size, mask="none", check=False)["log"]["kernels"][0] for size in (64, 256)
    ]
    assert said[0]["totals"]["executed"] < said[1]["totals"]["executed"]


@pytest.mark.full
def test_a_program_is_edited(browser: Browser, compiling: str) -> None:
    """Its outputs are compared with the solution's, since its main does not run."""
    _open(browser, compiling, "exercise_cuda_vector_add")
    exercise = get_exercise("cuda_vector_add")
    browser.value("[...document.querySelectorAll('#answers input')].at(-1).checked = true; 0")
    answer = _press(browser, "answer")
    assert answer["is_right"] is False and "an element of c is NaN" in answer["said"]
    lines = browser.value("document.getElementById('source').value").splitlines()
    begin, end = (
        next(at for at, text in enumerate(lines) if word in text) for word in ("// begin", "// end")
    )
    lines[begin + 1 : end] = solution_text(exercise).splitlines()
    solved = "\n".join(lines)
    browser.value(f"document.getElementById('source').value = {json.dumps(solved)}; 0")
    assert _press(browser, "answer")["is_right"] is True
    moments = _press(browser, "step")["moments"]
    assert moments[0]["in_source"] and moments[0]["file"] == "program.cu"
    assert any("i" in one["differing"] for one in moments)


@pytest.mark.full
def test_findings_and_verdicts_speak_chinese(browser: Browser, address: str) -> None:
    _open_in(browser, address, "zh_CN/", "v1_minimal")
    _press(browser, "run", size=64, mask="none", program=1, check=True)
    browser.wait_for("document.getElementById('findings').textContent.includes('第')")
    findings = _text(browser, "findings")
    assert not re.search(r"race|reads|writes|barrier", findings), findings
    _open_in(browser, address, "zh_CN/", "exercise_cuda_transpose")
    _press(browser, "answer")
    browser.wait_for("document.getElementById('verdict').textContent.includes('不对')")
    verdict = _text(browser, "verdict")
    assert not re.search(r"right, but|at most|What counts", verdict), verdict
    browser.wait_for("document.getElementById('task').textContent.includes('共享内存')")
    # The table of steps keeps its style.
    browser.set_width(390)
    _press(browser, "step")
    assert browser.value("document.documentElement.scrollWidth <= window.innerWidth")


@pytest.mark.full
def test_the_list_names_all_exercises(browser: Browser, address: str) -> None:
    browser.open(f"{address}/exercises.html")
    browser.wait_for("document.querySelectorAll('table.list tr').length")
    links = browser.value("[...document.querySelectorAll('table.list a')].map((one) => one.textContent)")
    others = browser.value("[...document.querySelectorAll('li code')].map((one) => one.textContent)")
    assert sorted([*links, *" ".join(others).split()]) == sorted(one.name for one in exercises())
    assert links == [one.values[0].name for one in _exercises()]


@pytest.mark.full
@pytest.mark.parametrize("page", ["exercises", "exercise_v1_kernel", "exercise_cuda_map", "gemm"])
def test_the_new_pages_fit_a_phone(browser: Browser, address: str, page: str) -> None:
    for width in (390, 1280):
        browser.set_width(width)
        browser.open(f"{address}/{page}.html")
        browser.wait_for("document.readyState === 'complete' && document.querySelectorAll('nav').length")
        assert browser.value("document.documentElement.scrollWidth <= window.innerWidth")


@pytest.mark.full
def test_an_error_of_the_compiler_is_shown_at_its_line(browser: Browser, compiling: str) -> None:
    _open(browser, compiling, "v1_minimal")
    _edit(browser, "float part = 0", "float part = nothing")
    assert "does not compile" in _press(browser, "compile")["error"]
    assert 'identifier "nothing" is undefined' in _text(browser, "messages")
    field = "document.getElementById('source')"
    selected = browser.value(f"{field}.value.slice({field}.selectionStart, {field}.selectionEnd)")
    assert selected.strip() == "float part = nothing.f;"
    _edit(browser, "float part = nothing", "float part = 0")
    _edit(browser, "launch_tiles<d, 128, 32>", "launch_tiles<d, 64, 32>")
    assert "cannot launch this kernel" in _press(browser, "compile")["error"]
    assert "the sizes of tiles stay as they are" in _text(browser, "messages")
    browser.value("document.getElementById('reset').click()")
    assert "log" in _press(browser, "compile") and _text(browser, "messages") == ""


@pytest.mark.full
def test_the_exercise_is_solved_in_the_editor(browser: Browser, compiling: str) -> None:
    exercise = get_exercise("v1_rescale")
    _open(browser, compiling, f"exercise_{exercise.name}")
    source = browser.value("document.getElementById('source').value")
    assert solution_text(exercise).strip() not in source
    browser.value("[...document.querySelectorAll('#answers input')].at(-1).checked = true; 0")
    assert _press(browser, "answer")["is_right"] is False
    _edit(browser, exercise.gap.skeleton.strip(), "float l_old = exp(m_old - m_new) * l_gmem[row];")
    assert _press(browser, "answer")["is_right"] is True
    assert _text(browser, "verdict").startswith("Right.")


@pytest.mark.full
def test_the_editor_fits_a_phone_and_needs_its_server(browser: Browser, compiling: str, address: str) -> None:
    for width in (390, 1280):
        browser.set_width(width)
        _open(browser, compiling, "v1_minimal")
        assert browser.value("document.getElementById('source').offsetWidth") > 0.8 * min(width, 1200)
        assert browser.value("document.documentElement.scrollWidth <= window.innerWidth")
    _open(browser, address, "v1_minimal")
    assert browser.value("document.getElementById('editor').hidden")
    _open(browser, address, "exercise_v1_rescale")
    assert browser.value("document.getElementById('editor').hidden")


def _changed(stage: Stage, offered: Any, kernel: str) -> Stage:
    """The rung with another text of its kernel, compiled for these problems."""
    return read_stage(changed_copy(stage, kernel, "changed")).narrowed(offered)


def _findings(found: list[Mapping[str, Any]]) -> list[Any]:
    """What is the same wherever the memory lies."""
    lines = [(one["who"]["own_line"], one["other"] and one["other"]["own_line"]) for one in found]
    return [(one["kind"], one["message"], one["count"], *at) for one, at in zip(found, lines, strict=True)]


@pytest.mark.full
def test_steps_show_the_debuggers_variables(browser: Browser, address: str) -> None:
    from ladder.debugger import How, debug_stage, record

    stage = discover()["v1_minimal"]
    offered = _module("live_pages").problems(stage)
    line = next(
        number for number, text in enumerate(stage.kernel.read_text().splitlines(), 1) if "float part" in text
    )
    _open(browser, address, "v1_minimal")
    shown = _press(browser, "step", size=64, mask="none", line=line)["moments"]
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
    lines = discover()["v1_minimal"].kernel.read_text().splitlines()
    comment = next(number for number, text in enumerate(lines, 1) if "A sum of short sums" in text)
    _open(browser, address, "v1_minimal")
    shown = _press(browser, "step", size=64, mask="none", line=comment)["moments"]
    assert shown[0]["line"] == comment + 1
    said = _text(browser, "said")
    assert said == f"Line {comment} has no code; this begins at line {comment + 1}."
    assert "no code at line 4000 or behind it" in _press(browser, "step", line=4000)["error"]


def _exercises() -> list[Any]:
    offered = _module("live_exercises").offered_exercises(_module("live_pages").OFFERED)
    return [pytest.param(one, id=one.name) for one in offered]


def _choose(browser: Browser, answer: int) -> None:
    browser.value(f"document.querySelectorAll('#answers input')[{answer}].click(); 0")


@pytest.mark.full
@pytest.mark.parametrize("exercise", _exercises())
def test_an_exercise_is_solved_by_its_right_answers_alone(
    browser: Browser, address: str, exercise: Exercise
) -> None:
    known = read_answers(exercise)
    solution = solution_text(exercise).strip("\n")
    right = {solution, *(one.text.strip("\n") for one in known.right)}
    wrong = {one.text.strip("\n") for one in known.wrong}
    _open(browser, address, f"exercise_{exercise.name}")
    shown = browser.value("[...document.querySelectorAll('#answers label')].map((one) => one.textContent)")
    assert shown[0] == exercise.gap.skeleton.strip("\n") and set(shown[1:]) == right | wrong
    source = "[...document.querySelectorAll('#lines td.code')].map((one) => one.textContent).join('\\n')"
    assert browser.value(source) == exercise.sources(solved=False)[exercise.main_file].rstrip("\n")
    judged = {}
    for number, text in enumerate(shown):
        _choose(browser, number)
        is_right = _press(browser, "answer")["is_right"]
        verdict = _text(browser, "verdict")
        assert verdict.startswith("Right." if is_right else "Not right:"), verdict
        judged[text] = is_right
    # A starting point may be an answer that is right, and dearer than its exercise wants.
    assert {text for text, is_right in judged.items() if is_right} == right - {shown[0]}


@pytest.mark.full
@pytest.mark.parametrize("exercise", _exercises())
def test_counts_and_findings_of_an_exercise_equal_the_native_ones(
    browser: Browser, address: str, exercise: Exercise, tmp_path: Path
) -> None:
    """Of its starting point and of a right answer, each built by itself; they run under the sanitizer."""
    _open(browser, address, f"exercise_{exercise.name}")
    shown = browser.value("[...document.querySelectorAll('#answers label')].map((one) => one.textContent)")
    for text in (exercise.gap.skeleton.strip("\n"), solution_text(exercise).strip("\n")):
        _choose(browser, shown.index(text))
        log = _press(browser, "run", check=True)["log"]
        native = _native_answer(exercise, text, tmp_path / f"answer_{shown.index(text)}")
        _same_counts(log["kernels"], native)
        # Outputs that are never written are found in the order of their addresses, which differ.
        own, wanted = (
            sorted(_findings(found), key=str) for found in (log["findings"], json.loads(native.findings))
        )
        assert own == wanted


def _native_answer(exercise: Exercise, text: str, folder: Path) -> Any:
    """The run of an answer on the page's first problem, natively."""
    recording, target = _module("live_recording"), EmulatorTarget(exercise.arch)
    folder.mkdir()
    write_working_copy(exercise, folder, solved=False)
    fill_gap(exercise, folder, text)
    if exercise.rung is not None:
        problems = _module("live_exercises").cases_of(exercise)
        stage = read_stage(folder).narrowed(problems)
        return recording.record_run(stage, target, problems[0], check=True, may_fail=True)
    program = build_program([folder / exercise.main_file], DebugTarget(exercise.arch, lines_only=True))
    library = ctypes.CDLL(str(program))
    words = [b"program", *(one.encode() for one in exercise.runs[0].arguments)]

    def called() -> int:
        return int(library.main(len(words), (ctypes.c_char_p * (len(words) + 1))(*words, None)))

    ctypes.CDLL(None).srand(1)
    run, _ = recording.record_program(called, check=True)
    return run


@pytest.mark.full
def test_out_of_memory_names_the_size_that_fits(browser: Browser, address: str, pages: Path) -> None:
    _open(browser, address, "v1_minimal")
    small = _press(browser, "run", size=64, mask="none", check=True)["memory_bytes"]
    large = _press(browser, "run", size=256, mask="none", check=True)["memory_bytes"]
    assert small < large
    limit = f"""{{ const grow = WebAssembly.Memory.prototype.grow;
        WebAssembly.Memory.prototype.grow = function (pages) {{
          const bytes = this.buffer.byteLength + 65536 * pages;
          if (bytes > {(small + large) // 2}) throw new RangeError("too much");
          return grow.call(this, pages);
        }}; }}"""
    with served(pages, {"worker.js": limit}) as limited:
        _open(browser, limited, "v1_minimal")
        fits = _press(browser, "run", size=256, mask="none", check=True)["problem"]
        said = browser.value("document.getElementById('said').textContent")
    assert re.match(r"N = M = 256, no mask does not fit .* This is N = M = \d+, no mask, which fits\.", said)
    assert fits in said and fits != "N = M = 256, no mask"


#: Access, width, address, swizzle, lanes, as the page of accesses takes them.
ACCESSES = [
    ("ld", 4, "lane * 4", "", ""),
    ("ld", 4, "lane * 128", "", ""),
    ("ld", 4, "lane * 128", "5,2,5", ""),
    ("ld", 4, "lane * 132", "", "0-15,20"),
    ("ld", 4, "lane * 128 + (lane ^ lane >> 3 & 7) * 4", "", "0x0000ffff"),
    ("ld", 4, "lane * 0x8000000u", "", ""),
    ("ld", 1, "lane * 33", "", ""),
    ("ld", 2, "lane / 2 * 130", "", ""),
    ("ld", 8, "lane % 8 * 256 + lane / 8 * 8", "", ""),
    ("ld", 8, "lane / 2 * 128", "", ""),
    ("ld", 16, "lane * 128", "", ""),
    ("ld", 16, "(lane & ~1) * 64", "", ""),
    ("ld", 4, "0", "", ""),
    ("st", 1, "lane % 4 * 128 + lane / 4", "", ""),
    ("st", 4, "lane % 2 * 128 + lane / 2 * 4", "", "0b1010101"),
    ("st", 8, "lane * 128", "4,3,4", ""),
    ("st", 16, "lane * 16", "", ""),
    ("st", 16, "lane * 272", "", ""),
    ("ldmatrix", 1, "(7 - lane) * 16", "", ""),
    ("ldmatrix", 2, "lane % 8 * 256 + lane / 8 * 16", "", ""),
    ("ldmatrix", 4, "lane % 16 * 256 + lane / 16 * 16", "3,4,4", ""),
    ("ldmatrix", 4, "lane % 16 * 256 + lane / 16 * 16", "3,4,3", ""),
    ("stmatrix", 4, "lane * 144", "", ""),
    ("atom.add", 4, "lane % 2 * 128", "", ""),
    ("atom.cas", 4, "lane % 4 * 4", "", ""),
    # What is refused.
    ("ld", 4, "lane * ", "", ""),
    ("ld", 4, "warp * 4", "", ""),
    ("ld", 4, "lane // 2", "", ""),
    ("ld", 4, "1 / lane", "", ""),
    ("ld", 4, "lane - 1", "", ""),
    ("ld", 4, "lane * 2", "", ""),
    ("st", 16, "lane * 16 + 8", "", "3"),
    ("ld", 4, "1l << 40", "", ""),
    ("ldmatrix", 4, "lane * 16", "", "0-30"),
    ("ld", 4, "lane * 4", "3,4", ""),
    ("ld", 4, "lane * 4", "3,4,2", ""),
    ("ld", 4, "lane * 128", "3,0,7", ""),
    ("ld", 4, "lane * 4", "", "5-32"),
    ("ld", 4, "lane * 4", "", "x"),
    ("ld", 4, "lane * 4", "", "0x0"),
]


def _explored(op: str, width: int, address: str, swizzle: str, active: str) -> dict[str, Any]:
    """What ``ladder bank`` finds, as the page of accesses has it."""
    try:
        found = banks.explore(
            op,
            address,
            width=width,
            swizzle=banks.Swizzle.parse(swizzle) if swizzle else None,
            active=banks.parse_mask(active) if active else 2**32 - 1,
        )
    except LadderError as error:
        return {"error": str(error)}
    service = found.service

    def bits(one: banks.Swizzle) -> dict[str, int]:
        return {"bits": one.bits, "base": one.base, "shift": one.shift}

    return {
        "wavefronts": service.wavefronts,
        "conflicts": service.conflicts,
        "ideal": service.ideal,
        "passes": [
            {
                "lanes": [*one.lanes],
                "wavefronts": one.wavefronts,
                "cells": [
                    {
                        "wavefront": cell.wavefront,
                        "bank": cell.first_bank,
                        "banks": cell.banks,
                        "address": cell.address,
                        "lanes": [*cell.lanes],
                    }
                    for cell in one.cells
                ],
            }
            for one in service.passes
        ],
        "remedies": [bits(one) for one in found.remedies],
        "best": found.best and {**bits(found.best[0]), "conflicts": found.best[1]},
    }


def _type(browser: Browser, **fields: Any) -> dict[str, Any]:
    """What the page of accesses has after these inputs."""
    for name, value in fields.items():
        browser.value(
            f"{{ const field = document.getElementById({name!r}); field.value = {json.dumps(value)};"
            " field.dispatchEvent(new Event('input', { bubbles: true })); }"
        )
    return dict(browser.value("window.live"))


@pytest.mark.full
def test_an_access_costs_what_ladder_bank_says(browser: Browser, banks_page: str) -> None:
    browser.open(banks_page)
    browser.wait_for("window.live && document.getElementById('op')")
    for one in ACCESSES:
        op, width, address, swizzle, active = one
        shown = _type(browser, op=op, width=width, address=address, swizzle=swizzle, active=active)
        shown.pop("text", None)
        assert shown == _explored(*one), one
        drawings = "document.querySelectorAll('#result:not([hidden]) svg[role=img] rect').length"
        assert browser.value(drawings) == sum(len(each["cells"]) for each in shown.get("passes", ())), one


@pytest.mark.full
def test_the_page_of_accesses_speaks_chinese(browser: Browser, banks_page: str) -> None:
    """Its own words and what it computes; the table has every text of the pages' templates."""
    browser.open(banks_page.replace("banks.html", "zh_CN/banks.html"))
    browser.wait_for("window.live && document.getElementById('said').textContent.includes('wavefront')")
    shown = browser.value("[document.title, document.querySelector('h1').textContent, said.textContent]")
    assert shown[0] == "在浏览器中计算一次访存的 bank conflict" and shown[1] == "一次访存的 bank conflict"
    assert "4 个 pass 中 32 个 wavefront" in shown[2] and "28 个 conflict" in shown[2]
    assert browser.value("document.querySelector('nav a:last-child').href") == banks_page


def test_all_words_of_the_live_pages_are_translated() -> None:
    """Each text between tags, except code and what a rung says of itself, with its own fields alone."""
    words = json.loads((ROOT / "docs" / "live" / "zh-CN.json").read_text(encoding="utf-8"))
    for template in ("page.html", "banks.html", "exercises.html"):
        page = (ROOT / "docs" / "live" / template).read_text(encoding="utf-8")
        page = re.sub(r"<(script|code|style|nav|textarea)\b.*?</\1>", "<>", page, flags=re.DOTALL)
        for text in re.findall(r">([^<]+)<", page):
            said = " ".join(html.unescape(text).split())
            number = itertools.count()
            said = re.sub(r"(?<![\w.])\d+", lambda _, n=number: f"{{{next(n)}}}", said)
            if "$" not in said and re.search(r"[a-z]{3}", said) and said not in ("min", "max", "abs", "int"):
                assert words.get(said), said
    for english, chinese in words.items():
        field = re.compile(r"\{\d+\}")
        assert set(field.findall(chinese)) <= set(field.findall(english)), english


@pytest.mark.full
def test_the_examples_are_ladder_bank_s_commands(
    browser: Browser, banks_page: str, capsys: pytest.CaptureFixture[str]
) -> None:
    browser.open(banks_page)
    browser.wait_for("window.live && document.getElementById('op')")
    conflicts = []
    for number in range(len(_module("live_pages").PRESETS)):
        browser.value(
            f"{{ const field = document.getElementById('preset'); field.selectedIndex = {number};"
            " field.dispatchEvent(new Event('change', { bubbles: true })); }"
        )
        shown = browser.value("window.live")
        conflicts.append(shown["conflicts"])
        command = browser.value("document.getElementById('command').textContent")
        assert main(shlex.split(command)[1:]) == 0
        assert (
            shown["text"].split()
            == capsys.readouterr().out.partition("\n\n")[0].split()[-len(shown["text"].split()) :]
        )
        titles = browser.value("[...document.querySelectorAll('svg title')].map((one) => one.textContent)")
        assert len(titles) == len(shown["passes"]) and all("Wavefront 1: lane" in one for one in titles)
    assert conflicts == [28, 0, 28, 0, 31, 0, 0, 0]


@pytest.mark.full
def test_the_page_of_accesses_fits_a_phone_and_offers_the_remedy(browser: Browser, banks_page: str) -> None:
    for width in (390, 1280):
        browser.set_width(width)
        browser.open(banks_page)
        browser.wait_for("window.live && document.getElementById('op')")
        assert browser.value("document.documentElement.scrollWidth <= window.innerWidth")
    assert _type(browser, op="ldmatrix", address="lane % 8 * 128", swizzle="")["conflicts"] > 0
    browser.value("document.querySelector('#advice button').click()")
    assert browser.value("document.getElementById('swizzle').value") == "3,4,3"
    assert browser.value("window.live.conflicts") == 0


@pytest.mark.skipif(not shutil.which("node"), reason="needs node")
def test_the_page_reads_an_access_as_ladder_bank_does(tmp_path: Path) -> None:
    """Values, addresses and errors; without the bank model, which is the emulator's."""
    rng = random.Random(33)
    texts = [*WRITTEN, *REFUSED, *UNDEFINED, *(random_expression(rng, 4) for _ in range(300))]
    texts += ["min(lane, 7) - abs(-lane)", "max(lane - 5, 2u)", " lane // 2", "é + lane", "1'000", "0x"]
    texts += ["- " * depth + "lane" for depth in (59, 60)]
    for name in ("access.js", "expression.js"):
        shutil.copyfile(ROOT / "docs" / "live" / name, tmp_path / name)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "read.js").write_text("""
        import { readFileSync } from "node:fs";
        import { accessOf } from "./access.js";
        import { expression, Refusal } from "./expression.js";
        const tried = (work) => {
          try {
            return work();
          } catch (error) {
            if (error instanceof Refusal) return error.message;
            throw error;
          }
        };
        const { texts, accesses } = JSON.parse(readFileSync(0, "utf-8"));
        console.log(JSON.stringify({
          values: texts.map((text) => tried(() => {
            const value = expression(text);
            return [0, 1, 5, 31].map((lane) => String(value(lane)));
          })),
          accesses: accesses.map(([op, width, address, swizzle, active]) =>
            tried(() => accessOf({ op, width, address, swizzle, active }).access.addresses)),
        }));
    """)
    done = subprocess.run(
        ["node", str(tmp_path / "read.js")],
        input=json.dumps({"texts": texts, "accesses": ACCESSES}),
        capture_output=True,
        text=True,
        check=True,
    )
    read = json.loads(done.stdout)
    for text, shown in zip(texts, read["values"], strict=True):
        assert shown == _values(text), text
    for one, shown in zip(ACCESSES, read["accesses"], strict=True):
        assert shown == _addresses(*one), one


def _values(text: str) -> Any:
    try:
        value = banks.Expression(text)
        return [str(value(lane=lane)) for lane in (0, 1, 5, 31)]
    except LadderError as error:
        return str(error)


def _addresses(op: str, width: int, address: str, swizzle: str, active: str) -> Any:
    """Of the lanes that take part, swizzled."""
    try:
        chosen = banks.Swizzle.parse(swizzle) if swizzle else None
        mask = banks.parse_mask(active) if active else 2**32 - 1
        given = lane_addresses(address)
        access = banks.Access(
            op, width, tuple(at if mask >> lane & 1 else None for lane, at in enumerate(given))
        )
        return [*(swizzled(access, chosen) if chosen else access).addresses]
    except LadderError as error:
        return str(error)


@pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")
@pytest.mark.parametrize("name", ["page", "host", "banks"])
def test_the_emulator_s_entry_points_for_pages_fit_its_headers(tmp_path: Path, name: str) -> None:
    """Without emscripten nothing else compiles them."""
    (tmp_path / "emscripten.h").write_text(
        "#define EMSCRIPTEN_KEEPALIVE\n"
        '#define EM_JS(type, name, arguments, ...) extern "C" type name arguments\n'
    )
    emulator = ROOT / "emulator"
    command = ["g++", "-fsyntax-only", "-std=c++20", "-I", str(tmp_path), "-I", str(emulator)]
    done = subprocess.run([*command, str(emulator / "wasm" / f"{name}.cpp")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_without_emscripten_the_site_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    site = _module("live_pages")
    monkeypatch.setattr(site.shutil, "which", lambda name: None)
    _site().write_live_pages(tmp_path / "live")
    said = capsys.readouterr().out
    assert said.count("\n") == 1 and "emscripten" in said and not (tmp_path / "live").exists()


def _site() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_site", ROOT / "docs" / "site.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
